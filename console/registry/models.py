"""Tables of the registry. Only this package sees them; callers get the frozen records of `records.py`.

Times are Unix seconds (float). Ids are text. JSON columns hold what the code never queries by.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, LargeBinary, MetaData, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Named constraints, so that later migrations can refer to them on every database."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {dict[str, Any]: JSON, list[str]: JSON}  # noqa: RUF012 - the attribute SQLAlchemy asks for


class InviteRow(Base):
    """An invite. Only the hash of its secret is kept."""

    __tablename__ = "invites"

    token_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    secret_sha256: Mapped[bytes] = mapped_column(LargeBinary(32))
    approve: Mapped[str] = mapped_column(String(8))
    max_uses: Mapped[int]
    hint: Mapped[str] = mapped_column(String(200))
    created_s: Mapped[float]
    created_by: Mapped[str] = mapped_column(String(200))
    expires_s: Mapped[float]
    revoked_s: Mapped[float | None]
    tags: Mapped[list[str]]
    rule: Mapped[dict[str, Any]]


class InviteUseRow(Base):
    """One use of an invite: a distinct public key."""

    __tablename__ = "invite_uses"

    token_id: Mapped[str] = mapped_column(ForeignKey("invites.token_id"), primary_key=True)
    spki_sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    used_s: Mapped[float]
    source: Mapped[str] = mapped_column(String(200))


class DeviceRow(Base):
    """A PC, bound to one public key; `next_spki_sha256` is a renewed key that was certified and not yet used.

    `mark` is what the PC was last known to remember of its sessions, `next_mark` what it was told since.
    """

    __tablename__ = "devices"

    device_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    spki_sha256: Mapped[str] = mapped_column(String(64), unique=True)
    state: Mapped[str] = mapped_column(String(16), index=True)
    reason: Mapped[str] = mapped_column(Text)
    name: Mapped[str] = mapped_column(String(200))
    facts: Mapped[dict[str, Any]]
    device_code: Mapped[str] = mapped_column(String(16))
    key_protection: Mapped[str] = mapped_column(String(16))
    csr: Mapped[bytes] = mapped_column(LargeBinary)
    token_id: Mapped[str | None] = mapped_column(ForeignKey("invites.token_id"))
    generation: Mapped[int]
    created_s: Mapped[float]
    approved_s: Mapped[float | None]
    seen_s: Mapped[float | None]
    tags: Mapped[list[str]]
    machine_sha256: Mapped[str] = mapped_column(String(64))
    next_spki_sha256: Mapped[str | None] = mapped_column(String(64), unique=True)
    mark: Mapped[str] = mapped_column(String(64))
    next_mark: Mapped[str] = mapped_column(String(64))


class CertificateRow(Base):
    """A certificate the authority has issued to a device. From `retired_s` on its key is a former one."""

    __tablename__ = "certificates"

    serial: Mapped[str] = mapped_column(String(48), primary_key=True)
    device_id: Mapped[str] = mapped_column(ForeignKey("devices.device_id"), index=True)
    pem: Mapped[bytes] = mapped_column(LargeBinary)
    issued_s: Mapped[float]
    not_after_s: Mapped[float]
    spki_sha256: Mapped[str] = mapped_column(String(64), index=True)
    retired_s: Mapped[float | None]


class ApiKeyRow(Base):
    """An API key. Only the hash of the whole key is kept."""

    __tablename__ = "api_keys"

    key_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    key_sha256: Mapped[bytes] = mapped_column(LargeBinary(32))
    name: Mapped[str] = mapped_column(String(200))
    scopes: Mapped[list[str]]
    created_s: Mapped[float]
    expires_s: Mapped[float | None]
    revoked_s: Mapped[float | None]
    user_name: Mapped[str | None] = mapped_column(ForeignKey("users.name"), index=True)
    streams: Mapped[int | None]
    tokens_per_day: Mapped[int | None] = mapped_column(BigInteger)
    models: Mapped[list[str]]


class UserRow(Base):
    """A person who may log in or own keys. `password_hash` is Argon2id in PHC form."""

    __tablename__ = "users"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    role: Mapped[str] = mapped_column(String(16))
    password_hash: Mapped[str | None] = mapped_column(String(200))
    created_s: Mapped[float]
    disabled_s: Mapped[float | None]


class SessionRow(Base):
    """A login. Only the hash of its token is kept."""

    __tablename__ = "sessions"

    session_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    token_sha256: Mapped[bytes] = mapped_column(LargeBinary(32))
    user_name: Mapped[str] = mapped_column(ForeignKey("users.name"), index=True)
    created_s: Mapped[float]
    expires_s: Mapped[float]
    source: Mapped[str] = mapped_column(String(200))


class UsageRow(Base):
    """Tokens one key or person used on one day (UTC, days since 1970)."""

    __tablename__ = "usage"

    key_id: Mapped[str] = mapped_column(String(80), primary_key=True)
    day: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tokens: Mapped[int] = mapped_column(BigInteger)


class FleetRow(Base):
    """Which fleet a shared registry is of: one row."""

    __tablename__ = "fleet"

    fleet_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    fleet_name: Mapped[str] = mapped_column(String(64))


class ConsoleRow(Base):
    """A console that shares the registry, and when it last said that it is there."""

    __tablename__ = "consoles"

    console_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    seen_s: Mapped[float]


class LinkRow(Base):
    """A PC that a console holds now."""

    __tablename__ = "links"

    device_id: Mapped[str] = mapped_column(ForeignKey("devices.device_id"), primary_key=True)
    console_id: Mapped[str] = mapped_column(ForeignKey("consoles.console_id"), primary_key=True)
    connected_s: Mapped[float]


class RootRow(Base):
    """A root certificate of one of the consoles."""

    __tablename__ = "roots"

    spki_sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    console_id: Mapped[str] = mapped_column(ForeignKey("consoles.console_id"))
    pem: Mapped[bytes] = mapped_column(LargeBinary)


class EndorsementRow(Base):
    """One root vouches for another: see `agent.link.authorities`."""

    __tablename__ = "endorsements"

    spki_sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    signer_spki_sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    until_s: Mapped[float]
    signature: Mapped[bytes] = mapped_column(LargeBinary)


class LibraryRow(Base):
    """A layer library the console can serve units from."""

    __tablename__ = "libraries"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    model_id: Mapped[str] = mapped_column(String(400), index=True)
    folder: Mapped[str] = mapped_column(Text)
    added_s: Mapped[float]


class DeploymentRow(Base):
    """A model that one console should serve, with its last plan. `console_id` is empty where there is only one."""

    __tablename__ = "deployments"

    console_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    library_digest: Mapped[str] = mapped_column(ForeignKey("libraries.digest"))
    settings: Mapped[dict[str, Any]]
    plan: Mapped[dict[str, Any] | None]
    epoch: Mapped[int]
    updated_s: Mapped[float]


class PolicyRow(Base):
    """What the administrator wants of the PCs with a tag, or of all (`tag` is empty). Revisions grow over all rows."""

    __tablename__ = "policies"

    tag: Mapped[str] = mapped_column(String(64), primary_key=True)
    wishes: Mapped[dict[str, Any]]
    revision: Mapped[int] = mapped_column(BigInteger)
    updated_s: Mapped[float]


class DeliveryRow(Base):
    """A delivery of a model's layers to PCs; `done` names those that were tried, with the problem (empty: none)."""

    __tablename__ = "deliveries"

    delivery_id: Mapped[str] = mapped_column(String(16), primary_key=True)
    console_id: Mapped[str] = mapped_column(String(32), index=True)
    model_id: Mapped[str] = mapped_column(String(400))
    library_digest: Mapped[str] = mapped_column(String(64))
    first: Mapped[int]
    last: Mapped[int]
    devices: Mapped[list[str]]
    done: Mapped[dict[str, Any]]
    begun_s: Mapped[float]
    ended_s: Mapped[float | None]
    stopped: Mapped[str] = mapped_column(Text)


