"""Invites: how often a token may be redeemed, and by which keys it was.

A use is a distinct public key. The same key with the same token again is the same use, whatever happened to the
invite since: an agent whose answer was lost on the way must get it when it asks again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from typing import cast

import msgspec
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from console.registry.approval import NO_RULE, ApprovalRule
from console.registry.audit import CONSOLE, Actor, note
from console.registry.database import Database
from console.registry.errors import InviteNotUsable, NotFound
from console.registry.models import InviteRow, InviteUseRow
from console.registry.records import Approval, InviteRecord, InviteSecret

DAY_S = 86_400.0
ONE_OFF_LIFE_S = DAY_S
MAX_LIFE_S = 30 * DAY_S
MAX_TAGS = 32


class Invites:
    """Creates, redeems and revokes invites."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    def create(
        self,
        *,
        max_uses: int = 1,
        life_s: float = ONE_OFF_LIFE_S,
        approve: Approval = "manual",
        hint: str = "",
        tags: Sequence[str] = (),
        rule: ApprovalRule = NO_RULE,
        actor: Actor = CONSOLE,
    ) -> InviteSecret:
        """Make an invite for `max_uses` PCs that ends `life_s` seconds from now (at most 30 days).

        `approve="auto"` lets in every PC that meets `rule`. Without any condition such an invite, used by several
        PCs, may live a day at most, so that one found later opens nothing. `tags` go to the PCs that use it.
        """
        if max_uses < 1 or not 0 < life_s <= MAX_LIFE_S:
            raise ValueError("an invite needs at least one use and a life of at most 30 days")
        if approve == "auto" and max_uses > 1 and not rule.limits and life_s > ONE_OFF_LIFE_S:
            raise ValueError(
                "an invite that lets in several PCs without approval may live a day at most; give it a network or a "
                "name pattern, or let an administrator approve"
            )
        token_id, secret = secrets.token_bytes(8), secrets.token_bytes(16)
        now_s = self._now()
        with self._database.writing() as session:
            session.add(
                InviteRow(
                    token_id=token_id.hex(),
                    secret_sha256=hashlib.sha256(secret).digest(),
                    approve=approve,
                    max_uses=max_uses,
                    hint=hint[:200],
                    created_s=now_s,
                    created_by=actor.name,
                    expires_s=now_s + life_s,
                    revoked_s=None,
                    tags=clean_tags(tags),
                    rule=msgspec.to_builtins(rule),
                )
            )
            detail = {"uses": max_uses, "approve": approve, "hint": hint[:200], "tags": clean_tags(tags)}
            note(session, now_s, actor, "invite.create", token_id.hex(), **detail, rule=msgspec.to_builtins(rule))
        return InviteSecret(token_id, secret, now_s + life_s)

    def secret_sha256(self, token_id: str) -> bytes | None:
        """Return the hash of a token's secret (the key of an enrolment's MAC), or None for an unknown token."""
        with self._database.reading() as session:
            row = session.get(InviteRow, token_id)
            return None if row is None else row.secret_sha256

    def consume(self, token_id: str, spki_sha256: str, *, source: str = "") -> InviteRecord:
        """Take one use for this key, or find the one it has taken before. Raises InviteNotUsable.

        The caller has checked that the peer knows the secret.
        """
        with self._database.writing() as session:
            # The row lock makes two agents with one last use take turns on PostgreSQL; SQLite writers do anyway.
            row = session.get(InviteRow, token_id, with_for_update=True)
            if row is None:
                raise InviteNotUsable("unknown", "This console does not know the invite; ask for a new one.")
            if session.get(InviteUseRow, (token_id, spki_sha256)) is None:
                self._check_usable(row, _uses(session, token_id))
                session.add(
                    InviteUseRow(token_id=token_id, spki_sha256=spki_sha256, used_s=self._now(), source=source[:200])
                )
                note(session, self._now(), Actor("agent", source), "invite.use", token_id, key=spki_sha256[:16])
            return _invite(row, _uses(session, token_id))

    def _check_usable(self, row: InviteRow, uses: int) -> None:
        if row.revoked_s is not None:
            raise InviteNotUsable("revoked", "The invite was revoked; ask your administrator for a new one.")
        if row.expires_s <= self._now():
            raise InviteNotUsable("expired", "The invite has expired; ask your administrator for a new one.")
        if uses >= row.max_uses:
            raise InviteNotUsable("used_up", "The invite has been used up; ask your administrator for a new one.")

    def revoke(self, token_id: str, actor: Actor = CONSOLE) -> InviteRecord:
        """Let no further key use the invite; PCs that used it stay. Raises NotFound."""
        with self._database.writing() as session:
            row = session.get(InviteRow, token_id)
            if row is None:
                raise NotFound(f"There is no invite {token_id}; list the invites to see their ids.")
            if row.revoked_s is None:
                row.revoked_s = self._now()
                note(session, self._now(), actor, "invite.revoke", token_id)
            return _invite(row, _uses(session, token_id))

    def list(self) -> list[InviteRecord]:
        """Return all invites, the newest first, with how often each was used."""
        used = select(InviteUseRow.token_id, func.count().label("uses")).group_by(InviteUseRow.token_id).subquery()
        query = (
            select(InviteRow, func.coalesce(used.c.uses, 0))
            .outerjoin(used, used.c.token_id == InviteRow.token_id)
            .order_by(InviteRow.created_s.desc())
        )
        with self._database.reading() as session:
            return [_invite(row, uses) for row, uses in session.execute(query)]


def _uses(session: Session, token_id: str) -> int:
    session.flush()
    query = select(func.count()).select_from(InviteUseRow).where(InviteUseRow.token_id == token_id)
    return session.scalars(query).one()


def _invite(row: InviteRow, uses: int) -> InviteRecord:
    return InviteRecord(
        token_id=row.token_id,
        approve=cast("Approval", row.approve),
        max_uses=row.max_uses,
        uses=uses,
        hint=row.hint,
        created_s=row.created_s,
        created_by=row.created_by,
        expires_s=row.expires_s,
        revoked_s=row.revoked_s,
        tags=row.tags,
        rule=msgspec.convert(row.rule, ApprovalRule),
    )


def clean_tags(tags: Sequence[str]) -> list[str]:
    """Return tags without doubles, blanks and excess, sorted."""
    return sorted({tag.strip()[:64] for tag in tags if tag.strip()})[:MAX_TAGS]
