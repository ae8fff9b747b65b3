"""API keys, with scopes, an owner and quotas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from console.registry.audit import CONSOLE, Actor, note
from console.registry.bearers import is_same, make_token, token_hash, token_id
from console.registry.database import Database
from console.registry.errors import NotFound
from console.registry.models import ApiKeyRow, UserRow
from console.registry.records import ROLE_SCOPES, ApiKey, Principal, Quota, Role, Scope
from console.registry.usage import UsageLog


class ApiKeys:
    """Creates, checks, limits and revokes API keys."""

    def __init__(self, database: Database, usage: UsageLog, now: Callable[[], float]) -> None:
        self._database = database
        self._usage = usage
        self._now = now

    def create(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        expires_s: float | None = None,
        user: str = "",
        quota: Quota | None = None,
        actor: Actor = CONSOLE,
    ) -> tuple[ApiKey, str]:
        """Make a key for `name`; returns its record and the key itself, which cannot be shown again.

        A key of a `user` allows only what the user's role allows, too. Raises NotFound for an unknown user.
        """
        quota = quota or Quota()
        key_id, key = make_token("flw")
        with self._database.writing() as session:
            if user and session.get(UserRow, user) is None:
                raise NotFound(f"There is no user {user[:64]}; see: fallow-console user list")
            row = ApiKeyRow(
                key_id=key_id,
                key_sha256=token_hash(key),
                name=name[:200],
                scopes=list(dict.fromkeys(scopes)),
                created_s=self._now(),
                expires_s=expires_s,
                revoked_s=None,
                user_name=user or None,
                streams=quota.streams,
                tokens_per_day=quota.tokens_per_day,
                models=quota.models,
            )
            session.add(row)
            limits = msgspec.to_builtins(quota)
            note(
                session, self._now(), actor, "key.create", key_id, name=row.name, scopes=row.scopes, user=user, **limits
            )
        return _key(row), key

    def authenticate(self, token: str) -> Principal | None:
        """Return who a key stands for; None if unknown, expired, revoked, or its user is disabled."""
        key_id = token_id(token, "flw")
        if key_id is None:
            return None
        with self._database.reading() as session:
            row = session.get(ApiKeyRow, key_id)
            user = None if row is None or row.user_name is None else session.get(UserRow, row.user_name)
        if not is_same(token, None if row is None else row.key_sha256) or row is None or row.revoked_s is not None:
            return None
        if row.expires_s is not None and row.expires_s <= self._now():
            return None
        scopes = frozenset(cast("list[Scope]", row.scopes))
        if user is not None:
            if user.disabled_s is not None:
                return None
            allowed = ROLE_SCOPES[cast("Role", user.role)]
            scopes = allowed if "admin" in scopes else scopes & allowed
        return Principal(key_id, row.user_name or "", scopes, _quota(row))

    def limit(self, key_id: str, quota: Quota, actor: Actor = CONSOLE) -> ApiKey:
        """Replace a key's quotas; they count from the next request on. Raises NotFound."""
        with self._database.writing() as session:
            row = _row(session, key_id)
            row.streams, row.tokens_per_day, row.models = quota.streams, quota.tokens_per_day, quota.models
            note(session, self._now(), actor, "key.limit", key_id, **msgspec.to_builtins(quota))
            return _key(row)

    def revoke(self, key_id: str, actor: Actor = CONSOLE) -> ApiKey:
        """End a key at once; revoking it again changes nothing. Raises NotFound."""
        with self._database.writing() as session:
            row = _row(session, key_id)
            if row.revoked_s is None:
                row.revoked_s = self._now()
                note(session, self._now(), actor, "key.revoke", key_id)
            return _key(row)

    def list(self) -> list[ApiKey]:
        """Return all keys with what they used today, the newest first, revoked ones too."""
        used = self._usage.all_today()
        query = select(ApiKeyRow).order_by(ApiKeyRow.created_s.desc(), ApiKeyRow.key_id)
        with self._database.reading() as session:
            return [_key(row, used.get(row.key_id, 0)) for row in session.scalars(query)]


def _row(session: Session, key_id: str) -> ApiKeyRow:
    row = session.get(ApiKeyRow, key_id, with_for_update=True)
    if row is None:
        raise NotFound(f"There is no API key {key_id[:32]}; list the keys to see their ids.")
    return row


def _quota(row: ApiKeyRow) -> Quota:
    return Quota(row.streams, row.tokens_per_day, row.models)


def _key(row: ApiKeyRow, tokens_today: int = 0) -> ApiKey:
    scopes = cast("list[Scope]", row.scopes)
    return ApiKey(
        row.key_id, row.name, scopes, row.created_s, row.expires_s, row.revoked_s,
        row.user_name or "", _quota(row), tokens_today,
    )  # fmt: skip
