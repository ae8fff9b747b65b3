from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import pytest

from agent.volunteer.clock import SystemClock, steady_s

AWAKE_S, SLEPT_S = 100.0, 3600.0


def system(**clocks: float) -> SimpleNamespace:
    """A `time` module with these clocks; `monotonic` stops in sleep."""
    numbers = {name: number for number, name in enumerate(clocks)}
    values = list(clocks.values())
    return SimpleNamespace(monotonic=lambda: AWAKE_S, clock_gettime=lambda number: values[number], **numbers)


LINUX = system(CLOCK_REALTIME=0.0, CLOCK_MONOTONIC=AWAKE_S, CLOCK_BOOTTIME=AWAKE_S + SLEPT_S)
MAC = system(CLOCK_REALTIME=0.0, CLOCK_UPTIME_RAW=AWAKE_S, CLOCK_MONOTONIC=AWAKE_S + SLEPT_S)


@pytest.mark.parametrize(("platform", "clocks"), [("linux", LINUX), ("darwin", MAC)])
def test_the_steady_clock_goes_on_in_sleep_and_the_sleep_is_counted(platform: str, clocks: SimpleNamespace) -> None:
    clock = SystemClock(platform, clocks)
    assert clock.steady_s() == AWAKE_S + SLEPT_S
    assert clock.asleep_s() == SLEPT_S


@pytest.mark.parametrize(("platform", "clocks"), [("linux", system(CLOCK_MONOTONIC=5.0)), ("win32", system())])
def test_a_system_without_both_clocks_has_the_plain_one(platform: str, clocks: SimpleNamespace) -> None:
    clock = SystemClock(platform, clocks)
    assert (clock.steady_s(), clock.asleep_s()) == (AWAKE_S, 0.0)


def test_a_mac_too_old_to_tell_its_sleep_still_has_a_clock_that_goes_on() -> None:
    clock = SystemClock("darwin", system(CLOCK_MONOTONIC=7.0))
    assert (clock.steady_s(), clock.asleep_s()) == (7.0, 0.0)


def test_this_systems_clock_goes_forward_and_never_behind_the_plain_one() -> None:
    first = steady_s()
    assert steady_s() >= first
    if sys.platform == "linux":
        assert steady_s() >= time.monotonic() - 1
        assert SystemClock().asleep_s() >= -1
