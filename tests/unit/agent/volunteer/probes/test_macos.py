from __future__ import annotations

import math
from typing import Any

import pytest

from agent.volunteer.facts import Power
from agent.volunteer.probes.base import Unreadable
from agent.volunteer.probes.macos import MacIdle, MacPower, MacSession, PowerSource


class FakeMac:
    """macOS as a test wants it."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        return lambda: self.answers[name]


def mac(**answers: Any) -> Any:
    return FakeMac(**answers)


@pytest.mark.parametrize("idle_s", [-1.0, math.nan, math.inf, 1e300])
def test_an_absurd_idle_time_is_unreadable(idle_s: float) -> None:
    assert MacIdle(mac(idle_s=3.5)).read() == {"idle_s": 3.5}
    with pytest.raises(Unreadable):
        MacIdle(mac(idle_s=idle_s)).read()


@pytest.mark.parametrize(
    ("session", "seen"),
    [
        ({"on_console": True}, {"locked": False, "session_switched": False}),
        ({"on_console": True, "locked": True}, {"locked": True, "session_switched": False}),
        ({"on_console": False}, {"locked": False, "session_switched": True}),
        ({}, {"session_switched": True}),
    ],
)
def test_a_session_is_in_front_or_not(session: Any, seen: Any) -> None:
    found = MacSession(mac(session=session, is_display_asleep=True)).read()
    assert found == {"displays_off": True, **seen}


@pytest.mark.parametrize(
    ("sources", "power"),
    [
        ([], Power(True, False)),
        ([PowerSource("UPS", "Battery Power", 90.0)], Power(True, False)),
        ([PowerSource("InternalBattery", "Battery Power", 41.0)], Power(False, True, 41.0)),
        ([PowerSource("UPS", "AC Power", 90.0), PowerSource("InternalBattery", "AC Power", 80.0)],
         Power(True, True, 80.0)),
        ([PowerSource("InternalBattery", "Off Line", None)], Power(None, True)),
    ],
)  # fmt: skip
def test_only_the_internal_battery_counts(sources: list[PowerSource], power: Power) -> None:
    assert MacPower(mac(power_sources=sources)).read() == {"power": power}
