"""Direct stage links over real TLS: who may open one, what closes it, and that no step suffers."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent.link.credentials import client_tls
from agent.link.cutter import FrameCutter
from agent.link.frames import HEADER, MAX_PAYLOAD_BYTES, Frame, FrameType, decode, encode
from agent.link.identity import DeviceId, Identity, credentials_of, device_hostname, device_uri
from agent.link.keystore import Keystore
from agent.link.stage_messages import AdvanceEpoch, DirectRoute, DirectState
from agent.link.tickets import LIFE_S, RouteTicket, seal
from agent.link.wire import Wire
from agent.stage import inlet as inlet_module
from agent.stage import outlet as outlet_module
from agent.stage.inlet import Inlet
from agent.stage.intake import Intake
from agent.stage.outlet import Outlet
from agent.stage.types import DirectSpec, Epoch, Nack, PipelineId
from console.registry.authority import Authority
from tests.support.fleet import Fleet, make_step
from tests.support.patience import PATIENCE_S
from tests.support.stage import make_spec

WAIT_S = PATIENCE_S


def until(condition: Callable[[], bool]) -> None:
    """Wait for what no event announces."""
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


@dataclass
class Pair:
    """`ann` runs stage 0 and feeds `bob`, who runs stage 1. The relay delivers when `relays` is set."""

    fleet: Fleet
    key: Ed25519PrivateKey
    ann: Identity
    bob: Identity
    intake: Intake
    inlet: Inlet
    address: str = ""
    outlet: Outlet = field(init=False)
    states: list[DirectState] = field(default_factory=list)
    relayed: list[bytes] = field(default_factory=list)
    relays: threading.Event = field(default_factory=threading.Event)

    def by_pipe(self, data: bytes) -> None:
        frame = decode(data)
        if frame.type is FrameType.DIRECT:
            self.states.append(msgspec.msgpack.decode(frame.table, type=DirectState))
            return
        self.relayed.append(data)
        if self.relays.is_set() and frame.type is FrameType.STEP:
            self.intake.put(frame.step, data)

    def ticket(self, key: Ed25519PrivateKey | None = None, **fields: Any) -> bytes:
        values: dict[str, Any] = {
            "pipeline": PipelineId(1), "epoch": Epoch(1), "stage": 1, "sender": self.ann.device_id,
            "receiver": self.bob.device_id, "expires_s": time.time() + LIFE_S,
        }  # fmt: skip
        return seal(RouteTicket(**(values | fields)), key or self.key)

    def route(self, ticket: bytes | None = None, address: str = "") -> DirectRoute:
        addresses = [address or self.address]
        return DirectRoute(PipelineId(1), Epoch(1), 1, self.bob.device_id, addresses, ticket or self.ticket())

    def link(self) -> Pair:
        self.outlet.direct(self.route())
        until(lambda: self.outlet.is_direct)
        return self

    def send(self, *steps: int) -> None:
        for step in steps:
            self.outlet.send(make_step(stage=1, step=step, tokens=1 + step % 3))

    def step(self) -> bytes:
        data, _ = self.intake.get()
        assert not isinstance(data, AdvanceEpoch)
        return bytes(data)

    def arrived(self, count: int) -> list[int]:
        got: list[int] = []

        def take() -> None:
            got.extend(decode(self.step()).step for _ in range(count))

        thread = threading.Thread(target=take)
        thread.start()
        thread.join(WAIT_S)
        assert not thread.is_alive(), f"only {got} of {count} steps came"
        return got


def direct_spec(identity: Identity, key: Ed25519PrivateKey, **fields: Any) -> DirectSpec:
    values: dict[str, Any] = {
        "device_id": identity.device_id, "device_uri_prefix": device_uri(identity.fleet_id, DeviceId("")),
        "device_name_suffix": device_hostname(identity.fleet_id, DeviceId("")), "host": "127.0.0.1", "ports": (0, 0),
        "listens": True, "route_key": key.public_key().public_bytes_raw(),
        "console_ahead_s": time.time() - time.monotonic(), "credentials": credentials_of(identity),
    }  # fmt: skip
    return DirectSpec(**(values | fields))


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    authority = Authority.open(tmp_path / "authority", Keystore.files_only("authority"))
    fleet = Fleet(tmp_path, authority, hub=None, distribution=None)  # type: ignore[arg-type]  # only enrols
    ann, bob, key = fleet.enrol("ann"), fleet.enrol("bob"), Ed25519PrivateKey.generate()
    monkeypatch.setattr("agent.link.hop.PATIENCE_S", WAIT_S)  # a busy machine is no receiver that takes no more
    monkeypatch.setattr(outlet_module, "DIAL_S", WAIT_S)
    monkeypatch.setattr(inlet_module, "TLS_WAIT_S", WAIT_S)
    intake = Intake(drops_repeats=True)
    bobs = direct_spec(bob, key)
    inlet = Inlet(make_spec(tmp_path, pipeline=1, epoch=1, stage=1), bobs, intake)
    (address,) = inlet.open()
    pair = Pair(fleet, key, ann, bob, intake, inlet, address)
    pair.relays.set()
    spec = make_spec(tmp_path, pipeline=1, epoch=1, stage=0, direct=direct_spec(ann, key, listens=False))
    pair.outlet = Outlet(spec, pair.by_pipe)
    yield pair
    pair.outlet.close()
    inlet.close()


def test_steps_go_directly_and_arrive_in_order(pair: Pair) -> None:
    pair.link().send(*range(1, 30))
    assert pair.arrived(29) == list(range(1, 30))
    assert pair.relayed == []
    until(lambda: not pair.outlet._hop._kept)  # the receiver confirms
    (state,) = pair.states
    assert (state.up, state.stage, state.round_trip_ms > 0) == (True, 1, True)


def test_a_link_opens_anew_in_another_epoch_and_what_was_under_way_is_dropped(pair: Pair) -> None:
    pair.link().send(1, 2, 3)
    pair.arrived(3)
    order = AdvanceEpoch(PipelineId(1), Epoch(1), Epoch(2), 1)
    pair.inlet.advance(order.epoch, order.stage)
    report = encode(Frame(FrameType.REPORT, 1, 2, 0, 0, 0, b"", None))
    pair.outlet.advance(report)
    assert not pair.outlet.is_direct
    assert report in pair.relayed
    before = len(pair.relayed)
    pair.outlet.direct(msgspec.structs.replace(pair.route(pair.ticket(epoch=2)), epoch=Epoch(2)))
    until(lambda: pair.outlet.is_direct)
    pair.outlet.send(make_step(stage=1, step=4, epoch=2))
    assert decode(pair.step()).epoch == 2
    assert len(pair.relayed) == before


def test_large_steps_arrive_whole(pair: Pair) -> None:
    pair.link()
    big = make_step(stage=1, step=1, tokens=2000)
    pair.outlet.send(big)
    pair.send(2)
    assert [pair.step() for _ in range(2)] == [big, make_step(stage=1, step=2, tokens=3)]


def test_a_link_that_breaks_in_the_middle_loses_repeats_and_reorders_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlet_module, "FIRST_RETRY_S", 0.01)
    pair.link()
    for first in range(1, 401, 40):
        pair.send(*range(first, first + 20))
        pair.inlet.cut()
        pair.send(*range(first + 20, first + 40))
        assert pair.arrived(40) == list(range(first, first + 40))
        until(lambda: pair.outlet.is_direct)
    assert pair.relayed


def test_the_direct_way_waits_for_what_is_relayed(pair: Pair) -> None:
    pair.relays.clear()
    pair.send(1, 2)
    pair.outlet.direct(pair.route())
    until(lambda: bool(pair.states))
    pair.send(3)
    assert not pair.outlet.is_direct
    for data in list(pair.relayed):
        pair.intake.put(decode(data).step, data)
    until(lambda: pair.outlet.is_direct)
    assert pair.arrived(3) == [1, 2, 3]
    assert len(pair.relayed) == 2


def test_a_cut_link_closes_at_once_and_the_relay_carries_on(pair: Pair) -> None:
    pair.link()
    pair.inlet.cut()
    until(lambda: not pair.outlet.is_direct)
    pair.send(1, 2)
    assert pair.arrived(2) == [1, 2]
    until(lambda: not pair.states[-1].up)


def test_a_sender_told_to_stop_goes_back_to_the_relay(pair: Pair) -> None:
    pair.link().send(1)
    pair.outlet.direct(None)
    until(lambda: not pair.outlet.is_direct)
    pair.send(2)
    assert pair.arrived(2) == [1, 2]


def test_a_receiver_that_takes_no_more_is_given_up(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.link.hop.PATIENCE_S", 0.2)
    monkeypatch.setattr(inlet_module, "CONFIRM_S", 60.0)
    pair.link().send(1)
    until(lambda: any("does not confirm" in state.reason for state in pair.states))
    pair.send(2)
    assert pair.arrived(2) == [1, 2]
    assert len(pair.relayed) == 2


def test_a_fresh_ticket_keeps_the_link_and_without_one_it_ends(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead_s = 0.0
    monkeypatch.setattr(inlet_module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s))
    shown, show, now_s = list[bytes](), pair.outlet.show, time.time()

    def noted(link: Any, ticket: bytes) -> None:
        show(link, ticket)
        shown.append(ticket)

    monkeypatch.setattr(pair.outlet, "show", noted)
    pair.outlet.direct(pair.route(pair.ticket(expires_s=now_s + 100)))
    until(lambda: pair.outlet.is_direct)
    pair.outlet.direct(pair.route(pair.ticket(expires_s=now_s + 200)))
    until(lambda: len(shown) == 2)
    pair.send(1)
    assert pair.arrived(1) == [1]  # and so has the ticket before it
    ahead_s = 120.0
    pair.send(2)
    assert pair.arrived(1) == [2]
    until(lambda: not pair.outlet._hop._kept)  # confirmed: the receiver has looked at its clock since
    assert pair.outlet.is_direct
    assert pair.relayed == []
    ahead_s = 220.0
    until(lambda: not pair.outlet.is_direct)


def test_a_pc_that_cannot_be_reached_is_relayed_and_the_reason_told(pair: Pair) -> None:
    pair.outlet.direct(pair.route(address="127.0.0.1:1"))
    until(lambda: bool(pair.states))
    assert "cannot be reached" in pair.states[0].reason
    pair.send(1)
    assert pair.arrived(1) == [1]


def test_the_sender_trusts_only_the_device_it_was_told(pair: Pair) -> None:
    cyd = pair.fleet.enrol("cyd")
    inlet = Inlet(pair.outlet._spec, direct_spec(cyd, pair.key), Intake(drops_repeats=True))
    (address,) = inlet.open()
    pair.outlet.direct(pair.route(address=address))
    until(lambda: bool(pair.states))
    assert "is not the next PC" in pair.states[0].reason
    inlet.close()


def test_a_device_certificate_cannot_pass_for_the_console(pair: Pair) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        Wire.dial(pair.address, client_tls(credentials_of(pair.ann)), pair.fleet.authority.server_hostname, 5.0)


def test_the_port_closes_with_the_stage(pair: Pair) -> None:
    pair.inlet.close()
    with pytest.raises(OSError, match="refused"):
        Wire.dial(pair.address, client_tls(credentials_of(pair.ann)), "x", 5.0)


def test_a_taken_range_of_ports_means_no_direct_links(pair: Pair, tmp_path: Path) -> None:
    port = int(pair.address.rpartition(":")[2])
    spec = direct_spec(pair.bob, pair.key, ports=(port, port))
    assert Inlet(make_spec(tmp_path, stage=1), spec, pair.intake).open() == []


# What a stranger, or a peer that has gone bad, may try


class Peer:
    """A client of bob's port that sends what it likes."""

    def __init__(self, pair: Pair, identity: Identity | None) -> None:
        tls = client_tls(credentials_of(identity)) if identity is not None else anonymous(pair)
        name = device_hostname(pair.bob.fleet_id, pair.bob.device_id)
        self.wire = Wire.dial(pair.address, tls, name, 5.0)
        self._got: list[bytes] = []
        self._cutter = FrameCutter(self._got.append)

    def present(self, ticket: bytes) -> None:
        self.wire.send(encode(Frame(FrameType.TICKET, 1, 1, 0, 0, 1, ticket, None)))

    def receive(self) -> Frame:
        while not self._got:
            data = self.wire.receive(5.0)
            if not data:
                raise EOFError
            self._cutter.feed(data)
        return decode(self._got.pop(0))

    def admitted(self, ticket: bytes) -> Peer:
        self.present(ticket)
        assert self.receive().type is FrameType.TAKEN
        return self

    def refusal(self) -> str:
        frame = self.receive()
        while frame.type is FrameType.TAKEN:
            frame = self.receive()
        assert frame.type is FrameType.NACK
        self.closed()
        return msgspec.msgpack.decode(frame.table, type=Nack).code

    def closed(self) -> None:
        """Read until the end."""
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            while self.wire.receive(5.0):
                pass
        self.wire.close()


