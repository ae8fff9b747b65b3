"""Times, sizes and rates as people read them. No Qt here."""

from __future__ import annotations

import time

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
ZERO = "0 MB"
"""What `size_text` says of nothing where a dash would mean that it is not known."""


def age_text(seconds: float) -> str:
    """Say how long something is or lasted, in one or two units."""
    whole = max(0, round(seconds))
    if whole < 2 * MINUTE_S:
        return f"{whole} s"
    if whole < 2 * HOUR_S:
        return f"{whole // MINUTE_S} min"
    if whole < 2 * DAY_S:
        return f"{whole // HOUR_S} h"
    return f"{whole // DAY_S} days"


def ago_text(at_s: float | None, now_s: float) -> str:
    """Say how long ago a Unix time was; a time that is not known is a dash."""
    return "-" if at_s is None else f"{age_text(now_s - at_s)} ago"


def moment_text(at_s: float | None) -> str:
    """Say a Unix time as a date and time of this PC's clock; a dash for none."""
    return "-" if at_s is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))


def size_text(size_bytes: float, none: str = "-") -> str:
    """Say a size in powers of ten, as the service says them in its sentences; `none` for none."""
    if size_bytes <= 0:
        return none
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.1f} {unit}" if unit == "GB" else f"{size_bytes / scale:.0f} {unit}"
    return f"{size_bytes:.0f} B"
