"""A real hub on loopback with a real authority, and agents that are scripted by the test over real TLS."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.server import ServerConnection

from agent.link.channel import Dialler
from agent.link.frames import Frame, FrameType, encode
from agent.link.identity import DeviceId, Identity, client_context, save_identity
from agent.link.keys import create_key
from agent.link.keystore import Keystore
from agent.link.messages import (
    CONTROL_PATH,
    DATA_PATH,
    PROTOCOL,
    Device,
    Hello,
    Welcome,
    decode_from_console,
    encode_message,
)
from agent.link.stage_messages import LoadStage
from agent.stage.types import StageReport, StepTable
from console.fleet.distribution import Distribution
from console.fleet.events import FleetEvent
from console.fleet.hub import Hub
from console.registry.authority import Authority
from console.registry.certificates import device_id_from_certificate, read_certificate
from console.registry.errors import NotAuthorised
from console.registry.records import DeviceRecord
from console.registry.signing import Signer
from tests.support.patience import PATIENCE_S


def make_hello(**fields: Any) -> Hello:
    values: dict[str, Any] = {
        "protocol": PROTOCOL, "version": "0.1.0", "host": "pc", "os": "Linux", "cores": 4, "memory_bytes": 8 << 30,
        "devices": [Device("CPU", "A processor", 8 << 30, ["paged", "stateful"])], "openvino": "2026.4",
        "key_protection": "file",
    }  # fmt: skip
    return Hello(**(values | fields))


def make_load(**fields: Any) -> LoadStage:
    values: dict[str, Any] = {
        "pipeline": 1, "epoch": 1, "stage": 0, "library_digest": "a" * 64, "first": 0, "last": 2, "engine": "paged",
        "numerics": "exact", "device": "CPU", "context_tokens": 64, "streams": 2,
    }  # fmt: skip
    return LoadStage(**(values | fields))


def make_report(request: LoadStage, **fields: Any) -> StageReport:
    values: dict[str, Any] = {
        "library_digest": request.library_digest, "first": request.first, "last": request.last,
        "engine": "paged" if request.engine == "auto" else request.engine, "numerics": request.numerics,
        "device": request.device, "fused": True,
        "kv_tokens": 128, "memory_bytes": 1 << 20, "load_ms": 1.0, "probe_ms": 1.0, "openvino": "2026.4",
    }  # fmt: skip
    return StageReport(**(values | fields))


def make_step(*, stage: int = 1, tokens: int = 1, width: int = 576, **fields: Any) -> bytes:
    values: dict[str, Any] = {"type": FrameType.STEP, "pipeline": 1, "epoch": 1, "step": 7, "sequence": 9}
    tensor = np.full((tokens, width), 0.5, np.float32)
    table = msgspec.msgpack.encode(StepTable([]))
    return encode(Frame(**(values | fields), stage=stage, table=table, tensor=tensor))


@dataclass
class Fleet:
    """A hub that listens, and the authority that makes identities for it."""

    folder: Path
    authority: Authority
    hub: Hub
    distribution: Distribution
    port: int = 0
    records: dict[str, DeviceRecord] = field(default_factory=dict)
    events: list[FleetEvent] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    prompts: dict[tuple[int, int], int] = field(default_factory=dict)
    """What played PCs know of each other, see `tests.support.played`."""

    @property
    def url(self) -> str:
        return f"wss://127.0.0.1:{self.port}"

    def authorise(self, certificate_der: bytes | None) -> DeviceRecord:
        if certificate_der is None:
            raise NotAuthorised(4401, "no_certificate", "This link needs a device certificate; enrol this PC first.")
        device_id = device_id_from_certificate(read_certificate(certificate_der), self.authority.fleet_id)
        record = self.records.get(device_id)
        if record is None:
            raise NotAuthorised(4401, "unknown", f"The console does not know {device_id}; enrol this PC again.")
        if record.state != "active":
            raise NotAuthorised(4403, record.state, "An administrator has removed this PC from the fleet.")
        return record

    def set_state(self, device_id: str, state: Any) -> None:
        self.records[device_id] = msgspec.structs.replace(self.records[device_id], state=state)

    def enrol(self, name: str, authority: Authority | None = None) -> Identity:
        """Make an identity as enrolment would, without the network."""
        signer = authority or self.authority
        key = create_key(self.folder / name, Keystore.files_only(name))
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
        request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key.key, SHA256())
        device_id = DeviceId(hashlib.sha256(name.encode()).hexdigest()[:32])
        certificate = signer.issue_device(request.public_bytes(Encoding.DER), device_id)
        self.records[device_id] = DeviceRecord(
            device_id=device_id, spki_sha256=key.spki_sha256.hex(), state="active", reason="", name=name, facts={},
            device_code="", key_protection="file", token_id=None, generation=1, created_s=0.0, approved_s=0.0,
            seen_s=None,
        )  # fmt: skip
        return save_identity(
            key,
            fleet_id=signer.fleet_id,
            fleet_name="Test",
            device_id=device_id,
            urls=[self.url],
            certificate_pem=certificate.public_bytes(Encoding.PEM),
            authorities_pem=self.authority.authorities_pem,
        )

    def dialler(self, identity: Identity) -> Dialler:
        return Dialler([self.url], client_context(identity), identity.server_hostname)

    async def wait_for(self, condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        """Wait until `condition` holds; it is looked at after every event of the hub."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def take_event(self, event: FleetEvent) -> None:
        self.events.append(event)
        self.changed.set()


