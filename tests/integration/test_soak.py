"""Sixteen clients for minutes or hours: no hang, no wrong text, nothing held afterwards, memory as flat as before.

A real console and two agents with a stage each, TLS everywhere. `FALLOW_SOAK_S` is how long the slow ones take.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest

from console.api.admin import types as wire
from installer.loopback import AgentSettings, LoopbackFleet
from tests.support.soak_clients import Service, soak
from tests.support.soak_questions import LONG, questions
from tests.support.soak_watch import Watch, growth, more_than, nothing_cached
from tests.support.spelling_library import spelling_library
from tests.support.talking_library import TEMPLATE
from tests.support.telling import FOLDER_VARIABLE

pytestmark = [
    pytest.mark.begun_first,
    pytest.mark.skipif(os.name == "nt", reason="processes are asked by signals"),
]

PCS = ("first", "second")
SOAK_S = 300.0
SLOW_S = float(os.environ.get("FALLOW_SOAK_S", "7200"))
PAUSE_S = 7.0
"""Between two things that a client does: all processes together take less than a third of one core."""
SAMPLES = 120


def run(folder: Path, library: Path, monkeypatch: pytest.MonkeyPatch, *, seconds: float, pause_s: float) -> None:
    told = folder / "told"
    told.mkdir()
    monkeypatch.setenv(FOLDER_VARIABLE, str(told))
    agents = [AgentSettings(name, module="tests.support.soaked_agent") for name in PCS]
    with LoopbackFleet(folder / "fleet", agents, console="tests.support.soaked_console") as fleet:
        model = fleet.admin.add_library(library).model_id
        fleet.deploy(
            wire.DeployRequest(model=model, stages=2, context=512, streams=8, numerics="exact", engine="paged")
        )
        asked = [*questions(), LONG]
        service = served(fleet)
        asyncio.run(service.ask_alone(asked))
        watch = Watch(fleet, PCS)
        before = watch.settle(nothing_cached)
        with watch.sampled(seconds / SAMPLES) as samples:
            record = asyncio.run(soak(service, asked, seconds=seconds, pause_s=pause_s))
            share = samples.core_share
        print(f"{record.done} in {seconds:.0f} s, {share:.2f} of a core, {samples.summary()}")
        assert not record.wrong
        watch.settle(more_than(before))
        assert not samples.grown()
        assert_calm(fleet)


def served(fleet: LoopbackFleet) -> Service:
    """Return where clients ask: with keys of people of their own, over TLS."""
    assert fleet.api_url.startswith("https")
    keys = [fleet.admin.create_key(f"client {number}").secret for number in range(4)]
    limited = fleet.admin.create_key("limited", limits=wire.Limits(streams=1)).secret
    tls = ssl.create_default_context(cafile=fleet.console_folder / "authority" / "authorities.pem")
    return Service(fleet.api_url, fleet.model, keys, limited, tls)


def assert_calm(fleet: LoopbackFleet) -> None:
    """Nothing failed on the way, and nothing waits."""
    view = fleet.admin.status().pipelines[0]
    assert (view.running, view.queued, view.kept) == (0, 0, 0)
    assert (view.state, view.epoch) == ("ready", 1), "no stage was lost"
    assert all(view.endings.get(ending) for ending in ("stop", "length", "cancelled")), view.endings
    assert "error" not in view.endings, fleet.log_tail("console", 40)


def make_toy(folder: Path) -> Path:
    spelling_library(folder / "library", template=TEMPLATE)
    return folder / "library"


@pytest.mark.timeout(SOAK_S + 300)
def test_sixteen_clients_for_five_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, make_toy(tmp_path), monkeypatch, seconds=SOAK_S, pause_s=PAUSE_S)


@pytest.mark.slow
@pytest.mark.timeout(SLOW_S + 300)
def test_sixteen_clients_for_two_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, make_toy(tmp_path), monkeypatch, seconds=SLOW_S, pause_s=PAUSE_S)


@pytest.mark.slow
@pytest.mark.timeout(SLOW_S + 600)
def test_sixteen_clients_of_the_real_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smollm2_library: Path
) -> None:
    run(tmp_path, smollm2_library, monkeypatch, seconds=SLOW_S / 4, pause_s=4 * PAUSE_S)


@pytest.mark.parametrize(
    ("resident", "flat"),
    [([100] * 40, True), ([50] * 10 + [100] * 30, True), (list(range(100, 140)), False), ([100, 100], True)],
)
def test_growth_is_seen_behind_the_warm_up(resident: Sequence[int], flat: bool) -> None:
    assert (not growth(resident)) == flat
