"""Weekly schedules: when this PC may work, in its local time. Pure.

People write windows: weekdays, a beginning and an end. `Hours` is the same thing made plain: minutes of the week,
Monday 00:00 being 0, as ranges in order that neither touch nor overlap. A window whose end is before its beginning goes
over midnight and belongs to the day it begins on; one whose end equals its beginning is the whole day. No window at all
means never.

Daylight saving needs no rule of its own: what counts is what the clock on the wall shows. An hour that is skipped is
not there to be used, one that comes twice is used twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from shard_export.library.counts import counted

DAY_MIN = 24 * 60
WEEK_MIN = 7 * DAY_MIN
Hours = tuple[tuple[int, int], ...]
"""Ranges `first <= minute < last` of the week."""
ALWAYS: Hours = ((0, WEEK_MIN),)
NEVER: Hours = ()
MAX_WINDOWS = 200
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class ScheduleError(ValueError):
    """A schedule cannot be read; the sentence says which part."""


class Window(msgspec.Struct, frozen=True, array_like=True):
    """Open on `days` (0 is Monday) from `start_min` to `end_min` of the day."""

    days: tuple[int, ...]
    start_min: int
    end_min: int


def hours_of(windows: Iterable[Window]) -> Hours:
    """Return when any of the windows is open. Raises ScheduleError."""
    ranges: list[tuple[int, int]] = []
    for window in windows:
        if not all(0 <= day < 7 for day in window.days):
            raise ScheduleError("A weekday of the schedule is not between 0 (Monday) and 6.")
        if not (0 <= window.start_min <= DAY_MIN and 0 <= window.end_min <= DAY_MIN):
            raise ScheduleError("A time of the schedule is not between 00:00 and 24:00.")
        length = (window.end_min - window.start_min) % DAY_MIN or DAY_MIN
        ranges += [(day * DAY_MIN + window.start_min, length) for day in window.days]
    return _joined((start, start + length) for start, length in ranges)


def checked_hours(hours: Hours) -> Hours:
    """Return hours that came from elsewhere, in order. Raises ScheduleError."""
    if len(hours) > MAX_WINDOWS:
        raise ScheduleError(f"A schedule has {counted(len(hours), 'window')}, and {MAX_WINDOWS} at most are possible.")
    if any(not 0 <= first < last <= WEEK_MIN for first, last in hours):
        raise ScheduleError("A schedule has a window that does not lie in the week.")
    return _joined(hours)


def intersect(one: Hours, other: Hours) -> Hours:
    """Return when both are open."""
    pairs = ((max(a, c), min(b, d)) for a, b in one for c, d in other)
    return _joined((first, last) for first, last in pairs if first < last)


def minute_of_week(unix_s: float, utc_offset_s: float) -> float:
    """Return the minute of the local week, Monday 00:00 being 0."""
    # 1 January 1970 was a Thursday.
    return ((unix_s + utc_offset_s) / 60 + 3 * DAY_MIN) % WEEK_MIN


def is_open(hours: Hours, minute: float) -> bool:
    """Say whether a minute of the week lies in the hours."""
    return any(first <= minute < last for first, last in hours)


def opens_in_min(hours: Hours, minute: float) -> float | None:
    """Return the minutes until the hours open, 0 if they are open, None if they never are."""
    if is_open(hours, minute):
        return 0.0
    return min(((first - minute) % WEEK_MIN for first, _ in hours), default=None)


def _joined(ranges: Iterable[tuple[int, int]]) -> Hours:
    """Bring ranges into the week, in order and as few as possible."""
    inside: list[tuple[int, int]] = []
    for first, last in ranges:
        inside += [(first, last)] if last <= WEEK_MIN else [(first, WEEK_MIN), (0, last - WEEK_MIN)]
    joined: list[tuple[int, int]] = []
    for first, last in sorted(inside):
        if first == last:
            continue
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(joined)


_LINE = re.compile(r"(?P<days>[A-Za-z, -]+?)\s+(?P<from>\d{1,2}:\d{2})\s*-\s*(?P<to>\d{1,2}:\d{2})")


def parse_schedule(text: str) -> Hours:
    """Read `Mon-Fri 20:00-06:00; Sat,Sun 00:00-24:00`, `always` or `never`. Raises ScheduleError."""
    plain = text.strip()
    if plain.lower() in ("always", "never"):
        return ALWAYS if plain.lower() == "always" else NEVER
    parts = [part.strip() for part in plain.split(";") if part.strip()]
    if not 0 < len(parts) <= MAX_WINDOWS:
        raise ScheduleError("Write a schedule like 'Mon-Fri 20:00-06:00; Sat,Sun 00:00-24:00', 'always' or 'never'.")
    return hours_of(_parse_window(part) for part in parts)


def _parse_window(text: str) -> Window:
    match = _LINE.fullmatch(text)
    if match is None:
        raise ScheduleError(f"{text[:60]!r} is no window of a schedule; write one like 'Mon-Fri 20:00-06:00'.")
    days: list[int] = []
    for part in match["days"].split(","):
        first, _, last = part.partition("-")
        start = _day(first)
        days += [(start + step) % 7 for step in range((_day(last) - start) % 7 + 1)] if last.strip() else [start]
    return Window(tuple(days), _minute(match["from"]), _minute(match["to"]))


def _day(text: str) -> int:
    short = text.strip()[:3].title()
    if short not in DAYS:
        raise ScheduleError(f"{text.strip()!r} is no weekday; write {', '.join(DAYS)}.")
    return DAYS.index(short)


def _minute(text: str) -> int:
    hour, minute = (int(part) for part in text.split(":"))
    if minute > 59 or hour * 60 + minute > DAY_MIN:
        raise ScheduleError(f"{text} is no time of the day.")
    return hour * 60 + minute


def format_schedule(hours: Hours) -> str:
    """Write hours so that `parse_schedule` reads them."""
    if not hours or hours == ALWAYS:
        return "always" if hours else "never"
    days_of: dict[tuple[int, int], list[int]] = {}
    for day, first, last in _windows(hours):
        days_of.setdefault((first, last), []).append(day)
    lines = sorted((days, times) for times, days in days_of.items())
    return "; ".join(f"{','.join(DAYS[day] for day in days)} {_time(a)}-{_time(b)}" for days, (a, b) in lines)


def _windows(hours: Hours) -> list[tuple[int, int, int]]:
    """Cut hours into windows of one day each: (day, start, end)."""
    windows: list[tuple[int, int, int]] = []
    for first, last in hours:
        days = range(first // DAY_MIN, (last - 1) // DAY_MIN + 1)
        windows += [(day, max(first - day * DAY_MIN, 0), min(last - day * DAY_MIN, DAY_MIN)) for day in days]
    return windows


def _time(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"
