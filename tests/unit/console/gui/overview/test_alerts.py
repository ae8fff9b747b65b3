"""console.gui.overview: what is counted, what needs somebody, and what is copied for programs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from console.access import Access
from console.api.admin import types as wire
from console.gui.devices.fleet import Status, counts, parts_of
from console.gui.endpoint import base_url, curl
from console.gui.overview.alerts import alerts
from console.gui.overview.totals import count
from tests.support.shown_fleet import GIB, device_id, make_agent, make_fleet, make_pipeline, make_status

LIBRARY = wire.Library("d" * 64, "small", "/libraries/small", 0.0, 24, GIB)


def test_every_pc_of_the_fleet_is_counted_where_it_is() -> None:
    totals = count(make_fleet(16), [make_pipeline(devices=2), make_pipeline("other", state="waiting", stages=[])])
    assert (totals.connected, totals.known) == (8, 10)
    assert (totals.serving, totals.available, totals.held) == (2, 4, 2)
    assert totals.memory_free_bytes == 8 * 9 * GIB
    assert (totals.models_ready, totals.models, totals.running, totals.queued) == (1, 2, 4, 2)


def test_a_pc_is_counted_where_the_page_of_the_pcs_has_it() -> None:
    fleet = [*make_fleet(16), make_agent(0, held_because=["user_input"])]
    pipelines = [make_pipeline(devices=2)]
    totals, numbers = count(fleet, pipelines), counts(fleet, parts_of(pipelines))
    shown: tuple[Status, ...] = ("serving", "available", "held")
    for status in shown:
        assert getattr(totals, status) == numbers[status], status
    assert totals.connected == totals.serving + totals.available + totals.held
    assert totals.known == totals.connected + numbers["offline"]


def test_nothing_needs_anybody_in_a_fleet_that_works() -> None:
    assert alerts(make_status(), [make_agent(1)], [LIBRARY]) == []


@pytest.mark.parametrize(
    ("fields", "said", "page"),
    [
        ({"state": "failed", "message": "pc-1 has not enough memory."}, "pc-1 has not enough memory.", "models"),
        ({"state": "waiting", "message": "No PC."}, "waits for PCs. No PC.", "devices"),
        ({"state": "recovering", "message": "pc-2 left."}, "others take over. pc-2 left.", "devices"),
        ({"probe": wire.Probe(ok=False, age_s=90.0, message="No fresh token.")}, "came 90 s ago", "models"),
        ({"queued": 20}, "20 answers wait for small", "models"),
    ],
)
def test_a_model_in_trouble_says_why_and_where_to_go(fields: dict[str, Any], said: str, page: str) -> None:
    (alert,) = alerts(make_status([make_pipeline("small", **fields)]), [make_agent(1)], [LIBRARY])
    assert said in alert.text
    assert alert.page == page
    assert alert.step
    assert alert.button


def test_waiting_pcs_unusable_libraries_and_other_versions_are_told_the_worst_first() -> None:
    fleet = [
        *make_fleet(8),
        make_agent(20, version="0.0.9"),
        make_agent(21, same_machine=[device_id(22)], link="offline", seen_s=1.0),
        make_agent(22, same_machine=[device_id(21)]),
    ]
    broken = wire.Library("e" * 64, "large", "/libraries/large", 0.0, problem="A file is missing.")
    found = alerts(make_status(), fleet, [LIBRARY, broken])
    assert [alert.severity for alert in found] == ["bad", "wait", "hint", "hint"]
    assert "A file is missing." in found[0].text
    assert found[1].what == "pending"
    assert "pc-0022 (K7QF-0022) may be the same machine as the former record pc-0021 (K7QF-0021)" in found[2].text
    assert found[2].what == device_id(22)
    assert "pc-0020 with 0.0.9" in found[3].text


@pytest.mark.parametrize(
    ("agents", "libraries", "page"),
    [([], [LIBRARY], "invites"), ([make_agent(1)], [], "models"), ([make_agent(1)], [LIBRARY], "models")],
)
def test_an_empty_fleet_is_led_to_its_next_step(
    agents: list[wire.Agent], libraries: list[wire.Library], page: str
) -> None:
    found = alerts(make_status([]), agents, libraries)
    assert [(alert.severity, alert.page) for alert in found] == [("hint", page)]


def test_the_copied_command_asks_the_model_and_holds_no_secret() -> None:
    access = Access("https://console.example.org:8460", "the secret", Path("/data/with space/authorities.pem"))
    assert base_url(access) == "https://console.example.org:8460/v1"
    words = shlex.split(curl(access, "it's small"))
    assert words[:4] == ["curl", f"{base_url(access)}/chat/completions", "--cacert", str(access.authority)]
    assert json.loads(words[words.index("-d") + 1])["model"] == "it's small"
    assert words[-1] == "Authorization: Bearer $FALLOW_KEY"
    assert "the secret" not in curl(access, "small")
