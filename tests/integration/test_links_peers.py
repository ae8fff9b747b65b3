"""PCs that give each other model files: real agents on loopback, real TLS, a real hub that knows who holds what."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidMessage
from websockets.protocol import State

from agent.doctor.findings import Finding
from agent.doctor.peers import check_peers
from agent.link.bulk import Holder
from agent.link.closing import CloseCode
from agent.link.frames import Fetch, Frame, FrameType, decode, encode
from agent.link.identity import DeviceId, Identity, client_context, device_hostname
from agent.link.keystore import Keystore
from agent.link.manifests import files_beside
from agent.link.messages import BULK_PATH, FetchLayers, Holding, LayerRange
from agent.link.pace import Pace
from agent.link.sockets import client_settings
from agent.link.store import Store
from agent.link.store_errors import StoreFull
from agent.link.tickets import FileTicket, seal
from agent.seeding import DirectSetup, PeerDialler
from agent.settings import AgentSettings
from agent.stage.types import Nack, PipelineId
from agent.volunteer.reasons import Reason, ReasonCode, Severity
from console.fleet.errors import DeliveryFailed, StageLoadFailed
from console.registry.authority import Authority
from shard_export.library.manifest import Manifest
from tests.support.agents import Agent, load, running_agent
from tests.support.fleet import Fleet, join, make_load, running_fleet
from tests.support.libraries import make_library
from tests.support.patience import until

UNIT_BYTES = 2_500_000
OPEN = AgentSettings(direct_ports=(0, 0))


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with running_fleet(tmp_path, direct_links=True) as fleet:
        yield fleet


@pytest.fixture
def library(fleet: Fleet) -> tuple[Manifest, str]:
    manifest, digest = make_library(fleet.folder / "library", unit_bytes=UNIT_BYTES)
    fleet.distribution.register(fleet.folder / "library")
    return manifest, digest


async def load_all(fleet: Fleet, agent: Agent, digest: str, pipeline: int = 1) -> None:
    await load(fleet, agent, make_load(library_digest=digest, first=0, last=4, pipeline=pipeline))


def is_known(fleet: Fleet, agent: Agent, manifest: Manifest) -> Callable[[], bool]:
    """Whether the console knows that an agent holds the whole library and where to reach it."""

    def known() -> bool:
        peer = fleet.hub._peers._peers.get(agent.device_id)
        return peer is not None and bool(peer.addresses) and len(peer.held) >= 2 * len(manifest.units) + 1

    return known


def bytes_of(manifest: Manifest) -> int:
    """Return how much a PC with all layers fetches beside the manifest."""
    units = sum(unit.size_bytes for unit in manifest.units)
    return units + sum(file.size_bytes for file in files_beside(manifest, manifest.layer_count))


def got(agent: Agent) -> dict[str, int]:
    return dict(agent.service._fetcher.bytes_from)


def holds_exactly(fleet: Fleet, agent: Agent, manifest: Manifest) -> bool:
    library = fleet.folder / "library"
    store = agent.service._store
    return all(
        store.read(file.sha256) == (library / file.path).read_bytes()
        for unit in manifest.units
        for file in (unit.xml, unit.bin)
    )


async def test_a_second_agent_gets_its_files_from_the_first_and_a_third_from_both(
    fleet: Fleet, library: tuple[Manifest, str]
) -> None:
    manifest, digest = library
    total = bytes_of(manifest)
    async with running_agent(fleet, "ann", OPEN) as ann, running_agent(fleet, "bob", OPEN) as bob:
        await load_all(fleet, ann, digest)
        await until(is_known(fleet, ann, manifest))
        await load_all(fleet, bob, digest)
        assert got(ann)["console"] >= total
        assert got(bob)[ann.device_id] == total
        assert got(bob)["console"] < 0.2 * total  # the manifest
        assert holds_exactly(fleet, bob, manifest)
        await until(is_known(fleet, bob, manifest))
        async with running_agent(fleet, "cid", OPEN) as cid:
            await load_all(fleet, cid, digest)
            assert set(got(cid)) == {ann.device_id, bob.device_id, "console"}
            assert holds_exactly(fleet, cid, manifest)


@pytest.mark.parametrize("while_it_gives", [False, True])
async def test_a_pc_whose_owner_is_to_be_spared_gives_nothing(
    fleet: Fleet, library: tuple[Manifest, str], while_it_gives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, digest = library
    total = bytes_of(manifest)
    async with running_agent(fleet, "ann", OPEN) as ann, running_agent(fleet, "bob", OPEN) as bob:
        await load_all(fleet, ann, digest)
        await until(is_known(fleet, ann, manifest))
        owner, find = ann.service._volunteer, ann.service._store.find

        def goes_on_battery() -> None:
            reason = Reason(ReasonCode.ON_BATTERY, Severity.PAUSE, since_s=0.0)
            owner.state = msgspec.structs.replace(owner.state, reasons=(reason,))

        def found(sha256: str) -> tuple[Path, int] | None:
            goes_on_battery()
            return find(sha256)

        if while_it_gives:
            monkeypatch.setattr(ann.service._store, "find", found)
        else:
            goes_on_battery()
        await load_all(fleet, bob, digest)
        assert got(bob).get(ann.device_id, 0) == 0
        assert got(bob)["console"] >= total
        assert holds_exactly(fleet, bob, manifest)


async def test_the_doctor_dials_the_pcs_that_hold_the_same_files(
    fleet: Fleet, library: tuple[Manifest, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, digest = library
    async with running_agent(fleet, "ann", OPEN) as ann, running_agent(fleet, "bob", OPEN) as bob:
        setup, dialler = bob.service._setup, bob.service._dialler

        async def examined() -> list[Finding]:
            held = ann.service._store.held()
            return await check_peers(lambda: dialler.dial(BULK_PATH), PeerDialler(setup), held)

        (finding,) = await examined()
        assert (finding.verdict, "no model files" in finding.said) == ("unknown", True)
        await load_all(fleet, ann, digest)
        await until(is_known(fleet, ann, manifest))
        (finding,) = await examined()
        assert finding.verdict == "ok"
        assert ann.device_id[:8] in finding.said
        fleet.hub._peers._peers[ann.device_id].addresses = ["127.0.0.1:1"]
        (finding,) = await examined()
        assert (finding.verdict, "8470" in finding.advice) == ("problem", True)
        fleet.hub._peers.left(ann.device_id)
        (finding,) = await examined()
        assert "names no other PC" in finding.said
        monkeypatch.setattr("agent.link.locating.LOCATE_WAIT_S", 0.0)
        (finding,) = await examined()
        assert "does not name other PCs" in finding.said


async def test_files_no_pc_holds_come_from_the_console_meanwhile(fleet: Fleet, library: tuple[Manifest, str]) -> None:
    manifest, digest = library
    async with running_agent(fleet, "ann", OPEN) as ann, running_agent(fleet, "bob", OPEN) as bob:
        await load(fleet, ann, make_load(library_digest=digest, first=0, last=2))
        await until(lambda: len(fleet.hub._peers._peers[ann.device_id].held) >= 9)
        await load_all(fleet, bob, digest)
        assert got(bob)["console"] > 2 * UNIT_BYTES
        assert got(bob)[ann.device_id] > 2 * UNIT_BYTES
        assert holds_exactly(fleet, bob, manifest)


@pytest.mark.parametrize("fault", ["flipped", "shorter", "gone"])
@pytest.mark.expected_logs("agent.link.bulk", "shorter than its manifest", required=False)
async def test_what_a_pc_sends_wrongly_comes_from_the_console_alone(
    fleet: Fleet, library: tuple[Manifest, str], fault: str
) -> None:
    manifest, digest = library
    async with running_agent(fleet, "ann", OPEN) as ann, running_agent(fleet, "bob", OPEN) as bob:
        await load_all(fleet, ann, digest)
        await until(is_known(fleet, ann, manifest))
        await fleet.hub.unload(ann.device_id, PipelineId(1))
        path = ann.service._store.path(manifest.layer(2).bin.sha256)
        data = path.read_bytes()
        path.unlink()
        if fault != "gone":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if fault == "flipped" else data[:-1])
        await load_all(fleet, bob, digest)
        assert holds_exactly(fleet, bob, manifest)
        assert got(bob)["console"] >= UNIT_BYTES


async def test_a_pc_that_leaves_in_the_middle_is_made_up_for(fleet: Fleet, library: tuple[Manifest, str]) -> None:
    manifest, digest = library
    slow = AgentSettings(direct_ports=(0, 0), fetch_mbit=80)
    async with running_agent(fleet, "bob", OPEN) as bob:
        async with running_agent(fleet, "ann", OPEN) as ann:
            await load_all(fleet, ann, digest)
            await until(is_known(fleet, ann, manifest))
        async with running_agent(fleet, "ann", slow) as ann:
            await until(is_known(fleet, ann, manifest))
            loading = asyncio.create_task(load_all(fleet, bob, digest))
            await until(lambda: got(bob).get(ann.device_id, 0) > UNIT_BYTES)
        await loading
        assert holds_exactly(fleet, bob, manifest)
        total = bytes_of(manifest)
        assert sum(got(bob).values()) < total + 2 * UNIT_BYTES  # what had arrived was not sent again


class CountedPace(Pace):
    def __init__(self, settings: AgentSettings) -> None:
        super().__init__(0, 0, 0, lambda: 0.0)
        self.counted_bytes = 0

    def wait_s(self, size_bytes: int, now_s: float) -> float:
        self.counted_bytes += size_bytes
        return 0.0


async def test_what_a_pc_fetches_and_what_it_serves_share_one_limit(
    fleet: Fleet, library: tuple[Manifest, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, digest = library
    monkeypatch.setattr("agent.service._pace", CountedPace)
    async with running_agent(fleet, "ann", OPEN) as ann, running_agent(fleet, "bob", OPEN) as bob:
        await load_all(fleet, ann, digest)
        await until(is_known(fleet, ann, manifest))
        await load_all(fleet, bob, digest)
        pace = ann.service._pace
        assert isinstance(pace, CountedPace)
        assert pace.counted_bytes == sum(got(ann).values()) + got(bob)[ann.device_id]


async def test_pcs_keep_to_themselves_unless_both_sides_allow_more(
    tmp_path: Path, fleet: Fleet, library: tuple[Manifest, str]
) -> None:
    _, digest = library
    shut = AgentSettings(direct_links=False)
    async with running_agent(fleet, "ann", shut) as ann, running_agent(fleet, "bob", OPEN) as bob:
        await load_all(fleet, ann, digest)
        await load_all(fleet, bob, digest)
        assert set(got(bob)) == {"console"}
        assert fleet.hub._peers._peers[ann.device_id].addresses == []
    async with running_fleet(tmp_path / "other") as closed, running_agent(closed, "ann", OPEN) as ann:
        await until(lambda: ann.device_id in closed.hub._peers._peers)
        assert closed.hub._peers._peers[ann.device_id].addresses == []


async def test_what_live_plans_count_on_does_not_make_room(fleet: Fleet, library: tuple[Manifest, str]) -> None:
    manifest, digest = library
    async with running_agent(fleet, "ann", OPEN) as ann:
        await load_all(fleet, ann, digest)
        store = ann.service._store
        fleet.hub.keep(ann.device_id, [LayerRange(digest, 1, 2), LayerRange("f" * 64, 0, 9)])
        await until(lambda: "live plans" in store._pins)
        await fleet.hub.unload(ann.device_id, PipelineId(1))
        await until(lambda: not [name for name in store._pins if name.startswith("stage")])
        store._budget_bytes = 1
        with pytest.raises(StoreFull):
            store.make_room(1)
        store._budget_bytes = 3 * UNIT_BYTES
        store.make_room(1)
        assert store.has(manifest.layer(1).bin.sha256)
        assert not store.has(manifest.layer(2).bin.sha256)


async def test_a_library_the_console_did_not_sign_is_not_even_fetched(
    fleet: Fleet, library: tuple[Manifest, str]
) -> None:
    _, digest = library
    real = fleet.hub._orders._sign
    async with running_agent(fleet, "ann", OPEN) as ann:
        for forged in (b"", b"noise", real("f" * 64)):
            fleet.hub._orders._sign = {digest: forged}.__getitem__
            with pytest.raises(StageLoadFailed) as failed:
                await load_all(fleet, ann, digest)
            assert failed.value.code == "unsigned"
        assert got(ann) == {}
        assert ann.children.started == []


async def test_a_store_of_many_files_is_told_in_several_messages(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("introduction", "seeding"):
        monkeypatch.setattr(f"agent.{module}.MAX_NAMED_FILES", 3)
    store = Store(fleet.folder / "ann-data")
    for number in range(8):
        data = f"file {number}".encode()
        with store.open_part(hashlib.sha256(data).hexdigest()) as part:
            part.write(data)
            part.finish()
    peers, at_first = fleet.hub._peers, []
    joined = peers.joined

    def listen(device: str, host: str, held: list[str]) -> None:
        at_first.append(len(held))
        joined(device, host, held)

    monkeypatch.setattr(peers, "joined", listen)
    async with running_agent(fleet, "ann", OPEN) as ann:
        await until(lambda: ann.device_id in peers._peers and len(peers._peers[ann.device_id].held) == 8)
        assert at_first == [3]


async def test_layers_are_delivered_without_being_loaded_and_a_load_finds_them_there(
    fleet: Fleet, library: tuple[Manifest, str]
) -> None:
    manifest, digest = library
    async with running_agent(fleet, "ann", OPEN) as ann:
        await fleet.hub.deliver(ann.device_id, LayerRange(digest, 0, 4))
        assert holds_exactly(fleet, ann, manifest)
        assert ann.children.started == []
        assert list((ann.folder / "stages").iterdir()) == []
        before = got(ann)
        await load_all(fleet, ann, digest)
        assert got(ann) == before
        with pytest.raises(DeliveryFailed, match="does not serve"):
            await fleet.hub.deliver(ann.device_id, LayerRange("f" * 64, 0, 1))
        fleet.hub._orders._sign = {digest: b"forged"}.__getitem__
        with pytest.raises(DeliveryFailed, match="not signed"):
            await fleet.hub.deliver(ann.device_id, LayerRange(digest, 0, 1))
    with pytest.raises(DeliveryFailed, match="not connected"):
        await fleet.hub.deliver(ann.device_id, LayerRange(digest, 0, 1))


async def test_a_delivery_to_a_pc_that_leaves_fails(fleet: Fleet, library: tuple[Manifest, str]) -> None:
    agent = await join(fleet, fleet.enrol("ann"))
    delivery = asyncio.create_task(fleet.hub.deliver(agent.device_id, LayerRange(library[1], 0, 4)))
    assert isinstance(await agent.hear(), FetchLayers)
    await agent.close()
    with pytest.raises(DeliveryFailed, match="it left"):
        await delivery


# --- who is let in


def address_of(fleet: Fleet, agent: Agent) -> str:
    return fleet.hub._peers._peers[agent.device_id].addresses[0]


async def knock(fleet: Fleet, agent: Agent, tls: ssl.SSLContext) -> ClientConnection:
    name = device_hostname(fleet.authority.fleet_id, DeviceId(agent.device_id))
    url = f"wss://{address_of(fleet, agent)}{BULK_PATH}"
    return await connect(url, ssl=tls, server_hostname=name, **client_settings(BULK_PATH))


def ticket(
    fleet: Fleet,
    agent: Agent,
    reader: Identity,
    *,
    holder: str = "",
    expires_s: float = 0.0,
    key: Ed25519PrivateKey | None = None,
) -> bytes:
    peers = fleet.hub._peers
    made = FileTicket(reader.device_id, holder or agent.device_id, expires_s or peers._now() + 60)
    return seal(made, key or peers._key)


def frame(type_: FrameType, table: bytes) -> bytes:
    return encode(Frame(type_, 0, 0, 0, 0, 0, table, None))


async def test_a_ticket_opens_the_store_and_nothing_else(fleet: Fleet, library: tuple[Manifest, str]) -> None:
    manifest, digest = library
    async with running_agent(fleet, "ann", OPEN) as ann:
        await load_all(fleet, ann, digest)
        await until(is_known(fleet, ann, manifest))
        reader = fleet.enrol("reader")
        async with await knock(fleet, ann, client_context(reader)) as link:
            await link.send(frame(FrameType.TICKET, ticket(fleet, ann, reader)))
            for name, answer in (
                ("../agent.toml", FrameType.NACK),
                ("0" * 64, FrameType.NACK),
                (digest, FrameType.CHUNK),
            ):
                await link.send(frame(FrameType.FETCH, msgspec.msgpack.encode(Fetch(name, 0, 1 << 20))))
                answered = decode(await link.recv(decode=False))
                assert answered.type is answer
                if answered.type is FrameType.NACK:
                    assert msgspec.msgpack.decode(answered.table, type=Nack).message.startswith("That PC")


@pytest.mark.expected_logs("agent.seeding", "refused files|4400|Closed", required=False)
@pytest.mark.parametrize(
    "fault", ["no ticket", "another reader", "another holder", "expired", "forged", "noise", "a frame of another kind"]
)
async def test_who_has_no_ticket_of_their_own_is_shown_out(fleet: Fleet, fault: str) -> None:
    async with running_agent(fleet, "ann", OPEN) as ann:
        await until(lambda: bool(fleet.hub._peers._peers[ann.device_id].addresses))
        reader, other = fleet.enrol("reader"), fleet.enrol("other")
        first = {
            "no ticket": frame(FrameType.FETCH, msgspec.msgpack.encode(Fetch("0" * 64, 0, 1))),
            "another reader": frame(FrameType.TICKET, ticket(fleet, ann, other)),
            "another holder": frame(FrameType.TICKET, ticket(fleet, ann, reader, holder=other.device_id)),
            "expired": frame(FrameType.TICKET, ticket(fleet, ann, reader, expires_s=1.0)),
            "forged": frame(FrameType.TICKET, ticket(fleet, ann, reader, key=Ed25519PrivateKey.generate())),
            "noise": b"noise",
            "a frame of another kind": frame(FrameType.STEP, b""),
        }[fault]
        link = await knock(fleet, ann, client_context(reader))
        await link.send(first)
        with pytest.raises(ConnectionClosed) as closed:
            await link.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == CloseCode.NOT_APPROVED


async def test_a_device_of_another_fleet_or_none_does_not_get_through_tls(fleet: Fleet, tmp_path: Path) -> None:
    async with running_agent(fleet, "ann", OPEN) as ann:
        await until(lambda: bool(fleet.hub._peers._peers[ann.device_id].addresses))
        stranger = Authority.open(tmp_path / "stranger", Keystore.files_only("stranger"))
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        nobody.load_verify_locations(cadata=fleet.authority.authorities_pem.decode())
        for tls in (client_context(fleet.enrol("eve", stranger)), nobody):
            with pytest.raises((InvalidMessage, ssl.SSLError, OSError, ConnectionClosed)):
                await knock(fleet, ann, tls)


async def test_another_pc_at_the_address_is_not_taken_for_the_holder(
    fleet: Fleet, library: tuple[Manifest, str]
) -> None:
    manifest, digest = library
    async with running_agent(fleet, "ann", OPEN) as ann, running_agent(fleet, "bob", OPEN) as bob:
        await load_all(fleet, ann, digest)
        await until(is_known(fleet, ann, manifest))
        peers, address = fleet.hub._peers, address_of(fleet, ann)
        eve = fleet.enrol("eve")
        peers.left(ann.device_id)
        peers.joined(eve.device_id, "127.0.0.1", ann.service._store.held())
        peers.changed(eve.device_id, Holding([address]))
        await load_all(fleet, bob, digest)
        assert set(got(bob)) == {"console"}


async def test_a_link_whose_ticket_cannot_be_sent_is_closed(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[ClientConnection] = []

    async def send(link: ClientConnection, message: bytes) -> None:
        opened.append(link)
        raise ConnectionResetError("cut")

    async with running_agent(fleet, "ann", OPEN) as ann:
        await until(lambda: bool(fleet.hub._peers._peers[ann.device_id].addresses))
        holder = Holder(ann.device_id, [address_of(fleet, ann)], b"", [])
        reader = fleet.enrol("reader")
        with monkeypatch.context() as patch:
            patch.setattr("agent.seeding.ClientConnection.send", send)
            with pytest.raises(ConnectionResetError):
                await PeerDialler(DirectSetup(lambda: reader, OPEN)).dial(holder)
        assert [link.state for link in opened] == [State.CLOSED]
