"""Devices: the PCs of the fleet, each bound to one public key, and the states they go through.

    (request) ─► pending ─approve─► active ◄─resume─ suspended
                    │ deny             │ suspend ──────▲
                    ▼                  ▼ evict / ban / retire
                 evicted            evicted, banned, retired

An evicted, expired or retired device may come back with a new invite; a banned key never does.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Literal, cast

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from agent.link.identity import DeviceId
from console.registry.audit import CONSOLE, Actor, note
from console.registry.database import Database
from console.registry.errors import NotFound, WrongState
from console.registry.models import CertificateRow, DeviceRow
from console.registry.records import CertificateRecord, DeviceRecord, DeviceState, KeyProtection

PENDING_LIFE_S = 7 * 86_400.0
_MAY_RETURN = frozenset({"evicted", "expired", "retired"})
_MIN_PREFIX = 4


class DeviceRequest(msgspec.Struct, frozen=True):
    """What a PC asks to join with. `csr` is DER, `spki_sha256` hex; `facts` come from the PC and prove nothing."""

    spki_sha256: str
    csr: bytes
    device_code: str
    name: str
    facts: dict[str, Any]
    key_protection: KeyProtection
    token_id: str


class Devices:
    """Records of devices and their certificates."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    def add_pending(self, request: DeviceRequest, *, source: str = "") -> DeviceRecord:
        """Return the device of this key: the known one, or a new one in state pending.

        A device that was evicted, expired or retired becomes pending again if it comes with another invite than the
        one it had. Check the state of what is returned: a banned key stays banned.
        """
        actor = Actor("agent", source)
        with self._database.writing() as session:
            row = session.scalars(select(DeviceRow).where(DeviceRow.spki_sha256 == request.spki_sha256)).one_or_none()
            if row is None:
                row = self._new_row(request)
                session.add(row)
                note(session, self._now(), actor, "device.request", row.device_id, code=row.device_code, name=row.name)
            elif row.state in _MAY_RETURN and row.token_id != request.token_id:
                row.state, row.reason, row.token_id = "pending", "", request.token_id
                row.csr, row.created_s, row.approved_s = request.csr, self._now(), None
                note(session, self._now(), actor, "device.return", row.device_id, code=row.device_code)
            return _device(row)

    def _new_row(self, request: DeviceRequest) -> DeviceRow:
        return DeviceRow(
            device_id=secrets.token_hex(8),
            spki_sha256=request.spki_sha256,
            state="pending",
            reason="",
            name=request.name[:200],
            facts=request.facts,
            device_code=request.device_code,
            key_protection=request.key_protection,
            csr=request.csr,
            token_id=request.token_id,
            generation=0,
            created_s=self._now(),
            approved_s=None,
            seen_s=None,
        )

    def approve(self, device_id: DeviceId, actor: Actor = CONSOLE) -> DeviceRecord:
        """Let a pending device in; approving an active one changes nothing. Raises NotFound or WrongState."""
        with self._database.writing() as session:
            row = _row(session, device_id)
            if row.state == "active":
                return _device(row)
            _expect(row, "approved", "pending")
            row.state, row.reason, row.approved_s = "active", "", self._now()
            note(session, self._now(), actor, "device.approve", device_id, code=row.device_code)
            return _device(row)

    def deny(self, device_id: DeviceId, reason: str, actor: Actor = CONSOLE) -> DeviceRecord:
        """Turn a pending device away, with a reason its user will read. Raises NotFound or WrongState."""
        return self._move(device_id, "evicted", before=("pending",), reason=reason, actor=actor, action="device.deny")

    def suspend(self, device_id: DeviceId, reason: str, actor: Actor = CONSOLE) -> DeviceRecord:
        """Keep an active device out for a while. Raises NotFound or WrongState."""
        return self._move(
            device_id, "suspended", before=("active",), reason=reason, actor=actor, action="device.suspend"
        )

    def resume(self, device_id: DeviceId, actor: Actor = CONSOLE) -> DeviceRecord:
        """Let a suspended device in again. Raises NotFound or WrongState."""
        return self._move(device_id, "active", before=("suspended",), reason="", actor=actor, action="device.resume")

    def revoke(
        self, device_id: DeviceId, how: Literal["evict", "ban", "retire"], reason: str = "", actor: Actor = CONSOLE
    ) -> DeviceRecord:
        """Take a device out: `evict` and `retire` let it come back with a new invite, `ban` refuses its key for ever.

        The caller closes the device's open links. Raises NotFound, or WrongState for a banned device.
        """
        states: dict[str, DeviceState] = {"evict": "evicted", "ban": "banned", "retire": "retired"}
        before: tuple[DeviceState, ...] = ("pending", "active", "suspended", "expired", "evicted", "retired")
        return self._move(device_id, states[how], before=before, reason=reason, actor=actor, action=f"device.{how}")

    def expire_pending(self) -> None:
        """Turn away requests nobody has approved within 7 days."""
        old = select(DeviceRow).where(DeviceRow.state == "pending", DeviceRow.created_s < self._now() - PENDING_LIFE_S)
        with self._database.reading() as session:
            found = [DeviceId(row.device_id) for row in session.scalars(old)]
        for device_id in found:
            self.deny(device_id, "Nobody approved the request within 7 days.")

    def _move(
        self,
        device_id: DeviceId,
        state: DeviceState,
        *,
        before: tuple[DeviceState, ...],
        reason: str,
        actor: Actor,
        action: str,
    ) -> DeviceRecord:
        with self._database.writing() as session:
            row = _row(session, device_id)
            _expect(row, state, *before)
            row.state, row.reason = state, reason[:400]
            note(session, self._now(), actor, action, device_id, reason=reason[:400])
            return _device(row)

    def seen(
        self, device_id: DeviceId, *, name: str = "", facts: dict[str, Any] | None = None,
        key_protection: KeyProtection | None = None,
    ) -> None:  # fmt: skip
        """Note that a device is connected now, and what it says about itself. Unknown ids are ignored."""
        with self._database.writing() as session:
            row = session.get(DeviceRow, device_id)
            if row is not None:
                row.seen_s = self._now()
                row.name = name[:200] or row.name
                row.facts = row.facts if facts is None else facts
                row.key_protection = key_protection or row.key_protection

    def add_certificate(self, certificate: CertificateRecord) -> None:
        """Remember a certificate issued to a device and raise its generation. Raises NotFound."""
        with self._database.writing() as session:
            row = _row(session, certificate.device_id)
            row.generation += 1
            session.add(
                CertificateRow(
                    serial=certificate.serial,
                    device_id=certificate.device_id,
                    pem=certificate.pem,
                    issued_s=certificate.issued_s,
                    not_after_s=certificate.not_after_s,
                )
            )
            note(session, self._now(), CONSOLE, "certificate.issue", certificate.device_id, serial=certificate.serial)

    def newest_certificate(self, device_id: DeviceId) -> CertificateRecord | None:
        """Return the certificate issued last to a device, or None."""
        newest = (
            select(CertificateRow)
            .where(CertificateRow.device_id == device_id)
            .order_by(CertificateRow.issued_s.desc())
            .limit(1)
        )
        with self._database.reading() as session:
            row = session.scalars(newest).one_or_none()
        if row is None:
            return None
        return CertificateRecord(row.serial, DeviceId(row.device_id), row.pem, row.issued_s, row.not_after_s)

    def request_of(self, device_id: DeviceId) -> bytes:
        """Return the certificate request (DER) a device came with. Raises NotFound."""
        with self._database.reading() as session:
            return _row(session, device_id).csr

    def find(self, device_id: DeviceId) -> DeviceRecord | None:
        """Return the device with this id, or None."""
        with self._database.reading() as session:
            row = session.get(DeviceRow, device_id)
            return None if row is None else _device(row)

    def by_spki(self, spki_sha256: str) -> DeviceRecord | None:
        """Return the device of this key (hex SHA-256 of its SPKI), or None."""
        with self._database.reading() as session:
            row = session.scalars(select(DeviceRow).where(DeviceRow.spki_sha256 == spki_sha256)).one_or_none()
            return None if row is None else _device(row)

    def resolve(self, text: str) -> DeviceRecord:
        """Find a device by what an administrator types: its id, a beginning of it, or its device code.

        Raises NotFound for none and for more than one.
        """
        wanted = text.strip()
        matches = [
            device
            for device in self.list()
            if (len(wanted) >= _MIN_PREFIX and device.device_id.startswith(wanted.lower()))
            or device.device_code.replace("-", "") == wanted.upper().replace("-", "")
        ]
        if len(matches) != 1:
            problem = "No device has" if not matches else f"{len(matches)} devices have"
            raise NotFound(f"{problem} the id or code {wanted!r}; see `fallow-console agents`.")
        return matches[0]

    def list(self, *states: DeviceState) -> list[DeviceRecord]:
        """Return the devices in these states (all if none are given), the oldest first."""
        query = select(DeviceRow).order_by(DeviceRow.created_s, DeviceRow.device_id)
        if states:
            query = query.where(DeviceRow.state.in_(states))
        with self._database.reading() as session:
            return [_device(row) for row in session.scalars(query)]


def _row(session: Session, device_id: DeviceId) -> DeviceRow:
    row = session.get(DeviceRow, device_id, with_for_update=True)
    if row is None:
        raise NotFound(f"There is no device {device_id}; see `fallow-console agents`.")
    return row


def _expect(row: DeviceRow, wanted: str, *states: str) -> None:
    if row.state not in states:
        raise WrongState(
            f"The device {row.device_id} is {row.state} and cannot be {wanted}; see `fallow-console agents`."
        )


def _device(row: DeviceRow) -> DeviceRecord:
    return DeviceRecord(
        device_id=DeviceId(row.device_id),
        spki_sha256=row.spki_sha256,
        state=cast("DeviceState", row.state),
        reason=row.reason,
        name=row.name,
        facts=row.facts,
        device_code=row.device_code,
        key_protection=cast("KeyProtection", row.key_protection),
        token_id=row.token_id,
        generation=row.generation,
        created_s=row.created_s,
        approved_s=row.approved_s,
        seen_s=row.seen_s,
    )
