"""Direct stage links between real agents over real TLS: who may open one, what closes it, that no step suffers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent import direct as agent_direct
from agent.link.closing import CloseCode
from agent.link.cutter import FrameCutter
from agent.link.frames import HEADER, MAX_PAYLOAD_BYTES, Frame, FrameType, decode, encode
from agent.link.identity import DeviceId, Identity, client_context, device_hostname
from agent.link.keystore import Keystore
from agent.link.tickets import LIFE_S, RouteTicket, seal
from agent.live import LiveStage
from agent.settings import AgentSettings
from agent.stage.types import Epoch, Nack, PipelineId
from console.registry.authority import Authority
from tests.bench.net import Link, Shape
from tests.support.agents import Agent, load, running_agent, until
from tests.support.fleet import Fleet, ScriptedAgent, anonymous_context, join, make_load, make_step, running_fleet
from tests.support.libraries import make_library

ANY_PORT = AgentSettings(direct_ports=(0, 0))


@dataclass
class Chain:
    """`ann` feeds `bob`, `bob` feeds the scripted `tail`, which listens to nobody: its steps are relayed."""

    fleet: Fleet
    ann: Agent
    bob: Agent
    tail: ScriptedAgent
    digest: str

    async def load(self, epoch: int = 1) -> None:
        devices = [self.ann.device_id, self.bob.device_id, self.tail.device_id]
        self.fleet.hub.set_route(1, epoch, devices)
        for stage, agent in enumerate((self.ann, self.bob)):
            await load(self.fleet, agent, make_load(library_digest=self.digest, stage=stage, epoch=epoch))

    async def linked(self) -> Chain:
        await until(lambda: self.ways == ["console", "direct", "relay"])
        return self

    @property
    def ways(self) -> list[str]:
        return [link.way for link in self.fleet.hub.stage_links(1)]

    @property
    def bobs_stage(self) -> LiveStage:
        return stage_of(self.bob)

    @property
    def port(self) -> int:
        assert self.bob.service._session is not None
        server = self.bob.service._session._stages._direct._server
        assert server is not None
        return int(server.sockets[0].getsockname()[1])

    def ticket(self, key: Ed25519PrivateKey | None = None, **fields: Any) -> bytes:
        values: dict[str, Any] = {
            "pipeline": PipelineId(1), "epoch": Epoch(1), "stage": 1, "sender": self.ann.device_id,
            "receiver": self.bob.device_id, "expires_s": time.time() + LIFE_S,
        }  # fmt: skip
        return seal(RouteTicket(**(values | fields)), key or self.fleet.hub._direct._key)

    async def steps_at_tail(self, count: int) -> list[int]:
        return [decode(await self.tail.receive()).step for _ in range(count)]

    def submit(self, *steps: int) -> None:
        for step in steps:
            self.fleet.hub.submit(1, make_step(stage=0, step=step, epoch=self.bobs_stage.request.epoch))


def stage_of(agent: Agent) -> LiveStage:
    assert agent.service._session is not None
    return agent.service._session._stages._live[1]


@contextlib.asynccontextmanager
async def running_chain(folder: Path, bob: AgentSettings = ANY_PORT, *, allowed: bool = True) -> AsyncIterator[Chain]:
    _, digest = make_library(folder / "library")
    async with running_fleet(folder, direct_links=allowed) as fleet:
        fleet.distribution.register(folder / "library")
        async with running_agent(fleet, "ann", ANY_PORT) as first, running_agent(fleet, "bob", bob) as second:
            tail = await join(fleet, fleet.enrol("tail"))
            chain = Chain(fleet, first, second, tail, digest)
            await chain.load()
            yield chain
            await tail.close()


@pytest.fixture
async def chain(tmp_path: Path) -> AsyncIterator[Chain]:
    async with running_chain(tmp_path) as chain:
        yield await chain.linked()


async def test_steps_go_directly_and_arrive_in_order(chain: Chain) -> None:
    assert stage_of(chain.ann).hop.is_direct
    assert not chain.bobs_stage.hop.is_direct
    chain.submit(*range(1, 30))
    assert await chain.steps_at_tail(29) == list(range(1, 30))
    await until(lambda: not stage_of(chain.ann).hop._kept)
    link = chain.fleet.hub.stage_links(1)[1]
    assert (link.reason, link.round_trip_ms > 0) == ("", True)


async def test_a_link_that_breaks_in_the_middle_loses_repeats_and_reorders_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected_logs: Any
) -> None:
    expected_logs("asyncio", "socket.send", required=False)  # of a burst that meets a link broken just now
    monkeypatch.setattr(agent_direct, "FIRST_RETRY_S", 0.01)
    async with running_chain(tmp_path) as chain:
        for first in (1, 41, 81):
            await chain.linked()
            chain.submit(*range(first, first + 20))
            inbound = chain.bobs_stage.inbound
            assert inbound is not None
            await until(lambda first=first: chain.bobs_stage.taken >= first)  # type: ignore[misc]  # bound now
            inbound.abort()
            chain.submit(*range(first + 20, first + 40))
            assert await chain.steps_at_tail(40) == list(range(first, first + 40))
        assert chain.bob.children.started[0].fed == list(range(1, 121))


async def test_a_pc_is_reached_where_it_says_and_relayed_while_contact_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected_logs: Any
) -> None:
    expected_logs("asyncio", "socket.send", required=False)  # of a burst that meets a link broken just now
    monkeypatch.setattr(agent_direct, "FIRST_RETRY_S", 0.01)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    way = await Link.open(port, Shape(delay_ms=2, jitter_ms=2))
    forwarded = AgentSettings(direct_ports=(port, port), direct_address=f"127.0.0.1:{way.port}")
    async with running_chain(tmp_path, forwarded) as chain:
        for first in (1, 41):
            await chain.linked()
            before = way.carried_bytes
            chain.submit(*range(first, first + 20))
            assert await chain.steps_at_tail(20) == list(range(first, first + 20))
            assert way.carried_bytes > before
            way.cut()
            await until(lambda: chain.ways == ["console", "relay", "relay"])
            chain.submit(*range(first + 20, first + 40))
            assert await chain.steps_at_tail(20) == list(range(first + 20, first + 40))
            way.heal()
    await way.close()


async def test_a_link_is_opened_while_steps_are_on_their_way(tmp_path: Path) -> None:
    async with running_chain(tmp_path) as chain:
        chain.submit(*range(1, 200))
        assert await chain.steps_at_tail(199) == list(range(1, 200))
        await chain.linked()


@pytest.mark.parametrize("how", ["revoked", "gone", "new epoch", "route ended", "unloaded"])
async def test_a_link_closes_at_once_when_its_reason_ends(chain: Chain, how: str) -> None:
    inbound, started_s = chain.bobs_stage.inbound, time.monotonic()
    assert inbound is not None
    hub = chain.fleet.hub
    if how == "revoked":
        chain.fleet.set_state(chain.ann.device_id, "suspended")
        hub.disconnect(chain.ann.device_id, CloseCode.NOT_APPROVED, "suspended", "An administrator did it.")
    elif how == "gone":
        session = hub._sessions.find(chain.ann.device_id)
        assert session is not None
        session.control.transport.abort()
    elif how == "new epoch":
        hub.set_route(1, 2, [chain.ann.device_id, chain.bob.device_id, chain.tail.device_id])
    elif how == "route ended":
        hub.clear_route(1)
    else:
        await hub.unload(chain.bob.device_id, PipelineId(1))
    await until(inbound._transport.is_closing)
    assert time.monotonic() - started_s < 1.0


async def test_the_receiver_closes_a_revoked_senders_link_even_if_that_one_does_not(chain: Chain) -> None:
    eve = await dial(chain, chain.ann.service._membership.identity)
    await eve.present(chain.ticket())
    assert decode(await eve.receive()).type is FrameType.TAKEN
    chain.fleet.hub.disconnect(chain.ann.device_id, CloseCode.NOT_APPROVED, "banned", "An administrator did it.")
    await eve.closed()


async def test_a_fresh_ticket_keeps_the_link_open(chain: Chain) -> None:
    inbound = chain.bobs_stage.inbound
    assert inbound is not None
    assert inbound._deadline is not None
    before_s = inbound._deadline.when()
    chain.fleet.hub._direct.renew()
    await until(lambda: inbound._deadline is not None and inbound._deadline.when() > before_s)
    assert chain.bobs_stage.inbound is inbound


async def test_a_link_ends_with_its_last_ticket(chain: Chain) -> None:
    peer = await dial(chain, chain.ann.service._membership.identity)
    await peer.present(chain.ticket(expires_s=time.time() + 0.3))
    assert decode(await peer.receive()).type is FrameType.TAKEN
    await peer.closed()


async def test_a_moved_plan_is_linked_again(chain: Chain) -> None:
    await chain.load(epoch=2)
    await chain.linked()
    chain.submit(1, 2)
    assert await chain.steps_at_tail(2) == [1, 2]


async def test_the_port_is_open_only_while_a_stage_is_served(chain: Chain) -> None:
    port = chain.port
    await chain.fleet.hub.unload(chain.bob.device_id, PipelineId(1))
    await until(lambda: chain.bob.children.started[0].closed)
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", port)
    assert chain.ann.service._session is not None
    assert chain.ann.service._session._stages._direct._server is None


@pytest.mark.parametrize("allowed", [True, False])
async def test_without_leave_nobody_listens_and_the_relay_does_the_work(tmp_path: Path, allowed: bool) -> None:
    bob = AgentSettings(direct_links=not allowed)
    async with running_chain(tmp_path, bob, allowed=allowed) as chain:
        assert chain.bob.service._session is not None
        assert chain.bob.service._session._stages._direct._server is None
        link = chain.fleet.hub.stage_links(1)[1]
        assert (link.way, link.reason) == (
            "relay", "this PC does not listen" if allowed else "direct links are off",
        )  # fmt: skip
        chain.submit(1, 2, 3)
        assert await chain.steps_at_tail(3) == [1, 2, 3]


async def test_a_pc_that_cannot_be_reached_is_relayed_and_the_reason_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def elsewhere(self: agent_direct.DirectLinks, request: object) -> list[str]:
        return ["127.0.0.1:1"]

    monkeypatch.setattr(agent_direct.DirectLinks, "listen", elsewhere)
    async with running_chain(tmp_path) as chain:
        await until(lambda: "cannot be reached" in chain.fleet.hub.stage_links(1)[1].reason)
        chain.submit(1)
        assert await chain.steps_at_tail(1) == [1]


# What a stranger, or a peer that has gone bad, may try


class Peer:
    """A client of bob's port that sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def present(self, ticket: bytes) -> None:
        await self.send(encode(Frame(FrameType.TICKET, 1, 1, 0, 0, 1, ticket, None)))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self) -> bytes:
        got: list[bytes] = []
        cutter = FrameCutter(got.append)
        async with asyncio.timeout(5):
            while not got:
                data = await self.reader.read(1)
                if not data:
                    raise EOFError
                cutter.feed(data)
        return got[0]

    async def closed(self) -> None:
        """Read until the end."""
        async with asyncio.timeout(5):
            with contextlib.suppress(OSError):
                await self.reader.read()
        await self.close()

    async def close(self) -> None:
        self.writer.transport.abort()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    async def refusal(self) -> str:
        frame = decode(await self.receive())
        assert frame.type is FrameType.NACK
        await self.closed()
        return msgspec.msgpack.decode(frame.table, type=Nack).code


