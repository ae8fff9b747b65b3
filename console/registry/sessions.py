"""Logins: a password buys a session token that lives for half a day, or until it is given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from sqlalchemy import delete

from console.registry.audit import Actor, note
from console.registry.bearers import is_same, make_token, token_hash, token_id
from console.registry.database import Database
from console.registry.models import SessionRow, UserRow
from console.registry.records import ROLE_SCOPES, Principal, Role, SessionRecord
from console.registry.users import Users

LIFE_S = 12 * 3600.0


class Sessions:
    """Opens, checks and ends logins."""

    def __init__(self, database: Database, users: Users, now: Callable[[], float]) -> None:
        self._database = database
        self._users = users
        self._now = now

    def open(self, name: str, password: str, *, source: str = "") -> tuple[SessionRecord, str] | None:
        """Log somebody in; returns the session and its token, None if name and password do not fit.

        Blocks for about 0.1 s. Both outcomes are in the audit log; a wrong name stands there only if a user has it,
        because people type passwords into the name's field.
        """
        fits = self._users.has_password(name, password)
        user = self._users.find(name)
        with self._database.writing() as session:
            if not fits or user is None:
                shown = user.name if user is not None else "unknown user"
                note(session, self._now(), Actor("anybody", source), "session.refused", shown)
                return None
            session.execute(delete(SessionRow).where(SessionRow.expires_s <= self._now()))
            session_id, token = make_token("fls")
            row = SessionRow(
                session_id=session_id,
                token_sha256=token_hash(token),
                user_name=user.name,
                created_s=self._now(),
                expires_s=self._now() + LIFE_S,
                source=source[:200],
            )
            session.add(row)
            note(session, self._now(), Actor(f"user:{user.name}", source), "session.open", session_id)
            return SessionRecord(session_id, user.name, row.created_s, row.expires_s), token

    def authenticate(self, token: str) -> Principal | None:
        """Return who a session token stands for; None if unknown, expired, or its user is disabled."""
        session_id = token_id(token, "fls")
        if session_id is None:
            return None
        with self._database.reading() as session:
            row = session.get(SessionRow, session_id)
            user = None if row is None else session.get(UserRow, row.user_name)
        if not is_same(token, None if row is None else row.token_sha256) or row is None or user is None:
            return None
        if row.expires_s <= self._now() or user.disabled_s is not None:
            return None
        scopes = ROLE_SCOPES[cast("Role", user.role)]
        return Principal(f"user:{user.name}", user.name, scopes, session_id=session_id)

    def close(self, session_id: str, actor: Actor) -> None:
        """Log out; an unknown session is closed already."""
        with self._database.writing() as session:
            row = session.get(SessionRow, session_id)
            if row is not None:
                session.delete(row)
                note(session, self._now(), actor, "session.close", session_id)
