"""Templates for the editor of group policy on Windows: every row of the agent's policy, in each language of the agent.

Made from the rows themselves, so that what can be set there is what `agent.volunteer.group_policy` reads. The names of
the rows are those of the tray's settings; what is only said here is in `windows/policy-texts.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

from agent.volunteer.group_policy import FORMS, KEY
from agent.volunteer.policy import MAX_PROGRAM_LETTERS, MAX_PROGRAMS, ROWS, Row

NAMESPACE = "http://schemas.microsoft.com/GroupPolicy/2006/07/PolicyDefinitions"
REVISION = "1.0"
TEXTS = Path(__file__).with_name("windows") / "policy-texts.json"
CATEGORY, SUPPORTED = "Fallow", "SUPPORTED_FALLOW"
LONGEST_TEXT = 1023


def languages() -> dict[str, dict[str, str]]:
    """Return what is said in each language, by its Windows name such as `de-DE`."""
    found: dict[str, dict[str, str]] = json.loads(TEXTS.read_text("utf-8"))
    return found


def template() -> str:
    """Write fallow.admx: what can be set, where it is kept, in no language."""
    root = _root("policyDefinitions")
    _below(_below(root, "policyNamespaces"), "target", prefix="fallow", namespace="Fallow.Policies.Fallow")
    _below(root, "resources", minRequiredRevision=REVISION)
    definitions = _below(_below(root, "supportedOn"), "definitions")
    _below(definitions, "definition", name=SUPPORTED, displayName=f"$(string.{SUPPORTED})")
    _below(_below(root, "categories"), "category", name=CATEGORY, displayName=f"$(string.{CATEGORY})")
    policies = _below(root, "policies")
    for name, row in ROWS.items():
        _policy(policies, name, row)
    return _text(root)


def texts(language: str, translations: Path) -> str:
    """Write fallow.adml of one language; `translations` is the folder with the agent's. Raises OSError or KeyError."""
    said = languages()[language]
    names = json.loads((translations / f"{said['translation']}.json").read_text("utf-8"))
    root = _root("policyDefinitionResources")
    _below(root, "displayName").text = said["product"]
    _below(root, "description").text = said["about"]
    resources = _below(root, "resources")
    strings, presentations = _below(resources, "stringTable"), _below(resources, "presentationTable")
    _below(strings, "string", id=SUPPORTED).text = said["supported"]
    _below(strings, "string", id=CATEGORY).text = said["product"]
    for name, row in ROWS.items():
        shown = names[f"policy.{name}"]
        _below(strings, "string", id=name).text = shown
        _below(strings, "string", id=f"{name}_help").text = f"{_hint(said, row)}\n\n{said['joins']}"
        if row.kind != "switch":
            _presentation(presentations, name, row, _hint(said, row))
    return _text(root)


def _policy(policies: ET.Element, name: str, row: Row) -> None:
    own: dict[str, str] = {"valueName": name} if row.kind == "switch" else {"presentation": f"$(presentation.{name})"}
    shown = {"displayName": f"$(string.{name})", "explainText": f"$(string.{name}_help)"}
    policy = _below(policies, "policy", {"name": name, "class": "Machine", "key": KEY, **shown, **own})
    _below(policy, "parentCategory", ref=CATEGORY)
    _below(policy, "supportedOn", ref=SUPPORTED)
    if row.kind == "switch":
        for state, value in (("enabledValue", "1"), ("disabledValue", "0")):
            _below(_below(policy, state), "decimal", value=value)
        return
    elements = _below(policy, "elements")
    shared = {"id": name, "valueName": name, "required": "true"}
    if FORMS[row.kind] == "number":
        _below(elements, "decimal", {**shared, "minValue": f"{row.low:.0f}", "maxValue": f"{row.high:.0f}"})
    elif FORMS[row.kind] == "text":
        _below(elements, "text", {**shared, "maxLength": str(LONGEST_TEXT)})
    else:
        limits = {"maxLength": str(MAX_PROGRAM_LETTERS), "maxStrings": str(MAX_PROGRAMS)}
        _below(elements, "multiText", {**shared, **limits})


def _presentation(presentations: ET.Element, name: str, row: Row, hint: str) -> None:
    shown = _below(presentations, "presentation", id=name)
    form = FORMS[row.kind]
    if form == "number":
        _below(shown, "decimalTextBox", refId=name, defaultValue=f"{max(row.low, row.bound or 0):.0f}").text = hint
    elif form == "text":
        _below(_below(shown, "textBox", refId=name), "label").text = hint
    else:
        _below(shown, "text").text = hint
        _below(shown, "multiTextBox", refId=name)


def _hint(said: Mapping[str, str], row: Row) -> str:
    return said[row.kind].format(low=f"{row.low:.0f}", high=f"{row.high:.0f}")


def _root(name: str) -> ET.Element:
    ET.register_namespace("", NAMESPACE)
    return ET.Element(f"{{{NAMESPACE}}}{name}", revision=REVISION, schemaVersion="1.0")


def _below(parent: ET.Element, tag: str, attributes: Mapping[str, str] | None = None, **more: str) -> ET.Element:
    return ET.SubElement(parent, f"{{{NAMESPACE}}}{tag}", {**(attributes or {}), **more})


def _text(root: ET.Element) -> str:
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, "unicode") + "\n"
