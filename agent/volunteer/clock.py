"""The steady clock of the volunteer agent: it never steps, and it goes on while the PC sleeps."""

from __future__ import annotations

import sys
import time
from typing import Any

_MAC, _OTHERS = ("CLOCK_MONOTONIC", "CLOCK_UPTIME_RAW"), ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC")
"""The clock that goes on while the PC sleeps, and the one that stops: the same name means either, by the system.

`time.monotonic` is the one that stops. Manual page: clock_gettime(3) of macOS, clock_gettime(2) of Linux.
"""


class SystemClock:
    """The clocks of one system; the arguments are for tests. Any thread.

    A steady clock that stopped in sleep would make a pause of one hour last three days over a weekend.
    """

    def __init__(self, platform: str = sys.platform, clocks: Any = time) -> None:
        goes_on, stops = _MAC if platform == "darwin" else _OTHERS
        self._clocks = clocks
        self._goes_on: int | None = getattr(clocks, goes_on, None)
        self._stops: int | None = getattr(clocks, stops, None)

    def steady_s(self) -> float:
        """Return seconds since some moment. Windows has neither clock, and its plain one goes on in sleep."""
        return float(self._clocks.monotonic() if self._goes_on is None else self._clocks.clock_gettime(self._goes_on))

    def asleep_s(self) -> float:
        """Return how long this PC has slept since it was switched on; 0 where the system has not both clocks."""
        if self._goes_on is None or self._stops is None:
            return 0.0
        return float(self._clocks.clock_gettime(self._goes_on) - self._clocks.clock_gettime(self._stops))


SYSTEM_CLOCK = SystemClock()
steady_s = SYSTEM_CLOCK.steady_s