async def dial(chain: Chain, identity: Identity | None, tls: ssl.SSLContext | None = None) -> Peer:
    context = tls or (client_context(identity) if identity is not None else anonymous_context(chain.fleet))
    name = device_hostname(chain.fleet.authority.fleet_id, DeviceId(chain.bob.device_id))
    reader, writer = await asyncio.open_connection("127.0.0.1", chain.port, ssl=context, server_hostname=name)
    return Peer(reader, writer)


@pytest.fixture
def untouched(chain: Chain) -> Callable[[], Awaitable[None]]:
    """Check that nothing came through and that the real link still works."""

    async def check() -> None:
        assert chain.bob.children.started[0].fed == []
        await chain.linked()
        chain.submit(50)
        assert await chain.steps_at_tail(1) == [50]

    return check


async def test_no_certificate_another_fleets_and_no_tls_get_nowhere(
    chain: Chain, untouched: Callable[[], Awaitable[None]], tmp_path: Path
) -> None:
    other = Authority.open(tmp_path / "other", Keystore.files_only("other"))
    peers = [await dial(chain, identity) for identity in (None, chain.fleet.enrol("eve", authority=other))]
    for peer in [*peers, Peer(*await asyncio.open_connection("127.0.0.1", chain.port))]:
        with contextlib.suppress(OSError):
            await peer.present(chain.ticket())
        await peer.closed()
    await untouched()


