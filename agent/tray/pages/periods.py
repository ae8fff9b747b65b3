"""What the history shows: which hours or days, with empty ones in their place. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

from agent.control.protocol import HistoryRow

Period = Literal["day", "fortnight", "quarter"]
PERIODS: tuple[Period, ...] = ("day", "fortnight", "quarter")
LENGTH: dict[Period, int] = {"day": 24, "fortnight": 14, "quarter": 91}


def starts_of(period: Period, now_s: float) -> list[float]:
    """Return when each hour (`day`) or local day begins, oldest first, the current one last. Unix times."""
    local = time.localtime(now_s)
    if period == "day":
        begins = time.mktime((*local[:4], 0, 0, 0, 0, local.tm_isdst))
        return [begins - 3600.0 * back for back in reversed(range(LENGTH[period]))]
    # mktime brings days before the first of a month into order, and knows which of them had 23 or 25 hours.
    days = reversed(range(LENGTH[period]))
    return [time.mktime((local[0], local[1], local[2] - back, 0, 0, 0, 0, 0, -1)) for back in days]


def end_of(period: Period, last_start_s: float) -> float:
    """Return when the last of them ends, at the latest."""
    return last_start_s + (3600.0 if period == "day" else 25 * 3600.0)


def fill(rows: Sequence[HistoryRow], starts: Sequence[float]) -> list[HistoryRow]:
    """Return one row for each start: the sum of what falls into it, empty where nothing does."""
    filled = [HistoryRow(start, 0.0, 0, 0.0) for start in starts]
    for row in rows:
        place = _place(row.start_s, starts)
        if place >= 0:
            sum_ = filled[place]
            filled[place] = HistoryRow(
                sum_.start_s, sum_.served_s + row.served_s, sum_.tokens + row.tokens, sum_.energy_wh + row.energy_wh
            )
    return filled


def _place(start_s: float, starts: Sequence[float]) -> int:
    # A row may begin a second off: its clock is the service's.
    return next((place for place in reversed(range(len(starts))) if start_s >= starts[place] - 1), -1)
