"""Signed releases that PCs may be offered: what they say of themselves, where their archive lies, how far they got."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from sqlalchemy import select

from agent.update.releases import Description, Release
from console.registry.audit import CONSOLE, Actor, note
from console.registry.database import Database
from console.registry.errors import NotFound, WrongState
from console.registry.models import ReleaseRow
from console.registry.records import ReleaseRecord, Ring

ID_LETTERS = 12


class Releases:
    """Releases by id, which is the beginning of their archive's SHA-256."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    def add(self, release: Release, signed: bytes, file: str, actor: Actor = CONSOLE) -> ReleaseRecord:
        """Remember a release, offered to nobody yet. One of a known archive takes the place of the former, as it is.

        Raises WrongState if that was withdrawn, which is for good.
        """
        with self._database.writing() as session:
            release_id = release.sha256[:ID_LETTERS]
            row = session.get(ReleaseRow, release_id)
            if row is None:
                row = ReleaseRow(
                    release_id=release_id, ring="held", percent=release.description.rollout_percent,
                    added_s=self._now(), withdrawn_s=None,
                )  # fmt: skip
                session.add(row)
            elif row.withdrawn_s is not None:
                raise _withdrawn(release_id)
            row.signed, row.description = signed, msgspec.to_builtins(release.description)
            row.sha256, row.size_bytes, row.sequence = release.sha256, release.size_bytes, release.sequence
            row.expires_s, row.file = release.expires_s, file
            note(session, self._now(), actor, "release.add", release_id, version=release.version, file=file)
            return _record(row)

    def check_not_withdrawn(self, sha256: str) -> None:
        """Raise WrongState if the release with this archive was withdrawn."""
        with self._database.reading() as session:
            row = session.get(ReleaseRow, sha256[:ID_LETTERS])
            if row is not None and row.withdrawn_s is not None:
                raise _withdrawn(row.release_id)

    def list(self) -> list[ReleaseRecord]:
        """Return all releases, the newest first."""
        with self._database.reading() as session:
            query = select(ReleaseRow).order_by(ReleaseRow.sequence.desc(), ReleaseRow.release_id)
            return [_record(row) for row in session.scalars(query)]

    def set_ring(
        self, release_id: str, ring: Ring, percent: int | None = None, actor: Actor = CONSOLE
    ) -> ReleaseRecord:
        """Say how far a release gets; None: the share stays. Raises NotFound, or WrongState if it was withdrawn."""
        with self._database.writing() as session:
            row = session.get(ReleaseRow, release_id)
            if row is None:
                raise NotFound(f"There is no release {release_id[:40]}; see: fallow-console releases list")
            if row.withdrawn_s is not None:
                raise _withdrawn(release_id)
            most = int(row.description["rollout_percent"])
            if percent is not None and percent > most:
                raise WrongState(
                    f"Its publisher lets {most} % of all PCs have the release {release_id}, not {percent} %."
                )
            row.ring, row.percent = ring, row.percent if percent is None else percent
            note(session, self._now(), actor, "release.ring", release_id, ring=ring, percent=row.percent)
            return _record(row)

    def withdraw(self, release_id: str, actor: Actor = CONSOLE) -> ReleaseRecord:
        """Offer a release to nobody any more, for good. Raises NotFound."""
        with self._database.writing() as session:
            row = session.get(ReleaseRow, release_id)
            if row is None:
                raise NotFound(f"There is no release {release_id[:40]}; see: fallow-console releases list")
            if row.withdrawn_s is None:
                row.withdrawn_s = self._now()
                note(session, self._now(), actor, "release.withdraw", release_id)
            return _record(row)


def _withdrawn(release_id: str) -> WrongState:
    return WrongState(f"The release {release_id} was withdrawn; sign and add a newer one.")


def _record(row: ReleaseRow) -> ReleaseRecord:
    return ReleaseRecord(
        release_id=row.release_id,
        signed=row.signed,
        description=msgspec.convert(row.description, Description),
        sha256=row.sha256,
        size_bytes=row.size_bytes,
        sequence=row.sequence,
        expires_s=row.expires_s,
        file=row.file,
        ring=msgspec.convert(row.ring, Ring),
        percent=row.percent,
        added_s=row.added_s,
        withdrawn_s=row.withdrawn_s,
    )
