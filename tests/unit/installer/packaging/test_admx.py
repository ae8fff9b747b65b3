"""The templates of group policy: what they set is what the agent reads, and every text is there in every language."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from agent.volunteer.group_policy import FORMS, KEY, Value, wishes_of
from agent.volunteer.policy import ROWS
from installer.packaging import admx
from tests.support.documents import ROOT
from tests.support.wix_rules import WXS

SPACE = {"p": admx.NAMESPACE}
TRANSLATIONS = ROOT / "assets" / "translations"
EXAMPLES = {"bytes": "8GiB", "schedule": "Mon-Fri 20:00-06:00"}


@pytest.fixture(scope="module")
def template() -> ET.Element:
    return ET.fromstring(admx.template())


@pytest.fixture(scope="module", params=admx.languages())
def texts(request: pytest.FixtureRequest) -> ET.Element:
    return ET.fromstring(admx.texts(request.param, TRANSLATIONS))


def policies(template: ET.Element) -> list[ET.Element]:
    return template.findall("p:policies/p:policy", SPACE)


def set_values(policy: ET.Element) -> list[dict[str, Value]]:
    """What the editor would write: each state of a switch, both ends of a number, an example of a text or a list."""
    name = policy.get("valueName")
    if name:
        decimals = [policy.find(f"p:{state}/p:decimal", SPACE) for state in ("enabledValue", "disabledValue")]
        return [{name: int(decimal.attrib["value"])} for decimal in decimals if decimal is not None]
    (element,) = policy.findall("p:elements/*", SPACE)
    name, tag = element.attrib["valueName"], element.tag.rpartition("}")[2]
    if tag == "decimal":
        return [{name: int(element.attrib[end])} for end in ("minValue", "maxValue")]
    if tag == "text":
        return [{name: EXAMPLES[ROWS[name].kind]}]
    assert tag == "multiText"
    return [{name: ["CPU"]}]


def test_every_row_can_be_set_and_nothing_else(template: ET.Element) -> None:
    found = [value for policy in policies(template) for value in set_values(policy)]
    assert {name for values in found for name in values} == set(ROWS)
    for values in found:
        wishes, problem = wishes_of(values)
        assert problem == "", values
        assert all(getattr(wishes, name) is not None for name in values)


def test_a_switch_means_what_it_says(template: ET.Element) -> None:
    (policy,) = (one for one in policies(template) if one.get("name") == "enabled")
    enabled, disabled = set_values(policy)
    assert wishes_of(enabled)[0].enabled is True
    assert wishes_of(disabled)[0].enabled is False


def test_everything_is_kept_where_the_agent_looks(template: ET.Element) -> None:
    assert {policy.get("key") for policy in policies(template)} == {KEY}
    assert {policy.get("class") for policy in policies(template)} == {"Machine"}


def test_what_a_policy_refers_to_is_there(template: ET.Element) -> None:
    categories = {one.get("name") for one in template.findall("p:categories/p:category", SPACE)}
    supported = {one.get("name") for one in template.findall("p:supportedOn/p:definitions/p:definition", SPACE)}
    for policy in policies(template):
        parts = [child.tag.rpartition("}")[2] for child in policy]
        assert parts in (["parentCategory", "supportedOn", "enabledValue", "disabledValue"],
                         ["parentCategory", "supportedOn", "elements"])  # fmt: skip
        assert policy[0].get("ref") in categories
        assert policy[1].get("ref") in supported


def test_names_are_what_the_editor_takes_and_each_is_there_once(template: ET.Element) -> None:
    names = [policy.attrib["name"] for policy in policies(template)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z_]\w*", name) for name in names)


def test_every_text_that_is_referred_to_is_there_and_none_is_left_over(template: ET.Element, texts: ET.Element) -> None:
    whole = ET.tostring(template, "unicode")
    strings = [one.attrib["id"] for one in texts.iterfind(".//p:string", SPACE)]
    presentations = [one.attrib["id"] for one in texts.iterfind(".//p:presentation", SPACE)]
    assert sorted(strings) == sorted(set(re.findall(r"\$\(string\.(\w+)\)", whole)))
    assert sorted(presentations) == sorted(set(re.findall(r"\$\(presentation\.(\w+)\)", whole)))
    assert all((one.text or "").strip() for one in texts.iterfind(".//p:string", SPACE))


def test_every_field_shown_is_one_of_its_policy(template: ET.Element, texts: ET.Element) -> None:
    boxes = {"decimal": "decimalTextBox", "text": "textBox", "multiText": "multiTextBox"}
    elements = {
        policy.attrib["name"]: [
            (boxes[one.tag.rpartition("}")[2]], one.attrib["id"]) for one in policy.findall("p:elements/*", SPACE)
        ]
        for policy in policies(template)
        if policy.get("presentation")
    }
    shown = {
        one.attrib["id"]: [(box.tag.rpartition("}")[2], box.attrib["refId"]) for box in one if box.get("refId")]
        for one in texts.iterfind(".//p:presentation", SPACE)
    }
    assert shown == elements


def test_proposed_numbers_lie_in_their_limits(template: ET.Element, texts: ET.Element) -> None:
    limits = {
        one.attrib["id"]: (int(one.attrib["minValue"]), int(one.attrib["maxValue"]))
        for one in template.iterfind(".//p:elements/p:decimal", SPACE)
    }
    for box in texts.iterfind(".//p:decimalTextBox", SPACE):
        low, high = limits[box.attrib["refId"]]
        assert low <= int(box.attrib["defaultValue"]) <= high


def test_every_language_says_the_same_things_and_is_one_of_the_agent() -> None:
    said = admx.languages()
    assert {frozenset(texts) for texts in said.values()} == {frozenset(said["en-US"])}
    assert set(FORMS) <= set(said["en-US"])
    assert {texts["translation"] for texts in said.values()} == {path.stem for path in TRANSLATIONS.glob("*.json")}


def test_the_package_installs_the_template_and_each_language() -> None:
    package = ET.parse(ROOT / "installer" / "packaging" / "windows" / "agent.wxs")
    sources = {file.get("Source", "") for file in package.iter(f"{WXS}File")}
    expected = {f"$(Work)\\{language}\\fallow.adml" for language in admx.languages()} | {"$(Work)\\fallow.admx"}
    assert {source for source in sources if "fallow.ad" in source} == expected


def test_a_row_without_a_name_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "en.json").write_text("{}", encoding="utf-8")
    with pytest.raises(KeyError):
        admx.texts("en-US", tmp_path)
