"""Weekly hours: windows, midnight, nothing, everything, and the clock that is put forward and back."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.volunteer.schedule import (
    ALWAYS,
    NEVER,
    WEEK_MIN,
    Hours,
    ScheduleError,
    Window,
    checked_hours,
    format_schedule,
    hours_of,
    intersect,
    is_open,
    minute_of_week,
    opens_in_min,
    parse_schedule,
)

WINDOWS = st.lists(
    st.builds(
        Window,
        st.lists(st.integers(0, 6), max_size=7).map(tuple),
        st.integers(0, 1440),
        st.integers(0, 1440),
    ),
    max_size=6,
)
SCHEDULES = WINDOWS.map(hours_of)


def at(text: str) -> float:
    """Minute of the week of "Mon 14:30"."""
    day, time = text.split()
    hour, minute = time.split(":")
    return ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].index(day) * 1440 + int(hour) * 60 + int(minute)


@pytest.mark.parametrize(
    ("schedule", "open_at", "shut_at"),
    [
        ("Mon-Fri 20:00-06:00", ["Mon 20:00", "Sat 05:59", "Tue 00:00"], ["Mon 19:59", "Sat 06:00", "Mon 03:00"]),
        ("Sun 22:00-02:00", ["Sun 23:00", "Mon 01:59"], ["Mon 02:00", "Sun 21:59"]),
        ("Sat,Sun 00:00-24:00", ["Sat 00:00", "Sun 23:59"], ["Mon 00:00", "Fri 23:59"]),
        ("Wed 08:00-08:00", ["Wed 08:00", "Thu 07:59"], ["Wed 07:59", "Thu 08:00"]),
        ("Fri-Mon 10:00-11:00", ["Fri 10:00", "Mon 10:59"], ["Tue 10:30"]),
        ("Mon 08:00-12:00; Mon 10:00-14:00", ["Mon 08:00", "Mon 13:59"], ["Mon 14:00"]),
    ],
)
def test_windows_mean_what_people_expect(schedule: str, open_at: list[str], shut_at: list[str]) -> None:
    hours = parse_schedule(schedule)
    assert [text for text in open_at if not is_open(hours, at(text))] == []
    assert [text for text in shut_at if is_open(hours, at(text))] == []


def test_no_window_is_never_and_always_is_the_whole_week() -> None:
    assert hours_of([]) == NEVER == parse_schedule("never")
    assert parse_schedule("Mon-Sun 00:00-24:00") == ALWAYS == parse_schedule(" Always ")
    assert opens_in_min(NEVER, 5.0) is None


@settings(max_examples=30)
@given(SCHEDULES)
def test_what_is_written_is_read_again(hours: Hours) -> None:
    assert parse_schedule(format_schedule(hours)) == hours
    assert checked_hours(hours) == hours


@settings(max_examples=30)
@given(WINDOWS, WINDOWS, st.integers(0, WEEK_MIN - 1))
def test_hours_are_open_exactly_where_a_window_is(one: list[Window], other: list[Window], minute: int) -> None:
    def opened(windows: list[Window]) -> bool:
        return any(is_open(hours_of([window]), minute) for window in windows)

    assert is_open(hours_of(one), minute) == opened(one)
    assert is_open(intersect(hours_of(one), hours_of(other)), minute) == (opened(one) and opened(other))


@settings(max_examples=30)
@given(SCHEDULES, st.integers(0, WEEK_MIN - 1))
def test_the_countdown_ends_when_the_hours_open_and_not_before(hours: Hours, minute: int) -> None:
    wait_min = opens_in_min(hours, minute)
    if wait_min is None:
        assert hours == NEVER
        return
    assert is_open(hours, (minute + wait_min) % WEEK_MIN)
    assert wait_min == 0 or not is_open(hours, (minute + wait_min - 1) % WEEK_MIN)


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_a_change_of_the_clock_goes_by_what_the_wall_shows(day: str) -> None:
    """29 March 2026 has no 02:30 in Berlin; 25 October has it twice."""
    zone, hours = ZoneInfo("Europe/Berlin"), parse_schedule("Sun 02:00-03:00")
    start = datetime.fromisoformat(f"{day}T00:00").replace(tzinfo=zone)
    moments = [start.timestamp() + minute * 60 for minute in range(6 * 60)]
    open_minutes = 0
    for moment in moments:
        local = datetime.fromtimestamp(moment, zone)
        offset = local.utcoffset() or timedelta()
        open_minutes += is_open(hours, minute_of_week(moment, offset.total_seconds()))
    assert open_minutes == (0 if day.startswith("2026-03") else 120)


@pytest.mark.parametrize(
    "text",
    ["", ";", "Mon", "Mon 25:00-26:00", "Mon 10:60-11:00", "Xyz 10:00-11:00", "Mon 1-2", "Mon 10:00-11:00;" * 300],
)
def test_a_schedule_that_is_none_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ScheduleError, match=r"\.$"):
        parse_schedule(text)


@pytest.mark.parametrize("hours", [((5, 5),), ((9, 3),), ((-1, 5),), ((0, WEEK_MIN + 1),), ((0, 1),) * 300])
def test_hours_from_elsewhere_are_checked(hours: Hours) -> None:
    with pytest.raises(ScheduleError):
        checked_hours(hours)
