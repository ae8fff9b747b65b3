"""The authority, keys, people, and the audit log. Times are Unix seconds, sizes bytes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from console.api.admin.types.common import Name, Password
from console.registry.records import ApiKey, AuditEntry, Quota, Role, Scope, User


class AuthorityView(msgspec.Struct, frozen=True):
    """The fleet's certificate authority. `pin` is in new invites; `roots` are serial numbers, the signing one first.

    `phase`: `steady`; `announced` (PCs learn the next root); `switched` (the former one is still trusted).
    `next_step_s` is when the next step comes by itself.
    """

    fleet_id: str
    fleet_name: str
    pin: str
    phase: Literal["steady", "announced", "switched"]
    next_step_s: float
    roots: list[str]
    key_protection: str


class Rotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Announce the next root; `at_once`: let it sign at once, because the present one's key may be stolen."""

    at_once: bool = False


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a key may use; None and [] mean no limit."""

    streams: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    tokens_per_day: Annotated[int, msgspec.Meta(ge=0, le=1 << 50)] | None = None
    models: Annotated[list[Name], msgspec.Meta(max_length=100)] = []

    def quota(self) -> Quota:
        return Quota(self.streams, self.tokens_per_day, self.models)


class NewKey(Limits, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Ask for an API key; `days` None: it does not expire. `user`: whose it is (empty: nobody's)."""

    name: Name
    scope: Scope = "chat"
    days: Annotated[float, msgspec.Meta(gt=0, le=3650)] | None = None
    user: Annotated[str, msgspec.Meta(max_length=64)] = ""


class Key(msgspec.Struct, frozen=True):
    """A new key; `secret` is shown only this once."""

    key: ApiKey
    secret: str


class Keys(msgspec.Struct, frozen=True):
    """All keys, without their secrets."""

    keys: list[ApiKey]


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Log in."""

    name: Name
    password: Password

    def __repr__(self) -> str:
        return f"Login(name={self.name!r})"


class Me(msgspec.Struct, frozen=True):
    """Who the sender of a token is and what it may do; `user` is empty for a key of nobody's."""

    key_id: str
    user: str
    scopes: list[Scope]
    quota: Quota = Quota()


class Session(msgspec.Struct, frozen=True):
    """A login. `token` is sent like an API key and shown only this once."""

    token: str
    expires_s: float
    me: Me


class OwnPassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Change one's own password; every session ends, this one too."""

    password: Password
    new_password: Password

    def __repr__(self) -> str:
        return "OwnPassword()"


class NewUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Add a user; without a password they cannot log in, but may own keys."""

    name: Name
    role: Role = "user"
    password: Password | None = None

    def __repr__(self) -> str:
        return f"NewUser(name={self.name!r})"


class UserChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Change what is given; a password of null takes it away."""

    role: Role | msgspec.UnsetType = msgspec.UNSET
    password: Password | msgspec.UnsetType | None = msgspec.UNSET
    disabled: bool | msgspec.UnsetType = msgspec.UNSET

    def __repr__(self) -> str:
        return "UserChange()"


class Users(msgspec.Struct, frozen=True):
    """All users."""

    users: list[User]


class Audit(msgspec.Struct, frozen=True):
    """Entries of the audit log, newest first."""

    entries: list[AuditEntry]


class VerifyAudit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Check the audit log, and that entry `sequence` still has the `hash` noted before (empty: none was)."""

    sequence: Annotated[int, msgspec.Meta(ge=0)] = 0
    hash: Annotated[str, msgspec.Meta(max_length=64)] = ""
