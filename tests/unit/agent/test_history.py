from __future__ import annotations

import contextlib
import datetime as dt
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.history import History, Meter, midnight_s
from agent.stage.gate import Gate

NOON_S = dt.datetime(2026, 3, 4, 12, 30).astimezone().timestamp()
HOUR_S = 3600


class Clock:
    now_s = NOON_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_hours_and_days_are_summed_and_survive_a_restart(tmp_path: Path, clock: Clock) -> None:
    history = History(tmp_path / "h.sqlite", watts=36.0, now=clock)
    history.add(60.0, 100, 50.0)
    history.add(60.0, 20, 50.0)
    clock.now_s += HOUR_S
    history.add(30.0, 5, 0.0)
    clock.now_s += 24 * HOUR_S
    history.save()
    history.add(10.0, 1, 1.0)
    history.save()
    history.save()
    again = History(tmp_path / "h.sqlite", watts=36.0, now=clock)
    for one in (history, again):
        hours = one.hours(0, NOON_S + 40 * HOUR_S)
        assert [(row.served_s, row.tokens) for row in hours] == [(120.0, 120), (30.0, 5), (10.0, 1)]
        assert hours[0].energy_wh == pytest.approx(1.0)
        days = one.days(0, NOON_S + 40 * HOUR_S)
        assert [(row.start_s, row.tokens) for row in days] == [
            (midnight_s(NOON_S), 125), (midnight_s(clock.now_s), 1),
        ]  # fmt: skip
        gave = one.contribution()
        assert (gave.today_tokens, gave.total_tokens) == (1, 126)
    assert again.days(clock.now_s, clock.now_s + 1) == []


def test_a_damaged_file_is_put_aside(tmp_path: Path, clock: Clock, expected_logs: Callable[..., None]) -> None:
    expected_logs("agent.history", "begins anew")
    (tmp_path / "h.sqlite").write_bytes(b"no database at all" * 100)
    history = History(tmp_path / "h.sqlite", watts=1.0, now=clock)
    history.add(1.0, 2, 3.0)
    history.save()
    assert History(tmp_path / "h.sqlite", watts=1.0, now=clock).contribution().total_tokens == 2
    assert (tmp_path / "h.damaged").exists()


def test_a_folder_that_cannot_be_written_costs_the_figures_only(
    tmp_path: Path, clock: Clock, expected_logs: Callable[..., None]
) -> None:
    expected_logs("agent.history", "not saved")
    history = History(tmp_path / "nowhere" / "h.sqlite", watts=1.0, now=clock)
    history.add(1.0, 2, 3.0)
    history.save()
    assert history.contribution().total_tokens == 2
    history.add(1.0, 3, 3.0)
    (tmp_path / "nowhere").mkdir()
    history.save()
    assert History(tmp_path / "nowhere" / "h.sqlite", watts=1.0, now=clock).contribution().total_tokens == 5


def test_a_meter_counts_what_is_new(tmp_path: Path, clock: Clock) -> None:
    history = History(tmp_path / "h.sqlite", watts=1.0, now=clock)
    meter = Meter(history, clock)
    gate = Gate.private()
    gate.enter()
    gate.leave(5)
    clock.now_s += 60
    meter.look([gate])
    clock.now_s += 60
    gate.enter()
    gate.leave(3)
    meter.end(gate)
    (row,) = history.hours(0, NOON_S * 2)
    assert (row.served_s, row.tokens) == (120.0, 8)
    meter.look([])
    assert history.contribution().total_tokens == 8


def test_time_in_which_nothing_was_served_is_not_booked_later(tmp_path: Path, clock: Clock) -> None:
    history = History(tmp_path / "h.sqlite", watts=1.0, now=clock)
    meter = Meter(history, clock)
    clock.now_s += HOUR_S
    meter.look([])
    clock.now_s += 60
    meter.look([Gate.private()])
    assert history.contribution().total_h == pytest.approx(60 / HOUR_S)


def test_a_history_that_is_locked_for_the_moment_is_left_where_it_is(
    tmp_path: Path, clock: Clock, expected_logs: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected_logs("agent.history", "cannot be read now")
    path = tmp_path / "h.sqlite"
    before = History(path, watts=1.0, now=clock)
    before.add(1.0, 5, 1.0)
    before.save()
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, timeout: connect(path, timeout=0.01))
    with contextlib.closing(connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        history = History(path, watts=1.0, now=clock)
        other.rollback()
    history.add(1.0, 2, 1.0)
    history.save()
    assert not path.with_suffix(".damaged").exists()
    assert History(path, watts=1.0, now=clock).contribution().total_tokens == 7


def test_a_power_cut_cannot_tear_the_history(tmp_path: Path, clock: Clock) -> None:
    with contextlib.closing(History(tmp_path / "h.sqlite", watts=1.0, now=clock)._open()) as database:
        (level,) = database.execute("PRAGMA synchronous").fetchone()
    assert level >= 1  # 0 is OFF