class ReleaseRow(Base):
    """A signed release of the agent that PCs may be offered, and how far: see `console.fleet.rollout`."""

    __tablename__ = "releases"

    release_id: Mapped[str] = mapped_column(String(16), primary_key=True)
    signed: Mapped[bytes] = mapped_column(LargeBinary)
    description: Mapped[dict[str, Any]]
    sha256: Mapped[str] = mapped_column(String(64), index=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    sequence: Mapped[int] = mapped_column(BigInteger)
    expires_s: Mapped[float]
    file: Mapped[str] = mapped_column(Text)
    ring: Mapped[str] = mapped_column(String(8))
    percent: Mapped[int]
    added_s: Mapped[float]
    withdrawn_s: Mapped[float | None]


class AuditRow(Base):
    """One change: who, what, to what, from where. Never prompt text, never a secret."""

    __tablename__ = "audit"
    __table_args__ = (Index("ix_audit_at_s", "at_s"),)

    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at_s: Mapped[float]
    actor: Mapped[str] = mapped_column(String(200))
    action: Mapped[str] = mapped_column(String(64))
    target: Mapped[str] = mapped_column(String(400))
    source: Mapped[str] = mapped_column(String(200))
    detail: Mapped[dict[str, Any]]
    hash: Mapped[str] = mapped_column(String(64))


class AuditHeadRow(Base):
    """The last entry of the audit log. There is one such row; whoever adds entries holds its lock."""

    __tablename__ = "audit_head"

    name: Mapped[str] = mapped_column(String(8), primary_key=True)
    sequence: Mapped[int]
    hash: Mapped[str] = mapped_column(String(64))


class AuditWordRow(Base):
    """The index of the full-text search: the entries a word is in.

    Words are bytes (UTF-8), which every database orders alike, whatever its language settings; a search for a
    beginning is then one range of the primary key.
    """

    __tablename__ = "audit_words"

    word: Mapped[bytes] = mapped_column(LargeBinary(64), primary_key=True)
    sequence: Mapped[int] = mapped_column(ForeignKey("audit.sequence"), primary_key=True)
