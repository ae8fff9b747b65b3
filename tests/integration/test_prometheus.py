"""A real Prometheus collects from a real console as its runbook says: dashboard and alerts find what they ask for.

A fleet of three PCs serves the toy model, one of them is killed on the way, and everything is evaluated at the end.
"""

from __future__ import annotations

import json
import re
import signal
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import pytest
import yaml

from console.api.admin import types as wire
from installer.loopback import AgentSettings, LoopbackFleet
from tests.support.patience import PATIENCE_S
from tests.support.prometheus import Prometheus, promtool, running_prometheus, skip_without_prometheus
from tests.support.spelling_library import spelling_library
from tests.support.talking_library import TEMPLATE
from tests.support.telling import FOLDER_VARIABLE

ASSETS = Path(__file__).parents[2] / "assets" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((ASSETS / "fallow.json").read_text("utf-8"))
ALERTS: list[dict[str, Any]] = yaml.safe_load((ASSETS / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
COLLECTIONS = 4
"""Before the PC is killed and after: rates need a few."""
CHOSEN = {"$__rate_interval": "1m", "$job": ".*", "$model": ".*"}
"""What Grafana puts in: a minute is four collections by the README's interval."""
NOTHING_THERE = {
    ("Why PCs are held", "A"): "nobody is held",
    ("PCs that went", "A"): "nobody's owner came back",
}
"""Panels' queries without a value here: nothing of the kind happens."""
_SELECTOR = re.compile(r"\b(?:fallow|process)_\w+(?:\{[^}]*\})?|\bup\{[^}]*\}")
_FENCE = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


class Collected(NamedTuple):
    """What was collected until a moment, and the last page."""

    prometheus: Prometheus
    taken_over_s: float
    """When another PC had just taken over."""
    at_s: float
    page: str
    """In the text format."""


def scrape_configs(fleet: LoopbackFleet, folder: Path) -> list[dict[str, Any]]:
    """Return the README's, with this console's address, key and authority."""
    found = _FENCE.search(re.sub(r"^   ", "", (ASSETS / "README.md").read_text("utf-8"), flags=re.MULTILINE))
    assert found
    (config,) = yaml.safe_load(found[1])["scrape_configs"]
    key = folder / "metrics.key"
    key.write_text(fleet.admin.create_key("prometheus", scope="view").secret)
    authority = folder / "authority.pem"
    authority.write_bytes((fleet.console_folder / "authority" / "authorities.pem").read_bytes())
    config["authorization"]["credentials_file"] = str(key)
    config["tls_config"]["ca_file"] = str(authority)
    config["static_configs"] = [{"targets": [urlsplit(fleet.api_url).netloc]}]
    config["scrape_interval"] = config["scrape_timeout"] = "1s"
    return [config]


def ask(http: httpx2.Client, fleet: LoopbackFleet, **fields: Any) -> int:
    body = {"model": fleet.model, "messages": [{"role": "user", "content": "tell me"}], "max_tokens": 40}
    return http.post("/v1/chat/completions", json=body | {"temperature": 0, "ignore_eos": True} | fields).status_code


def ask_until_collected(http: httpx2.Client, fleet: LoopbackFleet, prometheus: Prometheus) -> None:
    """Ask and be refused for as long as COLLECTIONS take."""
    of_page = "scrape_samples_scraped"
    before_s, deadline_s = time.time(), time.monotonic() + PATIENCE_S
    while True:
        assert ask(http, fleet) == 200
        assert ask(http, fleet, model="unheard of") == 404
        (seen,) = prometheus.query(f"count_over_time({of_page}[{int(time.time() - before_s) + 1}s])") or [({}, 0)]
        if seen[1] >= COLLECTIONS:
            return
        assert time.monotonic() < deadline_s, prometheus.targets()


def kill_a_stage(fleet: LoopbackFleet) -> None:
    """Kill the PC of the last stage while it answers nobody, and wait until another took over."""
    (view,) = fleet.admin.status().pipelines
    fleet.process(view.stages[-1].device_name).send_signal(signal.SIGKILL)
    deadline_s = time.monotonic() + PATIENCE_S
    while (now := fleet.admin.status().pipelines[0]).state != "ready" or now.epoch == view.epoch:
        assert time.monotonic() < deadline_s, now
        time.sleep(0.05)


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collected]:
    skip_without_prometheus()
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "told").mkdir()
    spelling_library(folder / "library", template=TEMPLATE)
    agents = [AgentSettings(name, 1) for name in ("first", "second", "third")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(folder / "told"))
        # The console of the soak listens where others reach it, so it speaks TLS.
        fleet = LoopbackFleet(folder / "fleet", agents, console="tests.support.soaked_console")
        with fleet, running_prometheus(folder, scrape_configs(fleet, folder), [ASSETS / "alerts.yml"]) as prometheus:
            taken_over_s = fleet_is_asked(fleet, prometheus)
            yield Collected(prometheus, taken_over_s, time.time(), page_of(fleet, folder))


