from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.volunteer.facts import Power
from agent.volunteer.probes.base import Absent, Unreadable
from agent.volunteer.probes.windows.api import PowerStatus, SessionStatus
from agent.volunteer.probes.windows.counters import GpuEngines, adapter_of, busiest_percent, pid_of
from agent.volunteer.probes.windows.network import NetworkCost
from agent.volunteer.probes.windows.sources import (
    LARGEST_IDLE_MS,
    TICK_SPAN,
    LastInput,
    Notifications,
    PowerState,
    SessionState,
    idle_ms,
)  # fmt: skip
from agent.volunteer.probes.windows.window import DISPLAY_STATE, DisplayState, event_of


class FakeWindows:
    """Windows as a test wants it."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        return lambda: self.answers[name]


@given(st.integers(0, TICK_SPAN - 1), st.integers(0, LARGEST_IDLE_MS))
def test_idle_time_survives_the_wrap_of_the_ticks(now: int, idle: int) -> None:
    assert idle_ms(now, (now - idle) % TICK_SPAN) == idle


@given(st.integers(0, TICK_SPAN - 1), st.integers(1, 10_000))
def test_input_ahead_of_the_clock_is_no_idle_time(now: int, ahead: int) -> None:
    assert idle_ms(now, (now + ahead) % TICK_SPAN) == 0


def test_the_last_input_is_seconds_ago() -> None:
    windows: Any = FakeWindows(last_input_tick=5_000, tick=12_500)
    assert LastInput(windows).read() == {"idle_s": 7.5}


@pytest.mark.parametrize(
    ("state", "fullscreen", "presentation"),
    [(1, False, False), (2, True, False), (3, True, False), (4, False, True), (5, False, False), (6, False, False),
     (7, True, False)],
)  # fmt: skip
def test_the_shell_knows_games_and_presentations(state: int, fullscreen: bool, presentation: bool) -> None:
    windows: Any = FakeWindows(notification_state=state)
    assert Notifications(windows).read() == {"fullscreen": fullscreen, "presentation": presentation}


@pytest.mark.parametrize("state", [0, 8, -1])
def test_a_state_nobody_knows_is_unreadable(state: int) -> None:
    windows: Any = FakeWindows(notification_state=state)
    with pytest.raises(Unreadable):
        Notifications(windows).read()


@pytest.mark.parametrize(
    ("remote", "state", "flags", "seen"),
    [
        (False, 0, 1, {"remote_session": False, "locked": False, "session_switched": False}),
        (False, 0, 0, {"remote_session": False, "locked": True, "session_switched": False}),
        (True, 0, 1, {"remote_session": True, "locked": False, "session_switched": False}),
        (False, 3, 1, {"remote_session": True, "locked": False, "session_switched": False}),
        (False, 4, 0, {"remote_session": False, "locked": True, "session_switched": True}),
        (False, 0, -1, {"remote_session": False, "session_switched": False}),
    ],
)
def test_a_session_is_locked_remote_or_behind_another(remote: bool, state: int, flags: int, seen: Any) -> None:
    windows: Any = FakeWindows(is_remote=remote, session=SessionStatus(state, flags))
    assert SessionState(windows).read() == seen


@pytest.mark.parametrize(
    ("status", "power"),
    [
        (PowerStatus(1, 128, 255, 0), Power(True, False)),
        (PowerStatus(255, 128, 255, 0), Power(True, False)),
        (PowerStatus(1, 8, 60, 0), Power(True, True, 60)),
        (PowerStatus(0, 1, 90, 1), Power(False, True, 90, saver=True)),
        (PowerStatus(255, 255, 255, 0), Power(None, True)),
        (PowerStatus(255, 1, 120, 0), Power(None, True)),
        (PowerStatus(1, 255, 50, 255), Power(True, True, 50)),
    ],
)
def test_power_that_is_unknown_stays_unknown_unless_there_is_no_battery(status: PowerStatus, power: Power) -> None:
    windows: Any = FakeWindows(power=status)
    assert PowerState(windows).read() == {"power": power}


@pytest.mark.parametrize(
    ("message", "wparam", "event"),
    [
        (0x2B1, 7, "locked"), (0x2B1, 8, "unlocked"), (0x2B1, 1, "session"), (0x2B1, 3, "session"),
        (0x218, 4, "suspending"), (0x218, 7, "resumed"), (0x218, 0x12, "resumed"), (0x218, 0xA, None),
        (0x16, 1, "shutting_down"), (0x16, 0, None), (0x11, 0, None), (0x400, 1, None),
    ],
)  # fmt: skip
def test_window_messages_have_a_meaning(message: int, wparam: int, event: str | None) -> None:
    assert event_of(message, wparam) == event


def setting(guid: uuid.UUID, state: int) -> bytes:
    return guid.bytes_le + struct.pack("<II", 4, state)


def test_the_console_display_is_off_when_windows_said_so() -> None:
    displays = DisplayState()
    with pytest.raises(Unreadable):
        displays.read()
    displays.take(setting(DISPLAY_STATE, 0))
    assert displays.read() == {"displays_off": True}
    displays.take(setting(uuid.uuid4(), 1))
    displays.take(b"short")
    assert displays.read() == {"displays_off": True}
    displays.take(setting(DISPLAY_STATE, 2))
    assert displays.read() == {"displays_off": False}


@pytest.mark.parametrize(
    ("flags", "metered"), [(1, False), (2, True), (4, True), (1 | 0x10000, True), (1 | 0x20000, False)]
)
def test_a_network_costs_by_the_byte(flags: int, metered: bool) -> None:
    assert NetworkCost(lambda: flags).read() == {"metered": metered}


def test_a_network_without_a_price_is_unknown() -> None:
    with pytest.raises(Unreadable):
        NetworkCost(lambda: 0).read()


ENGINE = "pid_{pid}_luid_0x00000000_0x0000D1C5_phys_0_eng_{engine}_engtype_3D"


def engine(pid: int, number: int = 0) -> str:
    return ENGINE.format(pid=pid, engine=number)


def test_instances_name_process_and_adapter() -> None:
    assert pid_of(engine(4711)) == 4711
    assert adapter_of(engine(1)) == "000000000000d1c5"
    assert (pid_of("_Total"), adapter_of("_Total")) == (None, "")


def test_the_busiest_engine_counts_without_our_own_work() -> None:
    engines = {engine(1): 10.0, engine(2): 15.0, engine(2, 3): 20.0, engine(9): 70.0, engine(3): -1.0}
    assert busiest_percent(engines, frozenset({9})) == 25.0
    assert busiest_percent(engines, frozenset()) == 95.0
    assert busiest_percent({engine(1): 300.0}, frozenset()) == 100.0
    assert busiest_percent({}, frozenset()) == 0.0


class FakeCounters:
    def __init__(self, *rounds: dict[str, float]) -> None:
        self.rounds = list(rounds)
        self.closed = False

    def read(self) -> dict[str, float]:
        return self.rounds.pop(0)

    def close(self) -> None:
        self.closed = True


def test_a_rate_needs_two_samples() -> None:
    counters = FakeCounters({}, {engine(1): 40.0})
    source = GpuEngines(lambda: counters, frozenset)
    with pytest.raises(Unreadable, match="two reads"):
        source.read()
    assert source.read() == {"other_gpu_percent": 40.0}
    source.finish()
    assert counters.closed


def test_a_windows_that_counts_no_gpu_is_absent() -> None:
    def make() -> FakeCounters:
        raise Absent("Windows counts no GPU")

    source = GpuEngines(make)
    with pytest.raises(Absent):
        source.read()
    source.finish()
