"""API keys: `flw-<id>-<secret>`. Only the SHA-256 of the whole key is stored; the id finds the row."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Sequence
from typing import cast

from sqlalchemy import select

from console.registry.audit import CONSOLE, Actor, note
from console.registry.database import Database
from console.registry.errors import NotFound
from console.registry.models import ApiKeyRow
from console.registry.records import ApiKey, Scope

_KEY = re.compile(r"flw-([0-9a-f]{12})-[A-Za-z0-9_-]{43}")
_NOBODY = bytes(32)


class ApiKeys:
    """Creates, checks and revokes API keys."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    def create(
        self, name: str, scopes: Sequence[Scope], *, expires_s: float | None = None, actor: Actor = CONSOLE
    ) -> tuple[ApiKey, str]:
        """Make a key for `name`; returns its record and the key itself, which cannot be shown again."""
        key_id = secrets.token_hex(6)
        key = f"flw-{key_id}-{secrets.token_urlsafe(32)}"
        row = ApiKeyRow(
            key_id=key_id,
            key_sha256=hashlib.sha256(key.encode()).digest(),
            name=name[:200],
            scopes=list(dict.fromkeys(scopes)),
            created_s=self._now(),
            expires_s=expires_s,
            revoked_s=None,
        )
        with self._database.writing() as session:
            session.add(row)
            note(session, self._now(), actor, "key.create", key_id, name=row.name, scopes=row.scopes)
        return _key(row), key

    def authenticate(self, bearer: str) -> ApiKey | None:
        """Return the key a bearer text stands for; None if unknown, expired or revoked. Constant time in the secret."""
        match = _KEY.fullmatch(bearer)
        if match is None:
            return None
        with self._database.reading() as session:
            row = session.get(ApiKeyRow, match[1])
        stored = _NOBODY if row is None else row.key_sha256
        same = hmac.compare_digest(stored, hashlib.sha256(bearer.encode()).digest())
        if row is None or not same or row.revoked_s is not None:
            return None
        return None if row.expires_s is not None and row.expires_s <= self._now() else _key(row)

    def revoke(self, key_id: str, actor: Actor = CONSOLE) -> ApiKey:
        """End a key at once; revoking it again changes nothing. Raises NotFound."""
        with self._database.writing() as session:
            row = session.get(ApiKeyRow, key_id)
            if row is None:
                raise NotFound(f"There is no API key {key_id}; list the keys to see their ids.")
            if row.revoked_s is None:
                row.revoked_s = self._now()
                note(session, self._now(), actor, "key.revoke", key_id)
            return _key(row)

    def list(self) -> list[ApiKey]:
        """Return all keys, the newest first, revoked ones too."""
        with self._database.reading() as session:
            return [_key(row) for row in session.scalars(select(ApiKeyRow).order_by(ApiKeyRow.created_s.desc()))]


def _key(row: ApiKeyRow) -> ApiKey:
    scopes = cast("list[Scope]", row.scopes)
    return ApiKey(row.key_id, row.name, scopes, row.created_s, row.expires_s, row.revoked_s)
