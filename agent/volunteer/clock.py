"""The steady clock of the volunteer agent: it never steps, and it goes on while the PC sleeps."""

from __future__ import annotations

import time

_BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def steady_s() -> float:
    """Return seconds since some moment. Any thread.

    Linux stops CLOCK_MONOTONIC while the PC sleeps, so a pause of one hour would last three days over a weekend.
    """
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)
