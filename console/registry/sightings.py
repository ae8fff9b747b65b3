"""When PCs were seen, and what they said about themselves then: many at once, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from sqlalchemy import select

from agent.link.identity import DeviceId
from console.registry.chain import storable
from console.registry.database import Database
from console.registry.models import DeviceRow
from console.registry.records import KeyProtection

MOST_AT_ONCE = 500
"""Databases bound how many values one question may have."""


class Sighting(msgspec.Struct, frozen=True):
    """One PC, seen now. What is empty or None stays as it is; `facts` are added to those known."""

    device_id: DeviceId
    name: str = ""
    facts: dict[str, Any] = {}
    key_protection: KeyProtection | None = None

    def followed_by(self, later: Sighting) -> Sighting:
        """Return both as one."""
        return Sighting(
            self.device_id,
            later.name or self.name,
            {**self.facts, **later.facts},
            later.key_protection or self.key_protection,
        )


class Sightings:
    """Writes sightings into devices' records."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    def note(self, sightings: Iterable[Sighting]) -> None:
        """Note sightings, at most one of each PC. Unknown PCs are ignored."""
        by_id = {str(seen.device_id): seen for seen in sightings}
        # In one order everywhere: of two consoles that lock the same rows neither waits for the other for ever.
        ids = sorted(by_id)
        with self._database.writing() as session:
            for start in range(0, len(ids), MOST_AT_ONCE):
                some = DeviceRow.device_id.in_(ids[start : start + MOST_AT_ONCE])
                for row in session.scalars(
                    select(DeviceRow).where(some).order_by(DeviceRow.device_id).with_for_update()
                ):
                    self._write(row, by_id[row.device_id])

    def _write(self, row: DeviceRow, seen: Sighting) -> None:
        row.seen_s = self._now()
        # Anything may be in what a PC says of itself, and one row no database takes would keep back all of them.
        row.name = storable(seen.name)[:200] or row.name
        row.facts = {**row.facts, **storable(seen.facts)}
        row.key_protection = seen.key_protection or row.key_protection
