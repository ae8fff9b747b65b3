"""Checking what a party asks for, and turning rows into the plain values that programs and people write. Pure."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from agent.volunteer.errors import WishRefused
from agent.volunteer.policy import BUILT_IN, MAX_PROGRAM_LETTERS, MAX_PROGRAMS, ROWS, Row, Wishes
from agent.volunteer.schedule import ScheduleError, checked_hours, format_schedule, parse_schedule
from shard_export.library.counts import counted

PlainValue = bool | int | float | str | list[str] | None
"""A row's value on the wire and in files people read: schedules are text, sets are sorted lists, None is no wish."""

DEVICE_KINDS = BUILT_IN.devices
MAX_DEVICES_OFF = 64
_YES, _NO = ("yes", "on", "true"), ("no", "off", "false")
_UNITS: dict[str, dict[str, int]] = {
    "seconds": {"": 1, "s": 1, "min": 60, "h": 3600},
    "bytes": {"mb": 10**6, "mib": 2**20, "gb": 10**9, "gib": 2**30},
    "percent": {"": 1, "%": 1},
    "number": {"": 1},
}
"""By kind of row. Bytes need one: whoever writes 8 means gigabytes, and would get eight bytes."""
_EXAMPLES = {
    "seconds": "a time, such as 600, 10min or 2h",
    "bytes": "a size with its unit, such as 500MB or 8GiB",
    "percent": "a share, such as 60%",
    "number": "a number, such as 600",
}


def check_wishes(wishes: Wishes) -> Wishes:
    """Return the wishes in order, or raise WishRefused for the first row that holds something impossible."""
    values = {name: getattr(wishes, name) for name in ROWS}
    return Wishes(**{name: check_value(name, value) for name, value in values.items() if value is not None})


def check_value(name: str, value: Any) -> Any:
    """Return a row's value in order. Raises WishRefused."""
    row = ROWS.get(name)
    if row is None:
        raise WishRefused(f"There is no row {name[:40]!r} in the policy; its rows are: {', '.join(ROWS)}.")
    if row.kind == "switch":
        return value
    if row.kind == "schedule":
        try:
            return checked_hours(value)
        except ScheduleError as error:
            raise WishRefused(f"{name}: {error}") from None
    return _check_names(name, value) if row.kind == "names" else _check_number(name, row, value)


def _check_number(name: str, row: Row, value: float) -> float:
    if not math.isfinite(value) or not row.low <= value <= row.high:
        raise WishRefused(f"{name} has to lie between {row.low:g} and {row.high:g}, and {value:g} does not.")
    return value


def _check_names(name: str, names: frozenset[str]) -> frozenset[str]:
    limit = MAX_PROGRAMS if name == "exclusive_programs" else MAX_DEVICES_OFF
    if len(names) > limit:
        raise WishRefused(
            f"{name} has {counted(len(names), 'entry', 'entries')}, and {limit} at most are possible; leave some out."
        )
    if any(not 0 < len(one.strip()) <= MAX_PROGRAM_LETTERS or not one.isprintable() for one in names):
        raise WishRefused(f"{name} has an entry that is empty, longer than {MAX_PROGRAM_LETTERS} letters or no text.")
    if name == "devices" and not names <= DEVICE_KINDS:
        raise WishRefused(f"{name} may hold {', '.join(sorted(DEVICE_KINDS))} only.")
    return frozenset(one.strip() for one in names)


def to_plain(name: str, value: Any) -> PlainValue:
    """Return a row's value for programs and people; None stays None."""
    if value is None:
        return None
    if ROWS[name].kind == "schedule":
        return format_schedule(value)
    return sorted(value) if ROWS[name].kind == "names" else value


def from_plain(name: str, value: PlainValue) -> Any:
    """Read a plain value of a row. Raises WishRefused."""
    if value is None or name not in ROWS:
        return None if name in ROWS else check_value(name, value)
    kind = ROWS[name].kind
    expected: type | tuple[type, ...] = {"switch": bool, "names": list, "schedule": str}.get(kind, (int, float))
    if not isinstance(value, expected) or (kind != "switch" and isinstance(value, bool)):
        raise WishRefused(f"{name} is a {kind}, and {value!r:.60} is none.")
    if isinstance(value, str):
        return _parse_hours(name, value)
    if isinstance(value, list):
        if not all(isinstance(one, str) for one in value):
            raise WishRefused(f"{name} is a list of names, and something in it is no text.")
        return check_value(name, frozenset(value))
    return check_value(name, int(value) if kind == "bytes" and math.isfinite(value) else value)


def from_text(name: str, text: str) -> Any:
    """Read what a person types: `yes`, `10min`, `8GiB`, `CPU,GPU`, `Mon-Fri 20:00-06:00`; `default` is no wish.

    Raises WishRefused.
    """
    word = text.strip()
    kind = ROWS[name].kind if name in ROWS else "unknown"
    if word.lower() == "default" or kind == "unknown":
        return from_plain(name, None)
    if kind == "schedule":
        return _parse_hours(name, word)
    if kind == "names":
        return from_plain(name, [one.strip() for one in word.split(",") if one.strip()])
    if kind == "switch":
        if word.lower() not in _YES + _NO:
            raise WishRefused(f"{name} is yes or no, and {word[:40]!r} is neither.")
        return word.lower() in _YES
    return from_plain(name, _number(name, word, kind))


def with_value(wishes: Wishes, name: str, value: Any) -> Wishes:
    """Return the wishes with one row changed; `value` comes from `from_plain` or `from_text`."""
    return msgspec.structs.replace(wishes, **{name: value})


def _parse_hours(name: str, text: str) -> Any:
    try:
        return parse_schedule(text)
    except ScheduleError as error:
        raise WishRefused(f"{name}: {error}") from None


def _number(name: str, word: str, kind: str) -> float:
    digits = word.lower().rstrip("abcdefghijklmnopqrstuvwxyz% ")
    unit = word.lower()[len(digits) :].strip()
    try:
        return float(digits) * _UNITS[kind][unit]
    except (ValueError, KeyError):
        raise WishRefused(f"{name} is {_EXAMPLES[kind]}; {word[:40]!r} is none.") from None
