"""What this PC contributed: kept on this PC, by the hour, for its owner.

A row of `history.sqlite` is an hour in which something was served: for how long, how many tokens passed, and how long
the stages computed. Energy is an estimate from the last of these.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from agent.control.protocol import HistoryRow
from agent.control.status import Contribution
from agent.stage.gate import Gate

log = logging.getLogger(__name__)

HOUR_S = 3600
KEEP_S = 3 * 366 * 86_400
_TABLE = """CREATE TABLE IF NOT EXISTS hours (
    start_s INTEGER PRIMARY KEY, served_s REAL NOT NULL, tokens INTEGER NOT NULL, busy_s REAL NOT NULL)"""
_ADD = """INSERT INTO hours VALUES (?, ?, ?, ?) ON CONFLICT (start_s) DO UPDATE SET
    served_s = served_s + excluded.served_s, tokens = tokens + excluded.tokens, busy_s = busy_s + excluded.busy_s"""


class History:
    """The file. A damaged one is put aside and begun anew; one that cannot be written costs the figures, no more.

    Making it and `save` wait for the disk; `save` may be called in another thread than the rest.
    """

    def __init__(self, path: Path, watts: float, now: Callable[[], float] = time.time) -> None:
        """`watts`: what computing takes beyond what the PC takes anyway. `now` is Unix time."""
        self._path, self._watts, self._now = path, watts, now
        self._rows: dict[int, tuple[float, int, float]] = {}
        self._unsaved: dict[int, tuple[float, int, float]] = {}
        self._swapping = threading.Lock()
        try:
            self._load()
        except sqlite3.Error as error:
            if isinstance(error, sqlite3.OperationalError) or not isinstance(error, sqlite3.DatabaseError):
                # Locked, no right, no space: that passes, and says nothing of what is in the file.
                log.warning("The history of this PC cannot be read now (%s); the next start tries it again.", error)
                return
            log.warning("The history of this PC cannot be read (%s); it begins anew.", error)
            with contextlib.suppress(OSError):
                path.replace(path.with_suffix(".damaged"))

    def add(self, served_s: float, tokens: int, busy_s: float) -> None:
        """Count what was contributed up to now; it is on the disk after `save`."""
        hour, more = int(self._now()) // HOUR_S * HOUR_S, (served_s, tokens, busy_s)
        _add(self._rows, hour, more)
        with self._swapping:
            _add(self._unsaved, hour, more)

    def save(self) -> None:
        """Write what was counted since the last time; what cannot be written is kept for the next."""
        with self._swapping:
            unsaved, self._unsaved = self._unsaved, {}
        if not unsaved:
            return
        try:
            with contextlib.closing(self._open()) as database, database:
                database.executemany(_ADD, [(hour, *more) for hour, more in unsaved.items()])
                database.execute("DELETE FROM hours WHERE start_s < ?", (max(unsaved) - KEEP_S,))
        except sqlite3.Error as error:
            log.warning("What this PC contributed is not saved: %s.", error)
            with self._swapping:
                for hour, more in unsaved.items():
                    _add(self._unsaved, hour, more)

    def hours(self, from_s: float, to_s: float) -> list[HistoryRow]:
        """List the hours that begin in that time, oldest first."""
        return [self._row(start_s, *self._rows[start_s]) for start_s in sorted(self._rows) if from_s <= start_s < to_s]

    def days(self, from_s: float, to_s: float) -> list[HistoryRow]:
        """Sum the hours by local day."""
        days: dict[float, tuple[float, int, float]] = {}
        for start_s in sorted(start_s for start_s in self._rows if from_s <= start_s < to_s):
            day_s = midnight_s(start_s)
            served_s, tokens, busy_s = days.get(day_s, (0.0, 0, 0.0))
            more = self._rows[start_s]
            days[day_s] = (served_s + more[0], tokens + more[1], busy_s + more[2])
        return [self._row(day_s, *sums) for day_s, sums in days.items()]

    def contribution(self) -> Contribution:
        """Sum today and everything."""
        today_s = midnight_s(self._now())
        today = self._sum(start_s for start_s in self._rows if start_s >= today_s)
        total = self._sum(self._rows)
        return Contribution(
            today.served_s / HOUR_S, today.tokens, today.energy_wh,
            total.served_s / HOUR_S, total.tokens, total.energy_wh,
        )  # fmt: skip

    def _sum(self, hours: Iterable[int]) -> HistoryRow:
        rows = [self._rows[hour] for hour in hours]
        return self._row(0.0, sum(row[0] for row in rows), sum(row[1] for row in rows), sum(row[2] for row in rows))

    def _row(self, start_s: float, served_s: float, tokens: int, busy_s: float) -> HistoryRow:
        return HistoryRow(start_s, served_s, tokens, busy_s * self._watts / HOUR_S)

    def _load(self) -> None:
        if not self._path.exists():
            return
        with contextlib.closing(self._open()) as database:
            for start_s, served_s, tokens, busy_s in database.execute("SELECT * FROM hours"):
                self._rows[int(start_s)] = float(served_s), int(tokens), float(busy_s)

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=1.0)
        # A power cut may take the last figures, but not tear the file, which OFF would let it.
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(_TABLE)
        return database


def _add(rows: dict[int, tuple[float, int, float]], hour: int, more: tuple[float, int, float]) -> None:
    served_s, tokens, busy_s = rows.get(hour, (0.0, 0, 0.0))
    rows[hour] = served_s + more[0], tokens + more[1], busy_s + more[2]


class Meter:
    """Reads the gates of the stages and counts what is new."""

    def __init__(self, history: History, clock: Callable[[], float] = time.monotonic) -> None:
        self._history, self._clock = history, clock
        self._seen: dict[Gate, tuple[int, float]] = {}
        self._looked_s = clock()

    def look(self, gates: Iterable[Gate]) -> None:
        """Count what has passed these gates since the last look; `gates` are those of stages that are ready."""
        now_s = self._clock()
        gates, since_s, self._looked_s = list(gates), now_s - self._looked_s, now_s
        tokens, busy_s = 0, 0.0
        for gate in gates:
            before = self._seen.get(gate, (0, 0.0))
            self._seen[gate] = gate.tokens, gate.busy_s
            tokens += gate.tokens - before[0]
            busy_s += gate.busy_s - before[1]
        if gates:
            self._history.add(since_s, tokens, busy_s)

    def end(self, gate: Gate) -> None:
        """A stage has ended: count the rest and forget its gate."""
        self.look([gate])
        del self._seen[gate]


def midnight_s(unix_s: float) -> float:
    """Return when the local day of a moment began."""
    local = dt.datetime.fromtimestamp(unix_s).astimezone()
    return local.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
