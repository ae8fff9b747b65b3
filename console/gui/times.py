"""Times, sizes and rates as people read them. No Qt here."""

from __future__ import annotations

import time

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


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


def size_text(size_bytes: float) -> str:
    """Say a size in GB or MB; a dash for none."""
    if size_bytes <= 0:
        return "-"
    if size_bytes >= 1 << 30:
        return f"{size_bytes / (1 << 30):.1f} GB"
    return f"{size_bytes / (1 << 20):.0f} MB"
