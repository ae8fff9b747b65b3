"""Devices: the PCs of the fleet, each bound to one public key, and the states they go through.

    (request) ─► pending ─approve─► active ◄─resume─ suspended
                    │ deny          ▲  │ suspend, quarantine ─▲
                    │       approve │  │ expire
                    ▼               │  ▼
                 evicted          expired          any but banned ─evict, ban, retire─► evicted, banned, retired

A suspended PC comes back as it was. An expired one was away too long: an administrator's approval or a new invite
lets it in again. An evicted or retired one needs a new invite. A banned PC never returns with any key it had. A PC
that no longer wants to join retires by itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import msgspec
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from agent.link.identity import DeviceId
from console.registry.audit import CONSOLE, Actor, note
from console.registry.database import Database
from console.registry.device_names import device_names
from console.registry.device_rows import device_record, device_row, owner_of_key
from console.registry.errors import WrongState
from console.registry.invites import clean_tags
from console.registry.models import CertificateRow, DeviceRow
from console.registry.records import DeviceRecord, DeviceState, KeyProtection

PENDING_LIFE_S = 7 * 86_400.0
RENEWAL_GRACE_S = 90 * 86_400.0
"""How long after its certificate's end a PC may still renew it by itself."""
CLONED = (
    "Two PCs use this identity: a data folder was copied or a disk image restored. Both are held; enrol the copy anew "
    "with `fallow-agent enrol --force`, then let an administrator resume this one."
)
WITHDRAWN = "Its owner no longer wanted it to join."
_MAY_RETURN = frozenset({"evicted", "expired", "retired"})


class DeviceRequest(msgspec.Struct, frozen=True):
    """What a PC asks to join with. `csr` is DER, `spki_sha256` hex; `facts` come from the PC and prove nothing."""

    spki_sha256: str
    csr: bytes
    device_code: str
    name: str
    facts: dict[str, Any]
    key_protection: KeyProtection
    token_id: str
    tags: list[str] = []
    machine_sha256: str = ""


