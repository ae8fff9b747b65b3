"""A real console's open door on loopback: TLS, the enrolment path, and one guarded path that says who came."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import websockets
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from agent.link.approval import EnrolState
from agent.link.enrol_messages import Facts
from agent.link.enrolment import enrol
from agent.link.identity import Identity, client_context
from agent.link.invite import Invite
from agent.link.keystore import Keystore
from agent.link.messages import ENROL_PATH
from console.fleet.admission import Admission
from console.fleet.enrol import EnrolHandler
from console.registry.access import authorise, peer_certificate
from console.registry.authority import Authority
from console.registry.errors import NotAuthorised
from console.registry.registry import Registry


@dataclass
class Clock:
    """A clock tests move by hand; it starts at a fixed time unless told otherwise."""

    now_s: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Door:
    """A console that enrols, at `url`."""

    registry: Registry
    authority: Authority
    clock: Callable[[], float]
    url: str = ""
    cut_replies: int = 0
    """How many of the next submissions are answered by a cut connection, after they took effect."""
    seen: list[str] = field(default_factory=list)

    def invite(self, **fields: Any) -> Invite:
        """A new invite of this console; `fields` as for Invites.create, or of Invite itself."""
        made: dict[str, Any] = {"approve": "auto"}
        made |= {name: fields.pop(name) for name in ("max_uses", "life_s", "approve") if name in fields}
        secret = self.registry.invites.create(**made)
        values: dict[str, Any] = {
            "fleet_id": self.authority.fleet_id,
            "fleet_name": self.authority.fleet_name,
            "urls": [self.url],
            "ca_spki_sha256": self.authority.ca_spki_sha256,
            "token_id": secret.token_id,
            "token_secret": secret.secret,
            "expires_at_s": int(secret.expires_s),
        }
        return Invite(**(values | fields))

    async def visit(self, identity: Identity) -> str:
        """Open the guarded path with an identity; returns the device id the console saw, or its refusal."""
        try:
            async with connect(
                f"{self.url}/control",
                ssl=client_context(identity),
                server_hostname=identity.server_hostname,
                compression=None,
                proxy=None,
            ) as connection:
                return str(await connection.recv())
        except websockets.ConnectionClosed as error:
            return "cut off" if error.rcvd is None else f"{error.rcvd.code} {error.rcvd.reason}"


@contextlib.asynccontextmanager
async def open_door(folder: Path, *, clock: Callable[[], float], name: str = "Test fleet") -> AsyncIterator[Door]:
    authority = Authority.open(folder / "authority", Keystore.files_only("test"), fleet_name=name, now=clock)
    with Registry.open(folder / "registry.sqlite3", now=clock) as registry:
        door = Door(registry, authority, clock)
        handler = _CuttingHandler(Admission(registry, authority, now=clock, poll_s=0.02))
        handler.door = door

        async def route(websocket: ServerConnection) -> None:
            assert websocket.request is not None
            if websocket.request.path == ENROL_PATH:
                await handler.handle(websocket)
                return
            try:
                device = authorise(registry, authority.fleet_id, peer_certificate(websocket))
            except NotAuthorised as error:
                await websocket.close(error.close_code, str(error)[:100])
                return
            await websocket.send(device.device_id)

        context = authority.server_context()
        async with serve(route, "127.0.0.1", 0, ssl=context, compression=None, server_header=None) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            door.url = f"wss://127.0.0.1:{port}"
            yield door


class _CuttingHandler(EnrolHandler):
    """An EnrolHandler whose answers can be lost on the way."""

    door: Door

    async def handle(self, websocket: ServerConnection) -> None:
        send = websocket.send
        self.door.seen.append("connection")

        async def send_or_cut(message: Any, *args: Any, **kwargs: Any) -> None:
            if b"Granted" in message and self.door.cut_replies > 0:
                self.door.cut_replies -= 1
                websocket.transport.abort()
                return
            await send(message, *args, **kwargs)

        websocket.send = send_or_cut  # type: ignore[method-assign]
        await super().handle(websocket)


def make_facts(**fields: Any) -> Facts:
    values: dict[str, Any] = {"host": "pc-17", "os": "Linux", "arch": "x86_64", "version": "0.1.0"}
    return Facts(**(values | fields))


async def enrol_pc(
    invite: Invite,
    folder: Path,
    *,
    on_state: Callable[[EnrolState], None] = lambda _: None,
    **options: Any,
) -> Identity:
    return await enrol(invite, folder, make_facts(), keystore=Keystore.files_only("test"), on_state=on_state, **options)
