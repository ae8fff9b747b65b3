"""What the registry hands out: frozen records. Times are Unix seconds."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from agent.link.identity import DeviceId
from console.registry.approval import NO_RULE, ApprovalRule

DeviceState = Literal["pending", "active", "suspended", "expired", "evicted", "banned", "retired"]
Approval = Literal["auto", "manual"]
Scope = Literal["chat", "admin"]
KeyProtection = Literal["keyring", "file"]


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


class ApiKey(msgspec.Struct, frozen=True):
    """An API key as the console keeps it: without its secret."""

    key_id: str
    name: str
    scopes: list[Scope]
    created_s: float
    expires_s: float | None
    revoked_s: float | None

    def allows(self, scope: Scope) -> bool:
        """Whether the key may do what `scope` stands for. Admin keys may also chat."""
        return scope in self.scopes or "admin" in self.scopes


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


class AuditEntry(msgspec.Struct, frozen=True):
    """One change, as the audit log keeps it."""

    sequence: int
    at_s: float
    actor: str
    action: str
    target: str
    source: str
    detail: dict[str, Any]