class Devices:
    """Records of devices and their certificates."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    def add_pending(self, request: DeviceRequest, *, source: str = "") -> DeviceRecord:
        """Return the device of this key: the known one, or a new one in state pending.

        A device that was evicted, expired or retired becomes pending again if it comes with another invite than the
        one it had. Check the state of what is returned: a banned PC stays banned, whichever of its keys it shows.
        """
        try:
            return self._add_pending(request, Actor("agent", source))
        except IntegrityError:
            # Another console took in the same request at the same moment: now it is known.
            return self._add_pending(request, Actor("agent", source))

    def _add_pending(self, request: DeviceRequest, actor: Actor) -> DeviceRecord:
        with self._database.writing() as session:
            row = owner_of_key(session, request.spki_sha256)
            if row is None:
                row = self._new_row(request)
                session.add(row)
                note(session, self._now(), actor, "device.request", row.device_id, code=row.device_code, name=row.name)
            elif row.state in _MAY_RETURN and row.token_id != request.token_id:
                row.state, row.reason, row.token_id = "pending", "", request.token_id
                row.csr, row.created_s, row.approved_s = request.csr, self._now(), None
                row.spki_sha256, row.next_spki_sha256 = request.spki_sha256, None
                row.tags, row.mark, row.next_mark = clean_tags(request.tags), "", ""
                note(session, self._now(), actor, "device.return", row.device_id, code=row.device_code)
            return device_record(row)

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
            tags=clean_tags(request.tags),
            machine_sha256=request.machine_sha256,
            next_spki_sha256=None,
            mark="",
            next_mark="",
        )

    def approve(self, device_id: DeviceId, actor: Actor = CONSOLE) -> DeviceRecord:
        """Let a pending or expired device in; an active one stays as it is. Raises NotFound or WrongState."""
        with self._database.writing() as session:
            row = device_row(session, device_id)
            if row.state == "active":
                return device_record(row)
            _expect(row, "approved", "pending", "expired")
            row.state, row.reason, row.approved_s = "active", "", self._now()
            note(session, self._now(), actor, "device.approve", device_id, code=row.device_code)
            return device_record(row)

    def deny(self, device_id: DeviceId, reason: str, actor: Actor = CONSOLE) -> DeviceRecord:
        """Turn a pending device away, with a reason its user will read. Raises NotFound or WrongState."""
        return self._move(device_id, "evicted", before=("pending",), reason=reason, actor=actor, action="device.deny")

    def withdraw(self, device_id: DeviceId, actor: Actor = CONSOLE) -> DeviceRecord:
        """Take back what a PC asked for, in its own name, also if it was let in meanwhile and does not know it yet.

        Raises NotFound or WrongState.
        """
        return self._move(
            device_id, "retired", before=("pending", "active"), reason=WITHDRAWN, actor=actor, action="device.withdraw"
        )

    def suspend(self, device_id: DeviceId, reason: str, actor: Actor = CONSOLE) -> DeviceRecord:
        """Keep an active device out for a while. Raises NotFound or WrongState."""
        return self._move(
            device_id, "suspended", before=("active",), reason=reason, actor=actor, action="device.suspend"
        )

    def resume(self, device_id: DeviceId, actor: Actor = CONSOLE) -> DeviceRecord:
        """Let a suspended device in again. Of two that share an identity the first to come is taken for the right one.

        Raises NotFound or WrongState.
        """
        with self._database.writing() as session:
            row = device_row(session, device_id)
            _expect(row, "active", "suspended")
            row.state, row.reason, row.mark, row.next_mark = "active", "", "", ""
            note(session, self._now(), actor, "device.resume", device_id)
            return device_record(row)

    def quarantine(self, device_id: DeviceId, evidence: str, *, source: str = "") -> None:
        """Hold a device two PCs claim to be, with CLONED as its reason; `evidence` is for the administrator.

        A device that is not active stays as it is. The caller closes the device's open links.
        """
        with self._database.writing() as session:
            row = session.get(DeviceRow, device_id, with_for_update=True)
            if row is not None and row.state == "active":
                row.state, row.reason = "suspended", CLONED
                note(session, self._now(), Actor("console", source), "device.quarantine", device_id, evidence=evidence)

    def revoke(
        self, device_id: DeviceId, how: Literal["evict", "ban", "retire"], reason: str = "", actor: Actor = CONSOLE
    ) -> DeviceRecord:
        """Take a device out: `evict` and `retire` let it come back with a new invite, `ban` refuses its key for ever.

        The caller closes the device's open links. Raises NotFound, or WrongState for a banned device.
        """
        states: dict[str, DeviceState] = {"evict": "evicted", "ban": "banned", "retire": "retired"}
        before: tuple[DeviceState, ...] = ("pending", "active", "suspended", "expired", "evicted", "retired")
        return self._move(device_id, states[how], before=before, reason=reason, actor=actor, action=f"device.{how}")

    def expire(self) -> None:
        """Turn away requests nobody has approved within 7 days, and hold PCs that were away too long to renew."""
        now_s = self._now()
        old = select(DeviceRow).where(DeviceRow.state == "pending", DeviceRow.created_s < now_s - PENDING_LIFE_S)
        newest = select(CertificateRow.device_id, func.max(CertificateRow.not_after_s).label("end_s"))
        ends = newest.group_by(CertificateRow.device_id).subquery()
        away = (
            select(DeviceRow)
            .join(ends, ends.c.device_id == DeviceRow.device_id)
            .where(DeviceRow.state == "active", ends.c.end_s < now_s - RENEWAL_GRACE_S)
            .where(func.coalesce(DeviceRow.approved_s, 0.0) < now_s - RENEWAL_GRACE_S)
        )
        with self._database.reading() as session:
            unwanted = [DeviceId(row.device_id) for row in session.scalars(old)]
            gone = [DeviceId(row.device_id) for row in session.scalars(away)]
        for device_id in unwanted:
            self.deny(device_id, "Nobody approved the request within 7 days.")
        for device_id in gone:
            self._move(device_id, "expired", before=("active",), reason="", actor=CONSOLE, action="device.expire")

    def merge(self, device_id: DeviceId, former_id: DeviceId, actor: Actor = CONSOLE) -> DeviceRecord:
        """Give a device the tags of the record it had before it was enrolled anew, and retire that one.

        Raises NotFound, or WrongState for a banned former record or the same one.
        """
        with self._database.writing() as session:
            row, former = device_row(session, device_id), device_row(session, former_id)
            _expect(
                former, "merged", *(() if row is former else ("active", "suspended", "expired", "evicted", "retired"))
            )
            row.tags = clean_tags([*row.tags, *former.tags])
            former.state, former.reason, former.tags = "retired", f"Enrolled anew as {device_id}.", []
            note(session, self._now(), actor, "device.merge", device_id, former=former_id)
            return device_record(row)

    def set_tags(self, device_id: DeviceId, tags: Sequence[str], actor: Actor = CONSOLE) -> DeviceRecord:
        """Replace a device's tags. Raises NotFound."""
        with self._database.writing() as session:
            row = device_row(session, device_id)
            row.tags = clean_tags(tags)
            note(session, self._now(), actor, "device.tag", device_id, tags=row.tags)
            return device_record(row)

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
            row = device_row(session, device_id)
            _expect(row, state, *before)
            row.state, row.reason = state, reason[:400]
            note(session, self._now(), actor, action, device_id, reason=reason[:400])
            return device_record(row)

    def find(self, device_id: DeviceId) -> DeviceRecord | None:
        """Return the device with this id, or None."""
        with self._database.reading() as session:
            row = session.get(DeviceRow, device_id)
            return None if row is None else device_record(row)

    def by_spki(self, spki_sha256: str) -> DeviceRecord | None:
        """Return the device that has or had this key (hex SHA-256 of its SPKI), or None."""
        with self._database.reading() as session:
            row = owner_of_key(session, spki_sha256)
            return None if row is None else device_record(row)

    def resolve(self, text: str) -> DeviceRecord:
        """Find a device by what an administrator types: its id, a beginning of it, or its device code.

        Raises NotFound for none and for more than one.
        """
        with self._database.reading() as session:
            return device_record(session.get_one(DeviceRow, device_names(session).find(text)))

    def ids_of(self, texts: Sequence[str]) -> Sequence[DeviceId]:
        """Find the device of each text, as `resolve` does, in one look at the table. Raises NotFound."""
        if not texts:
            return []
        with self._database.reading() as session:
            names = device_names(session)
        return [names.find(text) for text in texts]

    def count(self) -> int:
        """Return how many devices there are, in whatever state."""
        with self._database.reading() as session:
            return session.scalar(select(func.count()).select_from(DeviceRow)) or 0

    def count_by_state(self) -> dict[DeviceState, int]:
        """Count the devices in each state that any of them is in."""
        with self._database.reading() as session:
            rows = session.execute(select(DeviceRow.state, func.count()).group_by(DeviceRow.state))
            return {cast(DeviceState, state): count for state, count in rows}

    def tags(self) -> dict[DeviceId, list[str]]:
        """Return the tags of every device."""
        with self._database.reading() as session:
            rows = session.execute(select(DeviceRow.device_id, DeviceRow.tags))
            return {DeviceId(device_id): list(tags) for device_id, tags in rows}

    def list(self, *states: DeviceState) -> list[DeviceRecord]:
        """Return the devices in these states (all if none are given), the oldest first."""
        query = select(DeviceRow).order_by(DeviceRow.created_s, DeviceRow.device_id)
        if states:
            query = query.where(DeviceRow.state.in_(states))
        with self._database.reading() as session:
            return [device_record(row) for row in session.scalars(query)]


def _expect(row: DeviceRow, wanted: str, *states: str) -> None:
    if row.state not in states:
        raise WrongState(
            f"The device {row.device_id} is {row.state} and cannot be {wanted}; see `fallow-console agents`."
        )
