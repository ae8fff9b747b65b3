"""Tokens used, by key and day. A day is a day of UTC, so that it ends at the same moment for everybody."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import select, text

from console.registry.database import Database
from console.registry.models import UsageRow

DAY_S = 86_400
# The same words on SQLite and PostgreSQL; a read before the write would lose counts between two consoles.
_ADD = text(
    "INSERT INTO usage (key_id, day, tokens) VALUES (:key_id, :day, :tokens) "
    "ON CONFLICT (key_id, day) DO UPDATE SET tokens = usage.tokens + excluded.tokens"
)


class UsageLog:
    """Counts tokens."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    def add(self, key_id: str, tokens: int) -> None:
        """Count tokens for today."""
        with self._database.writing() as session:
            session.execute(_ADD, {"key_id": key_id, "day": self._day(), "tokens": tokens})

    def today(self, key_id: str) -> int:
        """Return how many tokens a key has used today."""
        with self._database.reading() as session:
            row = session.get(UsageRow, (key_id, self._day()))
            return 0 if row is None else row.tokens

    def all_today(self) -> dict[str, int]:
        """Return today's tokens of every key that used any."""
        with self._database.reading() as session:
            rows = session.scalars(select(UsageRow).where(UsageRow.day == self._day()))
            return {row.key_id: row.tokens for row in rows}

    def seconds_left(self) -> int:
        """Return the seconds until the day ends and counting starts again."""
        return DAY_S - int(self._now()) % DAY_S

    def _day(self) -> int:
        return int(self._now()) // DAY_S
