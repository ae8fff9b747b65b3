"""What a client may ask of the agent, with a volunteer that is real and a life that the test plays."""

from __future__ import annotations

import datetime as dt
import errno
import logging
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.control import protocol as wire
from agent.control.errors import OrderRefused
from agent.control.log_orders import LogLevels, SetLogLevel
from agent.control.status import PolicyRow, Status
from agent.history import History
from agent.logs.levels import LEVELS_HERE
from agent.logs.types import LoggerLevel
from agent.orders import Orders
from agent.reporting import status_of
from agent.stage.gate import Gates
from agent.volunteer.clock import steady_s
from agent.volunteer.documents import PolicyBody
from agent.volunteer.duty import Volunteer
from agent.volunteer.facts import Memory
from agent.volunteer.keeping import PolicyKeeper
from agent.volunteer.policy import Wishes
from agent.volunteer.probes.board import Row
from agent.volunteer.states import Pause, Resume
from tests.unit.agent.test_reporting import make_parts

EVENING = dt.datetime(2026, 3, 4, 22, 0, tzinfo=dt.UTC)


@dataclass
class Life:
    volunteer: Volunteer
    calls: list[str] = field(default_factory=list)

    def status(self) -> Status:
        from agent.link.messages import Device

        return status_of(make_parts(merged=self.volunteer.merged, devices=[Device("CPU", "A processor", 1, [])]))

    def probes(self) -> list[Row]:
        memory = Memory(8 << 30, 4 << 30)
        return [
            Row("idle_s", "x11", 4.0, "", 0.5),
            Row("locked", "logind", None, "not told", 0.5),
            Row("memory", "kernel", memory, "", 0.5),
        ]

    async def enrol(self, invite: str, name: str, tell: Callable[[str, str], None]) -> str:
        tell("pending", "ABCD-EFGH-K")
        return f"Enrolled with {invite}."

    async def check_updates(self, *, now: bool) -> str:
        return f"Asked, now: {now}."

    async def cancel_enrolment(self) -> str:
        self.calls.append("cancel_enrolment")
        return "This PC no longer waits."

    async def leave(self) -> None:
        self.calls.append("leave")

    def stop(self) -> None:
        self.calls.append("stop")


@dataclass
class Asked:
    orders: Orders
    volunteer: Volunteer
    life: Life
    told: list[wire.Told] = field(default_factory=list)

    async def ask(self, order: wire.Order) -> Any:
        return await self.orders.carry_out(order, self.told.append)

    @property
    def heard(self) -> list[Any]:
        return self.volunteer._orders


@pytest.fixture
async def asked(tmp_path: Path) -> Asked:
    calls = list[str]()
    volunteer = Volunteer(
        PolicyKeeper(tmp_path, now_s=time.time()),
        Gates(tmp_path / "gates"),
        None,
        on_devices=lambda: calls.append("devices"),
    )
    life = Life(volunteer, calls)
    history = History(tmp_path / "h.sqlite", 30.0)
    return Asked(Orders(tmp_path, volunteer, history, life, now=lambda: EVENING), volunteer, life)


async def test_pauses_of_every_kind(asked: Asked) -> None:
    assert (await asked.ask(wire.Pause(1, "resumed"))).said == "Paused until you resume."
    assert (await asked.ask(wire.Pause(2, "time", 900.0))).said == "Paused until Wednesday 22:15."
    assert (await asked.ask(wire.Pause(3, "tomorrow"))).said == "Paused until Thursday 04:00."
    first, second, third = asked.heard
    assert first == Pause(None)
    assert second.until_s == pytest.approx(steady_s() + 900, abs=30)
    assert third.until_s == pytest.approx(steady_s() + 6 * 3600, abs=30)


