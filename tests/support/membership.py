"""A console's hub with a real registry, and agents' services whose data folders can be copied."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from agent.devices import Runtime
from agent.link.channel import Backoff
from agent.link.closing import CloseCode
from agent.link.identity import load_identity
from agent.link.invite import Invite
from agent.link.keystore import Keystore
from agent.service import AgentService
from agent.settings import AgentSettings
from console.fleet.admission import Admission
from console.fleet.clones import CloneWatch
from console.fleet.doorkeeper import asking, on_this_loop
from console.fleet.enrol import EnrolHandler
from console.fleet.hub import Hub
from console.registry.authority import Authority
from console.registry.models import DeviceRow
from console.registry.records import DeviceRecord
from console.registry.registry import Registry
from tests.support.agents import always_here
from tests.support.enrolment import enrol_pc
from tests.support.patience import PATIENCE_S

KEYS = Keystore.files_only("test")


@dataclass
class Office:
    """A console that enrols PCs and keeps their links."""

    folder: Path
    registry: Registry
    authority: Authority
    hub: Hub
    url: str = ""
    agents: list[tuple[AgentService, asyncio.Task[None]]] = field(default_factory=list)

    def invite(self, **fields: Any) -> Invite:
        """A new invite that lets in `max_uses` PCs; `fields` as for Invites.create."""
        secret = self.registry.invites.create(**({"approve": "auto"} | fields))
        return Invite(
            fleet_id=self.authority.fleet_id,
            fleet_name=self.authority.fleet_name,
            urls=[self.url],
            ca_spki_sha256=self.authority.ca_spki_sha256,
            token_id=secret.token_id,
            token_secret=secret.secret,
            expires_at_s=int(secret.expires_s),
        )

    async def enrol(self, name: str) -> Path:
        """Enrol a PC and return its data folder."""
        data = self.folder / name
        data.mkdir(exist_ok=True)
        await enrol_pc(self.invite(), data / "identity")
        return data

    def copy(self, data: Path, name: str) -> Path:
        """Copy a data folder, as an image or a backup tool does."""
        return copy_data_folder(data, self.folder / name)

    async def start(self, data: Path) -> AgentService:
        """Run an agent on a data folder."""
        identity = load_identity(data / "identity", KEYS)
        backoff = Backoff(uniform=lambda low, high: 0.02)
        service = AgentService(
            data,
            identity,
            AgentSettings(),
            always_here(data),
            # What this PC can compute with is no matter here, and takes long to find out.
            list_devices=lambda: Runtime("", []),
            backoff=backoff,
            keystore=KEYS,
        )
        self.agents.append((service, asyncio.create_task(service.run())))
        return service

    async def stop(self, service: AgentService) -> None:
        """Stop an agent as a user does."""
        service.stop()
        for agent, task in self.agents:
            if agent is service:
                await task
        self.agents = [entry for entry in self.agents if entry[0] is not service]

    def confirmed_mark(self) -> str:
        """The mark the one device has said it keeps."""
        with self.registry._database.reading() as session:
            return session.scalars(select(DeviceRow.mark)).one()

    def device(self) -> DeviceRecord:
        """The one device of this console."""
        (device,) = self.registry.devices.list()
        return device


def copy_data_folder(source: Path, target: Path) -> Path:
    """Copy an agent's data folder, also while its agent replaces files in it."""

    def copy_if_there(file: str, copy: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # a temporary file became the one it was written for
            shutil.copy2(file, copy)

    return Path(shutil.copytree(source, target, copy_function=copy_if_there))


@contextlib.asynccontextmanager
async def open_office(folder: Path, *, database: str = "", pong_wait_s: float = PATIENCE_S) -> AsyncIterator[Office]:
    """Found a fleet and listen; every agent that still runs is stopped at the end."""
    authority = Authority.open(folder / "authority", KEYS)
    with Registry.open(database or folder / "registry.sqlite3", now=time.time) as registry:

        def expel(device_id: str, sentence: str) -> None:
            hub.disconnect(device_id, CloseCode.NOT_APPROVED, "suspended", sentence)

        hub = Hub(
            asking(registry, authority.fleet_id, expel),
            enrol=EnrolHandler(
                Admission(registry, authority, poll_s=0.02, expel=on_this_loop(expel)), ask=registry.ask
            ).handle,
            files=lambda sha256: None,
            clones=CloneWatch(registry, pong_wait_s=pong_wait_s),
            heartbeat_s=PATIENCE_S,
        )
        office = Office(folder, registry, authority, hub)
        office.url = f"wss://127.0.0.1:{await hub.start('127.0.0.1', 0, authority.server_context())}"
        try:
            yield office
        finally:
            for service, _ in list(office.agents):
                await office.stop(service)
            await hub.stop()