WRONG_TICKETS: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"expires_s": 1.0}, "expired"),
    "for ever": ({"expires_s": 1e12}, "expired"),
    "old epoch": ({"epoch": Epoch(0)}, "other_stage"),
    "next epoch": ({"epoch": Epoch(2)}, "other_stage"),
    "other stage": ({"stage": 2}, "other_stage"),
    "other pipeline": ({"pipeline": PipelineId(2)}, "other_stage"),
    "other sender": ({"sender": "somebody"}, "other_device"),
    "other receiver": ({"receiver": "somebody"}, "other_device"),
    "not signed by the console": ({"key": Ed25519PrivateKey.generate()}, "signature"),
}


async def test_a_wrong_ticket_is_refused(
    chain: Chain, untouched: Callable[[], Awaitable[None]], expected_logs: Any
) -> None:
    expected_logs("agent.link.direct", "Refused")
    refusals = {}
    for name, (fields, _) in WRONG_TICKETS.items():
        peer = await dial(chain, chain.ann.service._membership.identity)
        await peer.present(chain.ticket(**fields))
        refusals[name] = await peer.refusal()
    assert refusals == {name: code for name, (_, code) in WRONG_TICKETS.items()}
    await untouched()


async def test_a_stolen_ticket_is_of_no_use_to_another_device(
    chain: Chain, untouched: Callable[[], Awaitable[None]], expected_logs: Any
) -> None:
    expected_logs("agent.link.direct", "another device")
    peer = await dial(chain, chain.fleet.enrol("eve"))
    await peer.present(chain.ticket())
    assert await peer.refusal() == "other_device"
    await untouched()


