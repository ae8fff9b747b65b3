"""The audit log: every change, who made it, to what, from where. No secrets, no prompt text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from console.registry.database import Database
from console.registry.models import AuditRow
from console.registry.records import AuditEntry


@dataclass(frozen=True)
class Actor:
    """Who makes a change (`admin:<key id>`, `agent`, `console`) and from which address."""

    name: str = "console"
    source: str = ""


CONSOLE = Actor()


def note(session: Session, at_s: float, actor: Actor, action: str, target: str, **detail: Any) -> None:
    """Add an entry inside the transaction of the change it describes."""
    session.add(AuditRow(at_s=at_s, actor=actor.name, action=action, target=target, source=actor.source, detail=detail))


class Audit:
    """Reads and appends entries."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    def append(self, actor: Actor, action: str, target: str, **detail: Any) -> None:
        """Add an entry for something that is no change of the registry itself."""
        with self._database.writing() as session:
            note(session, self._now(), actor, action, target, **detail)

    def list(self, *, limit: int = 100, before: int | None = None) -> list[AuditEntry]:
        """Return the newest entries first, at most `limit`, only those with a sequence below `before`."""
        query = select(AuditRow).order_by(AuditRow.sequence.desc()).limit(limit)
        if before is not None:
            query = query.where(AuditRow.sequence < before)
        with self._database.reading() as session:
            return [
                AuditEntry(row.sequence, row.at_s, row.actor, row.action, row.target, row.source, row.detail)
                for row in session.scalars(query)
            ]
