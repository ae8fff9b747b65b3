"""The audit log: every change, who made it, to what, from where. No secrets, no prompt text.

Entries are numbered without gaps and chained by their hashes (`chain.py`). They are added when their transaction
commits: the lock on the chain's end is then the last one a transaction takes, and is held for the shortest time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import event, select
from sqlalchemy.orm import Session

from console.registry import chain
from console.registry.chain import Checked
from console.registry.database import Database
from console.registry.errors import AuditBroken
from console.registry.models import AuditHeadRow, AuditRow, AuditWordRow
from console.registry.records import AuditEntry

PAGE = 500
_HEAD = "head"
_WAITING = "audit entries of this transaction"


@dataclass(frozen=True)
class Actor:
    """Who makes a change (`user:<name>`, `key:<id>`, `agent`, `console`) and from which address."""

    name: str = "console"
    source: str = ""


CONSOLE = Actor()


def note(session: Session, at_s: float, actor: Actor, action: str, target: str, **detail: Any) -> None:
    """Add an entry to the transaction of the change it describes; it is written when that commits."""
    waiting: list[AuditEntry] | None = session.info.get(_WAITING)
    if waiting is None:
        waiting = session.info[_WAITING] = []
        event.listen(session, "before_commit", _append, once=True)
    waiting.append(
        AuditEntry(
            sequence=0,
            at_s=float(at_s),
            actor=chain.storable(actor.name)[:200],
            action=action,
            target=chain.storable(target)[:400],
            source=chain.storable(actor.source)[:200],
            detail=chain.storable(detail),
        )
    )


def _append(session: Session) -> None:
    head = session.get_one(AuditHeadRow, _HEAD, with_for_update=True, populate_existing=True)
    for entry in session.info.pop(_WAITING):
        head.sequence += 1
        numbered = msgspec.structs.replace(entry, sequence=head.sequence)
        head.hash = chain.entry_hash(head.hash, numbered)
        session.add(
            AuditRow(
                sequence=head.sequence,
                at_s=entry.at_s,
                actor=entry.actor,
                action=entry.action,
                target=entry.target,
                source=entry.source,
                detail=entry.detail,
                hash=head.hash,
            )
        )
        session.flush()
        session.add_all(AuditWordRow(word=word, sequence=head.sequence) for word in chain.words_of(numbered))


class Audit:
    """Reads and appends entries."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    def append(self, actor: Actor, action: str, target: str, **detail: Any) -> None:
        """Add an entry for something that is no change of the registry itself."""
        with self._database.writing() as session:
            note(session, self._now(), actor, action, target, **detail)

    def list(self, *, limit: int = 100, before: int | None = None, search: str = "") -> list[AuditEntry]:
        """Return the newest entries first, at most `limit`, only those with a sequence below `before`.

        `search`: only entries in which each of these words is, or is the beginning of one; case does not matter.
        """
        query = select(AuditRow).order_by(AuditRow.sequence.desc()).limit(limit)
        if before is not None:
            query = query.where(AuditRow.sequence < before)
        for word in map(chain.word_key, search.split()):
            # No UTF-8 text holds the byte 0xff, so it comes after everything that begins with the word.
            within = AuditWordRow.word.between(word, word + b"\xff")
            query = query.where(AuditRow.sequence.in_(select(AuditWordRow.sequence).where(within)))
        with self._database.reading() as session:
            return [_entry(row) for row in session.scalars(query)]

    def page(self, after: int, limit: int = PAGE) -> Sequence[AuditEntry]:
        """Return the entries that follow number `after`, the oldest first, at most `limit`."""
        query = select(AuditRow).where(AuditRow.sequence > after).order_by(AuditRow.sequence).limit(limit)
        with self._database.reading() as session:
            return [_entry(row) for row in session.scalars(query)]

    def pages(self) -> Iterator[Sequence[AuditEntry]]:
        """Yield the whole log from the first entry, a page at a time."""
        after = 0
        while found := self.page(after):
            yield found
            after = found[-1].sequence

    def verify(self, known: Sequence[tuple[int, str]] = ()) -> Checked:
        """Check the whole chain, and that the entries in `known` (sequence, hash) are still in it.

        Raises AuditBroken. Takes about 30 ms per 1,000 entries.
        """
        # The end is read first: entries added while we read are not missing ones.
        with self._database.reading() as session:
            head = session.get_one(AuditHeadRow, _HEAD)
        checked = chain.check((entry for page in self.pages() for entry in page), known)
        if checked.last_sequence < head.sequence:
            raise AuditBroken(
                f"The audit log ends at {checked.last_sequence}, but had an entry {head.sequence}; it was cut off.",
                head.sequence,
            )
        return checked


def _entry(row: AuditRow) -> AuditEntry:
    return AuditEntry(row.sequence, row.at_s, row.actor, row.action, row.target, row.source, row.detail, row.hash)