def oversized() -> bytes:
    """A header that promises more than a stranger may send; nothing follows it."""
    frame = bytearray(make_step(stage=1))
    frame[HEADER.size - 8 : HEADER.size - 4] = MAX_PAYLOAD_BYTES.to_bytes(4, "little")
    return bytes(frame[: HEADER.size])


BAD_STARTS: dict[str, tuple[bytes, str]] = {
    "a step before the ticket": (make_step(stage=1, width=4), "no_ticket"),
    "tokens": (encode(Frame(FrameType.TOKENS, 1, 1, 1, 1, 1, b"", None)), "no_ticket"),
    "an oversized frame": (oversized(), "bad_frame"),
    "an oversized ticket": (encode(Frame(FrameType.TICKET, 1, 1, 0, 0, 1, b"x" * 1025, None)), "bad_frame"),
    "no frame at all": (b"GET / HTTP/1.1\r\nHost: bob\r\n\r\n" + b" " * HEADER.size, "bad_frame"),
    "a damaged ticket frame": (encode(Frame(FrameType.TICKET, 1, 1, 0, 0, 1, b"xy", None))[:-1] + b"z", "bad_frame"),
}


async def test_a_bad_start_is_refused(
    chain: Chain, untouched: Callable[[], Awaitable[None]], expected_logs: Any
) -> None:
    expected_logs("agent.link.direct")
    refusals = {}
    for name, (data, _) in BAD_STARTS.items():
        peer = await dial(chain, chain.ann.service._membership.identity)
        await peer.send(data)
        refusals[name] = await peer.refusal()
    assert refusals == {name: code for name, (_, code) in BAD_STARTS.items()}
    await untouched()


async def test_an_admitted_peer_may_feed_its_own_stage_only(chain: Chain, expected_logs: Any) -> None:
    expected_logs("agent.link.direct", "ticket's stage")
    for fields in ({"stage": 2}, {"pipeline": 2}, {"epoch": 2}):
        peer = await dial(chain, chain.ann.service._membership.identity)
        await peer.present(chain.ticket())
        assert decode(await peer.receive()).type is FrameType.TAKEN
        await peer.send(make_step(**({"stage": 1} | fields)))
        assert await peer.refusal() == "other_stage"
    assert chain.bob.children.started[0].fed == []


async def test_an_admitted_peer_cannot_turn_to_another_stage_with_a_new_ticket(
    chain: Chain, expected_logs: Any
) -> None:
    expected_logs("agent.link.direct", "Refused")
    peer = await dial(chain, chain.ann.service._membership.identity)
    await peer.present(chain.ticket())
    assert decode(await peer.receive()).type is FrameType.TAKEN
    await peer.present(chain.ticket(stage=2))
    assert await peer.refusal() == "other_stage"


async def test_a_silent_stranger_is_closed(
    chain: Chain, untouched: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.link.direct.TICKET_WAIT_S", 0.1)
    peer = await dial(chain, chain.ann.service._membership.identity)
    await peer.send(chain.ticket()[:10])
    await peer.closed()
    await untouched()


async def test_a_crowd_of_strangers_is_kept_small(chain: Chain, untouched: Callable[[], Awaitable[None]]) -> None:
    crowd = [await dial(chain, chain.ann.service._membership.identity) for _ in range(agent_direct.MAX_STRANGERS + 1)]
    await crowd[-1].closed()
    for peer in crowd:
        await peer.close()
    await untouched()


async def test_a_device_passes_neither_for_another_nor_for_the_console(chain: Chain) -> None:
    other = device_hostname(chain.fleet.authority.fleet_id, DeviceId(chain.tail.device_id))
    for name in (other, chain.fleet.authority.server_hostname):
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection(
                "127.0.0.1",
                chain.port,
                ssl=client_context(chain.ann.service._membership.identity),
                server_hostname=name,
            )