def anonymous(pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=pair.fleet.authority.authorities_pem.decode())
    return context


@pytest.fixture
def untouched(pair: Pair) -> Iterator[None]:
    """Check at the end that nothing came through and that a real link still works."""
    yield
    assert pair.intake.taken == -1
    pair.link().send(50)
    assert pair.arrived(1) == [50]
    assert pair.relayed == []


@pytest.mark.usefixtures("untouched")
def test_no_certificate_another_fleets_and_no_tls_get_nowhere(pair: Pair, tmp_path: Path) -> None:
    other = Authority.open(tmp_path / "other", Keystore.files_only("other"))
    for identity in (None, pair.fleet.enrol("eve", authority=other)):
        peer = Peer(pair, identity)
        with contextlib.suppress(OSError):
            peer.present(pair.ticket())
        peer.closed()
    host, _, port = pair.address.rpartition(":")
    with socket.create_connection((host, int(port)), 5.0) as bare:
        bare.sendall(encode(Frame(FrameType.TICKET, 1, 1, 0, 0, 1, pair.ticket(), None)))
        with contextlib.suppress(ConnectionError):
            while bare.recv(4096):
                pass


@pytest.mark.usefixtures("untouched")
def test_a_wrong_ticket_is_refused(pair: Pair) -> None:
    wrong: dict[str, tuple[dict[str, Any], str]] = {
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
    codes = {}
    for name, (fields, _) in wrong.items():
        peer = Peer(pair, pair.ann)
        peer.present(pair.ticket(**fields))
        codes[name] = peer.refusal()
    assert codes == {name: code for name, (_, code) in wrong.items()}


@pytest.mark.usefixtures("untouched")
def test_a_stolen_ticket_is_of_no_use_to_another_device(pair: Pair) -> None:
    peer = Peer(pair, pair.fleet.enrol("eve"))
    peer.present(pair.ticket())
    assert peer.refusal() == "other_device"


def oversized() -> bytes:
    """A header that promises more than a stranger may send; nothing follows it."""
    frame = bytearray(make_step(stage=1))
    frame[HEADER.size - 8 : HEADER.size - 4] = MAX_PAYLOAD_BYTES.to_bytes(4, "little")
    return bytes(frame[: HEADER.size])


@pytest.mark.usefixtures("untouched")
def test_a_bad_start_is_refused(pair: Pair) -> None:
    starts: dict[str, tuple[bytes, str]] = {
        "a step before the ticket": (make_step(stage=1, width=4), "no_ticket"),
        "tokens": (encode(Frame(FrameType.TOKENS, 1, 1, 1, 1, 1, b"", None)), "no_ticket"),
        "an oversized frame": (oversized(), "bad_frame"),
        "an oversized ticket": (encode(Frame(FrameType.TICKET, 1, 1, 0, 0, 1, b"x" * 1025, None)), "bad_frame"),
        "no frame at all": (b"GET / HTTP/1.1\r\nHost: bob\r\n\r\n" + b" " * HEADER.size, "bad_frame"),
        "a damaged ticket": (encode(Frame(FrameType.TICKET, 1, 1, 0, 0, 1, b"xy", None))[:-1] + b"z", "bad_frame"),
    }
    codes = {}
    for name, (data, _) in starts.items():
        peer = Peer(pair, pair.ann)
        peer.wire.send(data)
        codes[name] = peer.refusal()
    assert codes == {name: code for name, (_, code) in starts.items()}


@pytest.mark.usefixtures("untouched")
def test_an_admitted_peer_may_feed_its_own_stage_only(pair: Pair) -> None:
    for fields in ({"stage": 2}, {"pipeline": 2}, {"epoch": 2}):
        peer = Peer(pair, pair.ann).admitted(pair.ticket())
        peer.wire.send(make_step(**({"stage": 1} | fields)))
        assert peer.refusal() == "other_stage"
    peer = Peer(pair, pair.ann).admitted(pair.ticket())
    peer.present(pair.ticket(stage=2))
    assert peer.refusal() == "other_stage"


def test_an_admitted_peer_cannot_fill_the_memory(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.stage.intake.MAX_WAITING", 4)
    peer = Peer(pair, pair.ann).admitted(pair.ticket())
    # All in one: the link is cut at the first step too many, and a later send would find it closed.
    peer.wire.send(b"".join(make_step(stage=1, step=step) for step in range(1, 10)))
    assert peer.refusal() == "too_many"


@pytest.mark.usefixtures("untouched")
def test_a_silent_stranger_is_closed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inlet_module, "TICKET_WAIT_S", 0.2)
    peer = Peer(pair, pair.ann)
    peer.wire.send(b"FLW1")
    peer.closed()


@pytest.mark.usefixtures("untouched")
def test_a_crowd_of_strangers_is_kept_small(pair: Pair) -> None:
    crowd = [Peer(pair, pair.ann) for _ in range(inlet_module.MAX_PEERS)]
    with pytest.raises(OSError):  # noqa: PT011 - whichever way TLS words a closed door
        Peer(pair, pair.ann)
    for peer in crowd:
        peer.wire.close()
    until(lambda: not pair.inlet._peers)


def test_a_newer_link_of_the_sender_replaces_the_older(pair: Pair) -> None:
    older = Peer(pair, pair.ann).admitted(pair.ticket())
    pair.link()
    older.closed()
    pair.send(1)
    assert pair.arrived(1) == [1]
