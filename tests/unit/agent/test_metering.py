"""What a PC contributed and when it rests is counted while the agent runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from agent.history import Meter
from agent.metering import Metering
from agent.volunteer.states import Phase
from tests.support.agents import always_here
from tests.support.hand_clock import HandClock
from tests.support.patience import until


async def test_what_is_learnt_of_the_week_is_kept_and_told_only_if_the_policy_lets_it(tmp_path: Path) -> None:
    metering, volunteer, told = Metering(tmp_path, 30.0), always_here(tmp_path), list[int]()
    for minute in range(25 * 60):
        await metering.learn(volunteer, lambda: told.append(0), 1_767_571_200.0 + minute * 60)
    assert (tmp_path / "availability.json").exists()
    assert volunteer.resting is not None
    assert volunteer.resting.blocks == []
    assert told == [0]
    volunteer.keeper.change("share_availability", True)
    volunteer.policy_changed()
    await metering.learn(volunteer, lambda: told.append(1), 1_767_571_200.0 + 26 * 3600)
    assert len(volunteer.resting.blocks) == 56
    assert told == [0, 1]


async def test_hours_in_which_a_pc_is_held_are_never_booked_as_served(tmp_path: Path) -> None:
    metering, volunteer, clock = Metering(tmp_path, 30.0), always_here(tmp_path), HandClock()
    metering._meter = Meter(metering.history, clock)
    gate = volunteer.gates.make()
    for phase, minutes in ((Phase.HELD, 600), (Phase.SERVING, 2), (Phase.PAUSED, 5)):
        volunteer.state = msgspec.structs.replace(volunteer.state, phase=phase)
        for _ in range(minutes):
            clock.now_s += 60.0
            metering.count(volunteer, lambda: None)
    volunteer.gates.remove(gate)
    assert metering.history.contribution().total_h == pytest.approx(2 / 60)


async def test_nothing_waits_for_the_disk_on_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metering, volunteer, saving = Metering(tmp_path, 30.0), always_here(tmp_path), list[int]()
    gate = volunteer.gates.make()
    metering.end(gate)
    monkeypatch.setattr(metering.history, "save", lambda: saving.append(threading.get_ident()))
    monkeypatch.setattr("agent.metering.EVERY_S", 0.0)
    counting = asyncio.create_task(metering.run(volunteer, lambda: None, lambda: None))
    await until(lambda: bool(saving))
    assert threading.get_ident() not in saving
    counting.cancel()
    await asyncio.gather(counting, return_exceptions=True)
    volunteer.gates.remove(gate)
    assert not (tmp_path / "history.sqlite").exists()


async def test_counting_goes_on_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected_logs: Callable[..., None]
) -> None:
    expected_logs("agent.metering", "failed")
    metering, volunteer, looks = Metering(tmp_path, 30.0), always_here(tmp_path), list[int]()

    def fail_first(*_: object) -> None:
        looks.append(0)
        if len(looks) == 1:
            raise OSError("Input/output error")

    monkeypatch.setattr(metering, "count", fail_first)
    monkeypatch.setattr("agent.metering.EVERY_S", 0.0)
    counting = asyncio.create_task(metering.run(volunteer, lambda: None, lambda: None))
    await until(lambda: len(looks) > 1)
    counting.cancel()
    await asyncio.gather(counting, return_exceptions=True)


async def test_what_may_not_be_learnt_and_cannot_be_deleted_is_said_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expected_logs: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected_logs("agent.volunteer.recording", "delete it")
    metering, volunteer = Metering(tmp_path, 30.0), always_here(tmp_path)
    volunteer.keeper.change("learn_availability", False)
    volunteer.policy_changed()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    for minute in range(3):
        await metering.learn(volunteer, lambda: None, 1_767_571_200.0 + 60 * minute)
    assert len(caplog.records) == 1
    monkeypatch.undo()
