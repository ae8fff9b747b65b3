"""agent.tray.pages.periods: hours and days, also where the clocks are changed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.control.protocol import HistoryRow
from agent.tray.pages.periods import LENGTH, PERIODS, Period, end_of, fill, starts_of

NOW_S = 1_793_000_000.0
"""In late October 2026, when Europe changes its clocks."""


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("period", PERIODS)
def test_the_current_one_is_the_last(period: Period) -> None:
    starts = starts_of(period, NOW_S)
    assert len(starts) == LENGTH[period]
    assert starts == sorted(set(starts))
    assert starts[-1] <= NOW_S < end_of(period, starts[-1])


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone of a process cannot be changed here")
@pytest.mark.usefixtures("berlin")
def test_a_day_of_25_hours_is_one_day() -> None:
    end_of_october = time.mktime((2026, 10, 31, 12, 0, 0, 0, 0, -1))
    starts = starts_of("fortnight", end_of_october)
    assert [time.localtime(start)[3] for start in starts] == [0] * 14
    assert {round((later - start) / 3600) for start, later in itertools.pairwise(starts)} == {24, 25}


def row(start_s: float, served_s: float = 60.0, tokens: int = 1) -> HistoryRow:
    return HistoryRow(start_s, served_s, tokens, 0.5)


def test_empty_days_keep_their_place() -> None:
    starts = [0.0, 86400.0, 172800.0]
    assert [found.tokens for found in fill([row(86400.5), row(172800.0, tokens=3)], starts)] == [0, 1, 3]


def test_a_row_that_begins_a_moment_early_is_not_lost() -> None:
    assert fill([row(86399.5)], [0.0, 86400.0])[1].tokens == 1


@given(st.lists(st.tuples(st.floats(0, 14 * 86400 - 1), st.integers(0, 10**9))))
def test_nothing_is_lost_or_counted_twice(given_rows: list[tuple[float, int]]) -> None:
    starts = [86400.0 * day for day in range(14)]
    filled = fill([row(start_s, tokens=tokens) for start_s, tokens in given_rows], starts)
    assert sum(found.tokens for found in filled) == sum(tokens for _, tokens in given_rows)
    assert [found.start_s for found in filled] == starts


def test_what_lies_before_the_period_is_left_out() -> None:
    assert fill([row(-5.0)], [0.0, 86400.0]) == [HistoryRow(0.0, 0.0, 0, 0.0), HistoryRow(86400.0, 0.0, 0, 0.0)]
