"""Rows of devices in a session: by id, by key, and as the record that callers get."""

from __future__ import annotations

from typing import cast

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from agent.link.identity import DeviceId
from console.registry.errors import NotFound
from console.registry.models import CertificateRow, DeviceRow
from console.registry.records import DeviceRecord, DeviceState, KeyProtection


def owner_of_key(session: Session, spki_sha256: str) -> DeviceRow | None:
    """Return the device that has this key, is to have it, or once had it."""
    had = select(CertificateRow.device_id).where(CertificateRow.spki_sha256 == spki_sha256)
    keys = (DeviceRow.spki_sha256 == spki_sha256, DeviceRow.next_spki_sha256 == spki_sha256)
    return session.scalars(select(DeviceRow).where(or_(*keys, DeviceRow.device_id.in_(had))).limit(1)).one_or_none()


def device_row(session: Session, device_id: DeviceId) -> DeviceRow:
    """Return a device's row, locked for a change. Raises NotFound."""
    row = session.get(DeviceRow, device_id, with_for_update=True)
    if row is None:
        raise NotFound(f"There is no device {device_id}; see `fallow-console agents`.")
    return row


def device_record(row: DeviceRow) -> DeviceRecord:
    """Return the frozen record of a row."""
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
        tags=row.tags,
        machine_sha256=row.machine_sha256,
    )