async def no_enrolment(link: ServerConnection) -> None:
    await link.close(4401, "no_enrolment: Not in this test.")


@contextlib.asynccontextmanager
async def running_fleet(
    folder: Path,
    *,
    enrol: Callable[[ServerConnection], Awaitable[None]] = no_enrolment,
    heartbeat_s: float = PATIENCE_S,
    **settings: Any,
) -> AsyncIterator[Fleet]:
    """Found a fleet and listen on a free port. A scripted agent has no heart: as it is, none is lost by its silence."""
    authority = Authority.open(folder / "authority", Keystore.files_only("authority"))
    distribution = Distribution()
    fleet: Fleet

    def authorise(certificate_der: bytes | None) -> DeviceRecord:
        return fleet.authorise(certificate_der)

    hub = Hub(
        authorise,
        enrol=enrol,
        files=distribution.find,
        sign=Signer(authority).sign,
        heartbeat_s=heartbeat_s,
        **settings,
    )
    fleet = Fleet(folder, authority, hub, distribution)
    hub.subscribe(fleet.take_event)
    fleet.port = await hub.start("127.0.0.1", 0, authority.server_context())
    try:
        yield fleet
    finally:
        await hub.stop()


@dataclass
class ScriptedAgent:
    """The two links of an agent whose every move the test makes."""

    identity: Identity
    control: ClientConnection
    data: ClientConnection

    @property
    def device_id(self) -> str:
        return self.identity.device_id

    async def say(self, message: Any) -> None:
        await self.control.send(encode_message(message))

    async def hear(self) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return decode_from_console(await self.control.recv(decode=False))

    async def receive(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self.data.recv(decode=False)

    async def close(self) -> None:
        await self.data.close()
        await self.control.close()


async def join(fleet: Fleet, identity: Identity, **hello: Any) -> ScriptedAgent:
    """Open both links and wait until the hub says the agent has joined."""
    dialler = fleet.dialler(identity)
    control = await dialler.dial(CONTROL_PATH)
    await control.send(encode_message(make_hello(**hello)))
    welcome = decode_from_console(await control.recv(decode=False))
    assert isinstance(welcome, Welcome)
    agent = ScriptedAgent(identity, control, await dialler.dial(DATA_PATH))
    await fleet.wait_for(lambda: any(view.device_id == identity.device_id for view in fleet.hub.agents()))
    return agent


def anonymous_context(fleet: Fleet) -> ssl.SSLContext:
    """TLS that trusts the fleet and shows no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=fleet.authority.authorities_pem.decode())
    return context
