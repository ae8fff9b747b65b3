"""Users: people with a role, who may log in with a password and own API keys.

Nobody is deleted: a disabled user keeps the name, so that the audit log stays readable. The way back in, when every
owner has lost their password, is the local admin key in the console's data folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from console.registry.audit import CONSOLE, Actor, note
from console.registry.database import Database
from console.registry.errors import NotFound, WrongState
from console.registry.models import SessionRow, UserRow
from console.registry.passwords import hash_password, matches
from console.registry.records import Role, User

USER_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")


class Users:
    """Creates and changes users. Calls with a password block for about 0.1 s."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    def create(self, name: str, role: Role, password: str | None = None, actor: Actor = CONSOLE) -> User:
        """Add a user. Raises WrongState if the name is taken or unfit, PasswordUnfit."""
        name = name.lower()
        if not USER_NAME.fullmatch(name):
            raise WrongState("A user name has up to 64 letters a-z, digits and . _ @ -; choose another.")
        stored = None if password is None else hash_password(password)
        with self._database.writing() as session:
            if session.get(UserRow, name) is not None:
                raise WrongState(f"There is a user {name} already; see: fallow-console user list")
            row = UserRow(name=name, role=role, password_hash=stored, created_s=self._now(), disabled_s=None)
            session.add(row)
            note(session, self._now(), actor, "user.create", name, role=role, password=stored is not None)
            return _user(row)

    def set_role(self, name: str, role: Role, actor: Actor = CONSOLE) -> User:
        """Change what a user may do, at once, in open sessions and with their keys too. Raises NotFound."""
        with self._database.writing() as session:
            row = _row(session, name)
            if row.role != role:
                note(session, self._now(), actor, "user.role", row.name, before=row.role, role=role)
                row.role = role
            return _user(row)

    def set_password(self, name: str, password: str | None, actor: Actor = CONSOLE) -> User:
        """Change a password, or take it away (None); every session of the user ends. Raises NotFound, PasswordUnfit."""
        stored = None if password is None else hash_password(password)
        with self._database.writing() as session:
            row = _row(session, name)
            row.password_hash = stored
            session.execute(delete(SessionRow).where(SessionRow.user_name == row.name))
            note(session, self._now(), actor, "user.password", row.name, password=stored is not None)
            return _user(row)

    def set_disabled(self, name: str, disabled: bool, actor: Actor = CONSOLE) -> User:
        """Shut a user out, or let them in again; their sessions end, their keys stop working meanwhile."""
        with self._database.writing() as session:
            row = _row(session, name)
            if disabled is (row.disabled_s is None):
                row.disabled_s = self._now() if disabled else None
                session.execute(delete(SessionRow).where(SessionRow.user_name == row.name))
                note(session, self._now(), actor, "user.disable" if disabled else "user.enable", row.name)
            return _user(row)

    def has_password(self, name: str, password: str) -> bool:
        """Whether this is the password of a user who is not disabled. Takes as long for a name nobody has."""
        with self._database.reading() as session:
            row = session.get(UserRow, name.lower()[:64])
        stored = None if row is None or row.disabled_s is not None else row.password_hash
        return matches(password, stored)

    def find(self, name: str) -> User | None:
        """Return a user, or None."""
        with self._database.reading() as session:
            row = session.get(UserRow, name.lower()[:64])
            return None if row is None else _user(row)

    def list(self) -> list[User]:
        """Return all users by name, disabled ones too."""
        with self._database.reading() as session:
            return [_user(row) for row in session.scalars(select(UserRow).order_by(UserRow.name))]


def _row(session: Session, name: str) -> UserRow:
    row = session.get(UserRow, name.lower()[:64], with_for_update=True)
    if row is None:
        raise NotFound(f"There is no user {name[:64]}; see: fallow-console user list")
    return row


def _user(row: UserRow) -> User:
    return User(row.name, cast("Role", row.role), row.created_s, row.disabled_s, row.password_hash is not None)