def fleet_is_asked(fleet: LoopbackFleet, prometheus: Prometheus) -> float:
    """Let it answer, lose a PC and answer again; returns when that was taken over."""
    model = fleet.admin.add_library(fleet.console_folder.parent.parent / "library").model_id
    fleet.deploy(wire.DeployRequest(model=model, stages=2, context=512, streams=2))
    tls = ssl.create_default_context(cafile=fleet.console_folder / "authority" / "authorities.pem")
    headers = {"Authorization": f"Bearer {fleet.chat_key}"}
    with httpx2.Client(
        base_url=fleet.api_url, headers=headers, verify=tls, trust_env=False, timeout=PATIENCE_S
    ) as http:
        ask_until_collected(http, fleet, prometheus)
        kill_a_stage(fleet)
        taken_over_s = time.time()
        ask_until_collected(http, fleet, prometheus)
    return taken_over_s


def page_of(fleet: LoopbackFleet, folder: Path) -> str:
    tls = ssl.create_default_context(cafile=folder / "authority.pem")
    headers = {"Authorization": f"Bearer {(folder / 'metrics.key').read_text()}"}
    with httpx2.Client(verify=tls, trust_env=False, timeout=PATIENCE_S) as http:
        return http.get(f"{fleet.api_url}/metrics", headers=headers).text


def put_in(query: str) -> str:
    for name, value in CHOSEN.items():
        query = query.replace(name, value)
    assert "$" not in query, query
    return query


def panels() -> list[tuple[str, str, str]]:
    """List the panels' queries: title, letter, query."""
    return [
        (panel["title"], target["refId"], target["expr"])
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
    ]


def test_prometheus_collects_as_the_runbook_says(collected: Collected) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while (target := collected.prometheus.targets()[0])["health"] != "up":
        assert time.monotonic() < deadline_s, target["lastError"]
        time.sleep(0.1)
    assert (target["lastError"], target["scrapePool"]) == ("", "fallow")
    assert {
        labels["job"] for labels, _ in collected.prometheus.query("max_over_time(up[1m]) == 1", collected.at_s)
    } == {"fallow"}


def test_the_page_is_what_prometheus_calls_good(collected: Collected) -> None:
    promtool("check", "metrics", given=collected.page)


@pytest.mark.parametrize(("title", "letter", "query"), panels())
def test_a_panel_has_something_to_draw(collected: Collected, title: str, letter: str, query: str) -> None:
    found = collected.prometheus.query(put_in(query), collected.at_s)
    assert bool(found) == ((title, letter) not in NOTHING_THERE), (query, found)


def test_lines_of_a_panel_are_told_apart(collected: Collected) -> None:
    for panel in DASHBOARD["panels"]:
        drawn = []
        for target in panel.get("targets", []):
            for labels, _ in collected.prometheus.query(put_in(target["expr"]), collected.at_s):
                name = re.sub(r"{{(\w+)}}", lambda found, labels=labels: labels[found[1]], target["legendFormat"])  # type: ignore[misc]
                drawn.append(name)
        assert len(set(drawn)) == len(drawn), (panel["title"], drawn)
        assert panel["type"] in {"stat", "row"} or all(drawn), panel["title"]


def test_the_lists_of_jobs_and_models_are_filled_and_a_change_of_plan_is_marked(collected: Collected) -> None:
    lists = {one["name"]: one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"}
    for name, wanted in (("job", ["fallow"]), ("model", ["toy"])):
        found = re.fullmatch(r"label_values\((.*), (\w+)\)", lists[name])
        assert found, lists[name]
        assert collected.prometheus.label_values(found[2], put_in(found[1])) == wanted
    (annotation,) = DASHBOARD["annotations"]["list"]
    soon_s = min(collected.at_s, collected.taken_over_s + 30)
    marks = [labels for labels, _ in collected.prometheus.query(put_in(annotation["expr"]), soon_s)]
    assert {"model": "toy", "kind": "taken_over"} in marks


def test_every_alert_is_evaluated(collected: Collected) -> None:
    rules = {rule["name"]: rule for rule in collected.prometheus.rules()}
    assert [*rules] == [rule["alert"] for rule in ALERTS]
    for name, rule in rules.items():
        assert (rule["health"], rule.get("lastError", "")) == ("ok", ""), name
        # A critical one that fires in a fleet that answers would be believed by nobody.
        assert rule["state"] != "firing", name


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_looks_at_what_there_is(collected: Collected, alert: dict[str, Any]) -> None:
    """Every selector finds samples: one that finds none is silent for ever."""
    collected.prometheus.query(alert["expr"], collected.at_s)
    for selector in _SELECTOR.findall(alert["expr"]):
        assert collected.prometheus.query(selector, collected.at_s), selector
