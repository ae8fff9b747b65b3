"""Layer libraries the console serves from, and deployments: which model should run, with its last plan."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import select
from sqlalchemy.orm import Session

from console.registry.audit import CONSOLE, Actor, note
from console.registry.database import Database
from console.registry.errors import NotFound, WrongState
from console.registry.models import DeploymentRow, LibraryRow
from console.registry.records import Deployment, LibraryRecord


class Libraries:
    """Libraries by digest (SHA-256 of the manifest's bytes)."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    def add(self, digest: str, model_id: str, folder: str, actor: Actor = CONSOLE) -> LibraryRecord:
        """Remember a library; adding a known digest again updates its folder."""
        with self._database.writing() as session:
            row = session.get(LibraryRow, digest)
            if row is None:
                row = LibraryRow(digest=digest, model_id=model_id, folder=folder, added_s=self._now())
                session.add(row)
            row.folder = folder
            note(session, self._now(), actor, "library.add", digest, model=model_id, folder=folder)
            return _library(row)

    def find(self, digest: str) -> LibraryRecord | None:
        """Return the library with this digest, or None."""
        with self._database.reading() as session:
            row = session.get(LibraryRow, digest)
            return None if row is None else _library(row)

    def list(self) -> list[LibraryRecord]:
        """Return all libraries, the newest first."""
        with self._database.reading() as session:
            return [_library(row) for row in session.scalars(select(LibraryRow).order_by(LibraryRow.added_s.desc()))]

    def user_of(self, digest: str) -> str:
        """Say which deployment of any console uses a library, as a sentence without its stop; empty: none does."""
        with self._database.reading() as session:
            used = _deployed(session, digest)
        return f"the deployment {used} uses it" if used else ""

    def remove(self, digest: str, actor: Actor = CONSOLE) -> None:
        """Forget a library; its files stay. Raises NotFound, or WrongState while a deployment uses it."""
        with self._database.writing() as session:
            row = session.get(LibraryRow, digest)
            if row is None:
                raise NotFound(f"There is no library {digest[:12]}; see `fallow-console models`.")
            if used := _deployed(session, digest):
                raise WrongState(f"The library {digest[:12]} is used by the deployment {used}; remove that first.")
            session.delete(row)
            note(session, self._now(), actor, "library.remove", digest)


class Deployments:
    """The deployments of one console, by name; `console_id` is empty where only one uses the registry."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now
        self.console_id = ""

    def save(self, deployment: Deployment, actor: Actor = CONSOLE) -> Deployment:
        """Create or replace the deployment of this name. Raises NotFound if its library is unknown."""
        with self._database.writing() as session:
            if session.get(LibraryRow, deployment.library_digest) is None:
                raise NotFound(f"There is no library {deployment.library_digest[:12]}; add it first.")
            row = session.get(DeploymentRow, (self.console_id, deployment.name))
            if row is None:
                row = DeploymentRow(console_id=self.console_id, name=deployment.name)
                session.add(row)
            row.library_digest, row.settings = deployment.library_digest, deployment.settings
            row.plan, row.epoch, row.updated_s = deployment.plan, deployment.epoch, self._now()
            note(session, self._now(), actor, "deployment.save", deployment.name, epoch=deployment.epoch)
            return _deployment(row)

    def list(self) -> list[Deployment]:
        """Return this console's deployments by name."""
        query = select(DeploymentRow).where(DeploymentRow.console_id == self.console_id).order_by(DeploymentRow.name)
        with self._database.reading() as session:
            return [_deployment(row) for row in session.scalars(query)]

    def remove(self, name: str, actor: Actor = CONSOLE) -> None:
        """Delete a deployment. Raises NotFound."""
        with self._database.writing() as session:
            row = session.get(DeploymentRow, (self.console_id, name))
            if row is None:
                raise NotFound(f"There is no deployment {name}; see `fallow-console status`.")
            session.delete(row)
            note(session, self._now(), actor, "deployment.remove", name)


def _deployed(session: Session, digest: str) -> str:
    return session.scalars(select(DeploymentRow.name).where(DeploymentRow.library_digest == digest)).first() or ""


def _library(row: LibraryRow) -> LibraryRecord:
    return LibraryRecord(row.digest, row.model_id, row.folder, row.added_s)


def _deployment(row: DeploymentRow) -> Deployment:
    return Deployment(row.name, row.library_digest, row.settings, row.plan, row.epoch, row.updated_s)
