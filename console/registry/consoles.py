"""The consoles that share a registry: who is there, which PCs each of them holds, and whose roots they are.

A console counts as there while it greets; what it wrote of its links counts no longer than that. Whoever may write to
the shared database owns the fleet (it could as well add an administrator), so consoles that meet there vouch for each
other's roots without asking anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from sqlalchemy import delete, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from agent.link.authorities import Endorsement, read_authorities
from agent.link.identity import DeviceId
from agent.link.keys import spki_sha256
from console.registry.audit import CONSOLE, note
from console.registry.database import Database
from console.registry.models import ConsoleRow, DeviceRow, EndorsementRow, FleetRow, LinkRow, RootRow

SILENT_S = 10.0
"""A console that has not greeted for so long is not there."""
_FRESH_S = 90 * 86_400.0
"""An endorsement that ends sooner is made anew."""


class Consoles:
    """Records of consoles, links and roots."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    def fleet(self, fleet_id: str, fleet_name: str) -> tuple[str, str]:
        """Return the id and name of the registry's fleet, which is the given one if there was none."""
        try:
            with self._database.writing() as session:
                row = session.scalars(select(FleetRow)).first()
                if row is None:
                    row = FleetRow(fleet_id=fleet_id, fleet_name=fleet_name)
                    session.add(row)
                return row.fleet_id, row.fleet_name
        except IntegrityError:
            # Another console founded the fleet at the same moment.
            return self.fleet(fleet_id, fleet_name)

    def greet(self, console_id: str, name: str) -> None:
        """Say that a console is there."""
        with self._database.writing() as session:
            row = session.get(ConsoleRow, console_id)
            if row is None:
                session.add(ConsoleRow(console_id=console_id, name=name[:200], seen_s=self._now()))
                note(session, self._now(), CONSOLE, "console.join", console_id, name=name[:200])
            else:
                row.name, row.seen_s = name[:200], self._now()

    def leave(self, console_id: str) -> None:
        """Say that a console stops: its links are no more."""
        with self._database.writing() as session:
            session.execute(delete(LinkRow).where(LinkRow.console_id == console_id))
            row = session.get(ConsoleRow, console_id)
            if row is not None:
                row.seen_s = 0.0

    def set_links(self, console_id: str, linked: Mapping[str, float]) -> None:
        """Replace which PCs a console holds: device ids with when they connected. Unknown devices are left out."""
        with self._database.writing() as session:
            rows = {
                row.device_id: row for row in session.scalars(select(LinkRow).where(LinkRow.console_id == console_id))
            }
            for device_id, row in rows.items():
                if linked.get(device_id) != row.connected_s:
                    session.delete(row)
            session.flush()
            for device_id, connected_s in linked.items():
                row_is_right = device_id in rows and rows[device_id].connected_s == connected_s
                if not row_is_right and session.get(DeviceRow, device_id) is not None:
                    session.add(LinkRow(device_id=device_id, console_id=console_id, connected_s=connected_s))

    def elsewhere(self, console_id: str) -> dict[str, str]:
        """Return the PCs other consoles hold now: device ids with the console's name."""
        query = (
            select(LinkRow.device_id, ConsoleRow.name)
            .join(ConsoleRow, ConsoleRow.console_id == LinkRow.console_id)
            .where(LinkRow.console_id != console_id, ConsoleRow.seen_s > self._now() - SILENT_S)
        )
        with self._database.reading() as session:
            return {row.device_id: row.name for row in session.execute(query)}

    def unwanted(self, linked: Sequence[str]) -> list[DeviceId]:
        """Return those of a console's linked PCs that are not active any more: another console took them out."""
        if not linked:
            return []
        query = select(DeviceRow.device_id).where(DeviceRow.device_id.in_(linked), DeviceRow.state != "active")
        with self._database.reading() as session:
            return [DeviceId(device_id) for device_id in session.scalars(query)]

    def held_twice(self) -> list[DeviceId]:
        """Return the PCs two consoles have held for longer than a lost link takes to be noticed: copies."""
        now_s = self._now()
        query = (
            select(LinkRow.device_id)
            .join(ConsoleRow, ConsoleRow.console_id == LinkRow.console_id)
            .where(ConsoleRow.seen_s > now_s - SILENT_S, LinkRow.connected_s < now_s - SILENT_S)
            .group_by(LinkRow.device_id)
            .having(func.count() > 1)
        )
        with self._database.reading() as session:
            return [DeviceId(device_id) for device_id in session.scalars(query)]

    def exchange_roots(
        self,
        console_id: str,
        own: Sequence[x509.Certificate],
        endorsements: Sequence[Endorsement],
        endorse: Callable[[x509.Certificate], Endorsement],
    ) -> tuple[list[x509.Certificate], list[Endorsement]]:
        """Publish a console's roots, vouch for the others' and return those, with who vouches for whom."""
        with self._database.writing() as session:
            known = {row.spki_sha256: row for row in session.scalars(select(RootRow))}
            mine = {_spki(root): root for root in own}
            for spki, row in known.items():
                if row.console_id == console_id and spki not in mine:
                    session.delete(row)
            for spki, root in mine.items():
                if spki not in known:
                    pem = root.public_bytes(Encoding.PEM)
                    session.add(RootRow(spki_sha256=spki, console_id=console_id, pem=pem))
                    note(session, self._now(), CONSOLE, "root.add", console_id, key=spki[:16])
            others = [read_authorities(row.pem)[0] for row in known.values() if row.console_id != console_id]
            _vouch(session, own, others, endorsements, endorse=endorse, until_s=self._now() + _FRESH_S)
            session.flush()
            return others, _endorsements(session, {_spki(root): root for root in (*own, *others)}, set(mine))


def _vouch(
    session: Session,
    own: Sequence[x509.Certificate],
    others: Sequence[x509.Certificate],
    endorsements: Sequence[Endorsement],
    *,
    endorse: Callable[[x509.Certificate], Endorsement],
    until_s: float,
) -> None:
    """Write the endorsements this console makes: of its own roots among themselves, and of the others'."""
    signer = _spki(own[0])
    made = [one for one in endorsements if one.signer_spki_sha256.hex() in {_spki(root) for root in own}]
    for root in others:
        known = session.get(EndorsementRow, (_spki(root), signer))
        if known is None or known.until_s < until_s:
            made.append(endorse(root))
    for one in made:
        key = (_spki(read_authorities(one.authority_pem)[0]), one.signer_spki_sha256.hex())
        row = session.get(EndorsementRow, key)
        if row is None:
            row = EndorsementRow(spki_sha256=key[0], signer_spki_sha256=key[1], until_s=0.0, signature=b"")
            session.add(row)
        if row.until_s < one.until_s:
            row.until_s, row.signature = one.until_s, one.signature


def _endorsements(session: Session, roots: Mapping[str, x509.Certificate], mine: set[str]) -> list[Endorsement]:
    """Return who vouches for whom among `roots`, but for a console's own roots among themselves."""
    return [
        Endorsement(
            roots[row.spki_sha256].public_bytes(Encoding.PEM),
            bytes.fromhex(row.signer_spki_sha256),
            row.until_s,
            row.signature,
        )
        for row in session.scalars(select(EndorsementRow).order_by(EndorsementRow.spki_sha256))
        if row.spki_sha256 in roots and not {row.spki_sha256, row.signer_spki_sha256} <= mine
    ]


def _spki(root: x509.Certificate) -> str:
    public = root.public_key()
    return spki_sha256(public).hex() if isinstance(public, ec.EllipticCurvePublicKey) else ""
