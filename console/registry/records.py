"""What the registry hands out: frozen records. Times are Unix seconds."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from agent.link.identity import DeviceId
from agent.update.releases import Description
from agent.volunteer.policy import Wishes
from console.registry.approval import NO_RULE, ApprovalRule

DeviceState = Literal["pending", "active", "suspended", "expired", "evicted", "banned", "retired"]
Ring = Literal["held", "canary", "early", "broad"]
Approval = Literal["auto", "manual"]
Scope = Literal["chat", "view", "operate", "audit", "admin"]
Role = Literal["owner", "operator", "auditor", "user"]
KeyProtection = Literal["credential", "keyring", "file"]

ROLE_SCOPES: dict[Role, frozenset[Scope]] = {
    "owner": frozenset({"chat", "view", "operate", "audit", "admin"}),
    "operator": frozenset({"chat", "view", "operate"}),
    "auditor": frozenset({"view", "audit"}),
    "user": frozenset({"chat"}),
}
"""What each role may do. `chat`: use the models; `view`: see the fleet; `operate`: enrol PCs, add and deploy models;
`audit`: read the audit log; `admin`: users and keys, and everything else."""


class DeviceRecord(msgspec.Struct, frozen=True):
    """A PC of the fleet. The id is random and stays; the certificate may change; the key is what proves it.

    `device_code` is what the employee sees on the PC. `reason` explains states other than active. `generation`
    counts issued certificates. `machine_sha256` is a hint which records may be of one machine, and proves nothing.
    """

    device_id: DeviceId
    spki_sha256: str
    state: DeviceState
    reason: str
    name: str
    facts: dict[str, Any]
    device_code: str
    key_protection: KeyProtection
    token_id: str | None
    generation: int
    created_s: float
    approved_s: float | None
    seen_s: float | None
    tags: list[str] = []
    machine_sha256: str = ""


class InviteRecord(msgspec.Struct, frozen=True):
    """An invite as the console keeps it: without its secret."""

    token_id: str
    approve: Approval
    max_uses: int
    uses: int
    hint: str
    created_s: float
    created_by: str
    expires_s: float
    revoked_s: float | None
    tags: list[str] = []
    rule: ApprovalRule = NO_RULE


class InviteSecret(msgspec.Struct, frozen=True):
    """A new invite's two halves; the secret exists only here and in the invite text."""

    token_id: bytes
    secret: bytes
    expires_s: float

    def __repr__(self) -> str:
        return f"InviteSecret(token_id={self.token_id.hex()})"


class CertificateRecord(msgspec.Struct, frozen=True):
    """A certificate issued to a device, for the key with this hash (hex SHA-256 of its SPKI)."""

    serial: str
    device_id: DeviceId
    pem: bytes
    issued_s: float
    not_after_s: float
    spki_sha256: str


class Quota(msgspec.Struct, frozen=True):
    """What a key may use: answers at once, tokens (of prompts and answers) a day, models by id. None, []: no limit."""

    streams: int | None = None
    tokens_per_day: int | None = None
    models: list[str] = []


class ApiKey(msgspec.Struct, frozen=True):
    """An API key as the console keeps it: without its secret. `user` (a name) is whose it is; empty: nobody's."""

    key_id: str
    name: str
    scopes: list[Scope]
    created_s: float
    expires_s: float | None
    revoked_s: float | None
    user: str = ""
    quota: Quota = Quota()
    tokens_today: int = 0


class User(msgspec.Struct, frozen=True):
    """A person. Without a password there is no logging in, only keys."""

    name: str
    role: Role
    created_s: float
    disabled_s: float | None
    has_password: bool


class SessionRecord(msgspec.Struct, frozen=True):
    """Somebody's login. Times are Unix seconds."""

    session_id: str
    user: str
    created_s: float
    expires_s: float


class Principal(msgspec.Struct, frozen=True):
    """Who asks: the holder of a live key or session, with what both the key and its user's role allow now.

    `key_id` is the key's id, or `user:<name>` for a session: queues, quotas and counted tokens go by it.
    """

    key_id: str
    user: str
    scopes: frozenset[Scope]
    quota: Quota = Quota()
    session_id: str = ""

    def allows(self, scope: Scope) -> bool:
        """Whether this one may do what `scope` stands for; `admin` allows everything."""
        return scope in self.scopes or "admin" in self.scopes

    @property
    def actor_name(self) -> str:
        """How the audit log names this one."""
        if self.session_id:
            return f"user:{self.user}"
        return f"user:{self.user} key:{self.key_id}" if self.user else f"key:{self.key_id}"


class LibraryRecord(msgspec.Struct, frozen=True):
    """A layer library the console serves: `digest` is the SHA-256 of its manifest's bytes."""

    digest: str
    model_id: str
    folder: str
    added_s: float


class Deployment(msgspec.Struct, frozen=True):
    """A model that should be served. `settings` is what the admin asked for, `plan` the last plan (plain JSON)."""

    name: str
    library_digest: str
    settings: dict[str, Any]
    plan: dict[str, Any] | None = None
    epoch: int = 0
    updated_s: float = 0.0


class PolicyRecord(msgspec.Struct, frozen=True):
    """What the administrator wants of the PCs with `tag`, or of all (empty)."""

    tag: str
    wishes: Wishes
    revision: int
    updated_s: float


class ReleaseRecord(msgspec.Struct, frozen=True):
    """A signed release; nothing of what it says of itself was checked here. `file` is its archive on the console."""

    release_id: str
    signed: bytes
    description: Description
    sha256: str
    size_bytes: int
    sequence: int
    expires_s: float
    file: str
    ring: Ring
    percent: int
    added_s: float
    withdrawn_s: float | None


class DeliveryRecord(msgspec.Struct, frozen=True):
    """Layers `first <= i < last` for these PCs. `done` names those that were tried, with the problem (empty: none)."""

    delivery_id: str
    model_id: str
    library_digest: str
    first: int
    last: int
    devices: list[str]
    done: dict[str, str]
    begun_s: float
    ended_s: float | None = None
    stopped: str = ""


class AuditEntry(msgspec.Struct, frozen=True):
    """One change, as the audit log keeps it. `hash` binds it to the entry before; see `chain.py`."""

    sequence: int
    at_s: float
    actor: str
    action: str
    target: str
    source: str
    detail: dict[str, Any]
    hash: str = ""