@pytest.mark.parametrize("order", [wire.Pause(1, "resumed"), wire.Pause(1, "time", 900.0)], ids=["open", "timed"])
async def test_a_pause_that_cannot_be_kept_holds_and_says_for_how_long(
    asked: Asked, order: wire.Pause, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("agent.volunteer.keeping.write_private", fail)
    with pytest.raises(OrderRefused, match=r"is paused, but only until its agent ends.*free some space"):
        await asked.ask(order)
    assert [type(heard) for heard in asked.heard] == [Pause]


@pytest.mark.parametrize("for_s", [0.0, 59.0, 1e9, float("nan"), float("inf"), -5.0])
async def test_a_pause_of_a_strange_length_is_refused(asked: Asked, for_s: float) -> None:
    with pytest.raises(OrderRefused, match="between a minute and seven days") as caught:
        await asked.ask(wire.Pause(1, "time", for_s))
    assert caught.value.code == "bad_value"
    assert asked.heard == []


async def test_levels_of_logs_are_told_and_changed_and_those_of_libraries_are_not(asked: Asked) -> None:
    try:
        told = await asked.ask(SetLogLevel(1))
        assert told == LogLevels(1, [LoggerLevel("all", "INFO")])
        changed = await asked.ask(SetLogLevel(2, "agent.orders", "DEBUG", 60.0))
        assert [(one.logger, one.level) for one in changed.levels] == [("all", "INFO"), ("agent.orders", "DEBUG")]
        with pytest.raises(OrderRefused, match="no logger of Fallow's") as caught:
            await asked.ask(SetLogLevel(3, "websockets", "DEBUG"))
        assert caught.value.code == "bad_value"
    finally:
        LEVELS_HERE.end()


async def test_resume_and_release_reach_the_volunteer(asked: Asked) -> None:
    await asked.ask(wire.Resume(1))
    await asked.ask(wire.Release(2))
    resumed, released = asked.heard
    assert resumed == Resume()
    assert isinstance(released, Pause)  # what giving back means on a machine nobody sits at


async def test_a_setting_is_kept_and_says_when_something_is_tighter(asked: Asked) -> None:
    assert (await asked.ask(wire.ChangeSetting(1, "idle_start_s", 900.0))).said == "Kept."
    assert "built-in is tighter" in (await asked.ask(wire.ChangeSetting(2, "idle_start_s", 5.0))).said
    with pytest.raises(OrderRefused, match="no setting") as unknown:
        await asked.ask(wire.ChangeSetting(3, "colour", "red"))
    with pytest.raises(OrderRefused) as bad:
        await asked.ask(wire.ChangeSetting(4, "idle_start_s", float("nan")))
    assert (unknown.value.code, bad.value.code) == ("unknown", "bad_value")
    (row,) = [row for row in asked.life.status().policy if row.field == "idle_start_s"]
    assert isinstance(row, PolicyRow)
    assert row.asked["employee"] == 5.0


async def test_a_device_is_switched_and_the_console_is_told(asked: Asked) -> None:
    await asked.ask(wire.SwitchDevice(1, "CPU", on=False))
    assert not asked.life.status().devices[0].on
    await asked.ask(wire.SwitchDevice(2, "CPU", on=True))
    assert asked.life.status().devices[0].on
    assert asked.life.calls == ["devices", "devices"]
    with pytest.raises(OrderRefused, match="no device"):
        await asked.ask(wire.SwitchDevice(3, "GPU.7", on=True))


async def test_a_device_the_administrator_forbids_is_not_said_to_be_used(asked: Asked) -> None:
    keeper = asked.volunteer.keeper
    keeper._admin = PolicyBody(1, "fleet", "pc", 7, 0.0, math.inf, Wishes(devices_off=frozenset({"CPU"})))
    asked.volunteer.policy_changed()
    assert asked.life.calls == ["devices"]
    said = (await asked.ask(wire.SwitchDevice(1, "CPU", on=True))).said
    assert said == "Kept, but the administrator does not let CPU be used."
    assert (await asked.ask(wire.SwitchDevice(2, "CPU", on=False))).said == "CPU is not used any more."
    keeper._admin = None
    await asked.ask(wire.ChangeSetting(3, "devices", ["GPU"]))
    said = (await asked.ask(wire.SwitchDevice(4, "CPU", on=True))).said
    assert said == "Kept, but your other settings do not let CPU be used."


async def test_what_the_policy_forbids_is_refused(asked: Asked) -> None:
    asked.volunteer.keeper.change("quit_allowed", value=False)
    asked.volunteer.keeper.change("contribute_now", value=False)
    asked.volunteer.policy_changed()
    for order in (wire.Quit(1), wire.ContributeNow(2)):
        with pytest.raises(OrderRefused) as caught:
            await asked.ask(order)
        assert caught.value.code == "not_allowed"


async def test_enrolling_tells_the_code_and_probes_tell_what_they_do_not_know(asked: Asked) -> None:
    assert (await asked.ask(wire.Enrol(9, "flw1x"))).said == "Enrolled with flw1x."
    assert asked.told == [wire.Told(9, "pending", "ABCD-EFGH-K")]
    answer = await asked.ask(wire.AskProbes(10))
    assert [(probe.name, probe.value) for probe in answer.probes] == [
        ("idle_s", "4.0"),
        ("locked", ""),
        ("memory", "total_bytes 8589934592, available_bytes 4294967296, low no, pressure_percent ?"),
    ]
    await asked.ask(wire.Leave(11))
    assert asked.life.calls == ["leave"]
    assert (await asked.ask(wire.QueryHistory(12, 0, 1e12))).rows == []


@pytest.mark.skipif(sys.platform == "win32", reason="the child is a shell script")
@pytest.mark.parametrize("out", ['{"findings": []}', "no JSON"])
async def test_what_the_doctor_says_beside_its_findings_is_logged(
    asked: Asked, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    child = tmp_path / "child"
    child.write_text(f"#!/bin/sh\necho 'The disk is full.' >&2\necho '{out}'\n")
    child.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(child))
    if out.startswith("{"):
        assert (await asked.ask(wire.RunDoctor(1))).findings == []
    else:
        with pytest.raises(OrderRefused, match="did not finish"):
            await asked.ask(wire.RunDoctor(1))
    assert "doctor: The disk is full." in caplog.messages


async def test_every_order_of_the_protocol_can_be_carried_out(asked: Asked) -> None:
    import typing

    assert set(Orders._ways) | {wire.Subscribe} == set(typing.get_args(wire.Order))
