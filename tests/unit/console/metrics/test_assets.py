"""The dashboard, the alert rules and their runbook speak of metrics that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from console.metrics.catalog import CATALOG

ROOT = Path(__file__).parents[4]
ASSETS = ROOT / "assets" / "grafana"
RUNBOOK = (ASSETS / "README.md").read_text("utf-8")
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((ASSETS / "alerts.yml").read_text("utf-8"))["groups"] for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((ASSETS / "fallow.json").read_text("utf-8"))

_USE = re.compile(r"\b((?:fallow|process)_\w+)(\{[^}]*\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
_GROUPED = re.compile(r"\b(?:by|on|group_left)\s*\(([^)]*)\)")
# Added by Prometheus to whatever it collects.
TARGET_LABELS = {"job", "instance"}


def exposed_names() -> dict[str, set[str]]:
    """Return the names of samples, with their labels."""
    names: dict[str, set[str]] = {}
    for family in CATALOG:
        labels = set(family.labels) | TARGET_LABELS
        if family.kind == "histogram":
            names |= {f"{family.name}_{part}": labels for part in ("count", "sum")}
            names[f"{family.name}_bucket"] = labels | {"le"}
        else:
            names[family.name + ("_total" if family.kind == "counter" else "")] = labels
    return names


def queries() -> Iterator[tuple[str, str]]:
    """Yield where a query stands, and the query."""
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for annotation in DASHBOARD["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


@pytest.mark.parametrize(("where", "query"), list(queries()))
def test_every_query_asks_for_what_is_exposed(where: str, query: str) -> None:
    names = exposed_names()
    used = _USE.findall(query)
    assert used or query.startswith("up{"), where
    known: set[str] = set()
    for name, matchers in used:
        assert name in names, f"{where} asks for {name}"
        unknown = set(_MATCHER.findall(matchers)) - names[name]
        assert not unknown, f"{where} asks {name} for {unknown}"
        known |= names[name]
    grouped = {label.strip() for group in _GROUPED.findall(query) for label in group.split(",")} - {""}
    assert grouped <= known | TARGET_LABELS, f"{where} groups by {grouped - known}"
    for opening, closing in ("()", "{}", "[]"):
        assert query.count(opening) == query.count(closing), where


def test_every_alert_has_its_place_in_the_runbook_and_nothing_else_has() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    sections = re.split(r"^### (\w+)\n", RUNBOOK, flags=re.MULTILINE)[1:]
    found = dict(zip(sections[::2], sections[1::2], strict=True))
    assert list(found) == names
    for name, text in found.items():
        assert all(f"- **{part}:**" in text for part in ("Means", "Look at", "Do")), name
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"assets/grafana/README.md#{rule['alert'].lower()}"
        assert rule["annotations"]["summary"].endswith((".", "?")), rule["alert"]
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}


def test_the_runbook_names_panels_that_there_are() -> None:
    titles = {panel["title"] for panel in DASHBOARD["panels"]}
    for section in re.findall(r"\*\*Look at:\*\*(.*?)(?=- \*\*Do)", RUNBOOK, flags=re.DOTALL):
        assert set(re.findall(r'"([^"]+)"', section)) <= titles


def test_summaries_name_labels_that_the_alert_has() -> None:
    for rule in RULES:
        wanted = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) - TARGET_LABELS
        grouped = {label.strip() for group in _GROUPED.findall(rule["expr"]) for label in group.split(",")}
        assert wanted <= grouped, rule["alert"]


def test_panels_lie_beside_and_below_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + column, place["y"] + line) for column in range(place["w"]) for line in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_the_table_of_metrics_is_the_catalog() -> None:
    readme = (ROOT / "console" / "metrics" / "README.md").read_text("utf-8")
    rows = [
        f"| `{one.name}{'_total' if one.kind == 'counter' else ''}` | {one.kind} | "
        f"{', '.join(f'`{label}`' for label in one.labels)} | {one.about} |"
        for one in CATALOG
    ]
    assert [line for line in readme.splitlines() if line.startswith(("| `fallow_", "| `process_"))] == rows
