"""Keys and certificates of devices: what was issued, how a key is renewed, and when an old one gives two PCs away.

A renewal certifies a new key beside the present one; the new key takes over with its first use, and the former one
is good for an hour more. The generation counts certificates: a PC that renews must name the one it has. One that names
an older, or shows a key whose successor is in use, is a copy (or the original of one).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from agent.link.identity import DeviceId
from console.registry.audit import CONSOLE, Actor, note
from console.registry.database import Database
from console.registry.device_rows import device_row, owner_of_key
from console.registry.errors import Cloned, RequestRefused
from console.registry.models import CertificateRow, DeviceRow
from console.registry.records import CertificateRecord

FORMER_KEY_GRACE_S = 3600.0

KeyUse = Literal["current", "former", "outdated", "unknown"]


class DeviceKeys:
    """Records of devices' keys and certificates."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    def add_certificate(self, certificate: CertificateRecord) -> None:
        """Remember a certificate for a device's present key and raise its generation. Raises NotFound."""
        with self._database.writing() as session:
            self._add(session, device_row(session, certificate.device_id), certificate)

    def newest_certificate(self, device_id: DeviceId, spki_sha256: str | None = None) -> CertificateRecord | None:
        """Return the certificate issued last to a device (for this key, if one is given), or None."""
        with self._database.reading() as session:
            return _newest(session, device_id, spki_sha256)

    def request_of(self, device_id: DeviceId) -> bytes:
        """Return the certificate request (DER) a device came with. Raises NotFound."""
        with self._database.reading() as session:
            return device_row(session, device_id).csr

    def generation(self, device_id: DeviceId) -> int:
        """Return how many certificates a device was given. Raises NotFound."""
        with self._database.reading() as session:
            return device_row(session, device_id).generation

    def use(self, device_id: DeviceId, spki_sha256: str) -> KeyUse:
        """Say what a key is to a device that just proved it; a renewed key becomes the present one by this.

        `former`: replaced within the last hour. `outdated`: replaced before that.
        """
        with self._database.writing() as session:
            row = device_row(session, device_id)
            if spki_sha256 == row.spki_sha256:
                return "current"
            if spki_sha256 == row.next_spki_sha256:
                self._take_over(session, row)
                return "current"
            retired_s = session.scalars(
                select(CertificateRow.retired_s)
                .where(CertificateRow.device_id == device_id, CertificateRow.spki_sha256 == spki_sha256)
                .order_by(CertificateRow.issued_s.desc())
                .limit(1)
            ).one_or_none()
            if retired_s is None:
                return "unknown"
            return "former" if self._now() < retired_s + FORMER_KEY_GRACE_S else "outdated"

    def renew(
        self,
        device_id: DeviceId,
        *,
        signer: str,
        wanted: str,
        generation: int,
        issue: Callable[[], CertificateRecord],
        source: str = "",
    ) -> CertificateRecord:
        """Certify a new key for a device, once: the same request again gets the same certificate.

        `signer` and `wanted` are the hashes of the key that signed the request and of the key in it, `generation` the
        number of the certificate the PC has; `issue` signs. Raises Cloned if another PC has renewed meanwhile,
        RequestRefused for a key that belongs to another device, NotFound.
        """
        with self._database.writing() as session:
            row = device_row(session, device_id)
            if wanted in (row.spki_sha256, row.next_spki_sha256):
                known = _newest(session, device_id, wanted)
                if known is not None and known.not_after_s > self._now():
                    return known
            elif signer != row.spki_sha256 or generation < row.generation:
                raise Cloned(
                    f"it renewed certificate {generation} with the key {signer[:16]}, number {row.generation} is out",
                )
            elif owner_of_key(session, wanted) is not None:
                raise RequestRefused("The new key is in use already; make another one.")
            certificate = issue()
            row.next_spki_sha256 = None if wanted == row.spki_sha256 else wanted
            row.generation = max(row.generation, generation)
            self._add(session, row, certificate, Actor("agent", source))
            return certificate

    def _take_over(self, session: Session, row: DeviceRow) -> None:
        former = select(CertificateRow).where(
            CertificateRow.device_id == row.device_id, CertificateRow.spki_sha256 == row.spki_sha256
        )
        for certificate in session.scalars(former):
            certificate.retired_s = self._now()
        row.spki_sha256, row.next_spki_sha256 = str(row.next_spki_sha256), None
        note(session, self._now(), CONSOLE, "device.key", row.device_id, key=row.spki_sha256[:16])

    def _add(self, session: Session, row: DeviceRow, certificate: CertificateRecord, actor: Actor = CONSOLE) -> None:
        row.generation += 1
        session.add(
            CertificateRow(
                serial=certificate.serial,
                device_id=certificate.device_id,
                pem=certificate.pem,
                issued_s=certificate.issued_s,
                not_after_s=certificate.not_after_s,
                spki_sha256=certificate.spki_sha256,
                retired_s=None,
            )
        )
        note(
            session, self._now(), actor, "certificate.issue", row.device_id,
            serial=certificate.serial, generation=row.generation,
        )  # fmt: skip


def _newest(session: Session, device_id: DeviceId, spki_sha256: str | None) -> CertificateRecord | None:
    query = select(CertificateRow).where(CertificateRow.device_id == device_id)
    if spki_sha256 is not None:
        query = query.where(CertificateRow.spki_sha256 == spki_sha256)
    row = session.scalars(query.order_by(CertificateRow.issued_s.desc()).limit(1)).one_or_none()
    if row is None:
        return None
    return CertificateRecord(
        row.serial, DeviceId(row.device_id), row.pem, row.issued_s, row.not_after_s, row.spki_sha256
    )
