"""What the administrator wants of volunteering PCs: for all of them, and for those with a tag."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from sqlalchemy import func, select

from agent.volunteer.documents import MAX_BODY_BYTES, MAX_REVISION
from agent.volunteer.errors import WishRefused
from agent.volunteer.policy import ROWS, Wishes, combine_wishes
from agent.volunteer.wishes import PlainValue, check_wishes, from_plain, with_value
from console.registry.audit import CONSOLE, Actor, note
from console.registry.database import Database
from console.registry.invites import clean_tags
from console.registry.models import PolicyRow
from console.registry.records import PolicyRecord


class Policies:
    """Wishes by tag; the empty tag is all PCs. A PC gets the tightest of what applies to it."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    def list(self) -> list[PolicyRecord]:
        """Return what is wanted of all PCs first, then by tag."""
        with self._database.reading() as session:
            return [_record(row) for row in session.scalars(select(PolicyRow).order_by(PolicyRow.tag))]

    def revision(self) -> int:
        """Return the newest revision; 0: nobody ever wanted anything."""
        with self._database.reading() as session:
            return session.scalar(select(func.max(PolicyRow.revision))) or 0

    def change(self, tag: str, values: Mapping[str, PlainValue], actor: Actor = CONSOLE) -> PolicyRecord:
        """Set rows for all PCs or those with a tag; None takes a row back. Raises WishRefused."""
        tag = next(iter(clean_tags([tag])), "")
        if values.get("unattended"):
            raise WishRefused("unattended can only be switched on at the PC itself; the console can forbid it.")
        with self._database.writing() as session:
            row = session.get(PolicyRow, tag, with_for_update=True)
            if row is None:
                row = PolicyRow(tag=tag, wishes={}, revision=0, updated_s=0.0)
                session.add(row)
            wishes = _wishes(row.wishes)
            for name, value in values.items():
                wishes = with_value(wishes, name, from_plain(name, value))
            _check_all(wishes, [kept for kept in session.scalars(select(PolicyRow)) if kept.tag != tag])
            last = session.scalar(select(func.max(PolicyRow.revision))) or 0
            row.wishes = msgspec.to_builtins(wishes)
            # Also a registry that was restored from an old copy gets past what PCs have seen.
            row.revision = min(max(last + 1, int(self._now())), MAX_REVISION)
            row.updated_s = self._now()
            note(session, self._now(), actor, "policy.change", tag or "all PCs", **dict(values))
            return _record(row)


def combined(records: Sequence[PolicyRecord], tags: Sequence[str]) -> tuple[int, Wishes]:
    """Return the revision and what is wanted of a PC with these tags; revision 0: nobody ever wanted anything."""
    wishes = Wishes()
    for record in records:
        if not record.tag or record.tag in tags:
            wishes = combine_wishes(wishes, record.wishes)
    return max((record.revision for record in records), default=0), wishes


def _check_all(wishes: Wishes, others: Sequence[PolicyRow]) -> None:
    """Raise WishRefused unless even a PC with every tag could be told all of it."""
    for other in others:
        wishes = combine_wishes(wishes, _wishes(other.wishes))
    if len(msgspec.json.encode(check_wishes(wishes))) > MAX_BODY_BYTES - 1024:
        raise WishRefused("exclusive_programs is too long in all; leave some out.")


def _record(row: PolicyRow) -> PolicyRecord:
    return PolicyRecord(row.tag, _wishes(row.wishes), row.revision, row.updated_s)


def _wishes(kept: dict[str, object]) -> Wishes:
    return msgspec.convert({name: value for name, value in kept.items() if name in ROWS}, Wishes)
