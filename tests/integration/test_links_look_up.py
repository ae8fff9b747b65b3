"""A registry that takes its time: nobody else waits for it, nobody is let in before it has answered, and whoever is put
out meanwhile stays out. Real links, a real registry whose answers the test holds back.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from sqlalchemy.exc import OperationalError
from starlette.requests import Request
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from agent.link.closing import CloseCode
from agent.link.credentials import client_tls
from agent.link.enrol_messages import Diagnose, Diagnosis, encode_enrol
from agent.link.frames import Frame, FrameType, decode, encode
from agent.link.identity import Identity, client_context, credentials_of, load_identity
from agent.link.messages import (
    BULK_PATH,
    CONTROL_PATH,
    DATA_PATH,
    ENROL_PATH,
    STAGE_PROTOCOL,
    MarkKept,
    Welcome,
    decode_from_console,
    encode_message,
)
from agent.link.renewal import diagnose, renew
from agent.link.wire import Wire
from agent.stage.types import Nack
from console.api.admin.members import MemberRoutes
from console.api.auth import Gate
from console.registry.audit import Actor
from console.registry.registry import AT_ONCE
from tests.support.enrolment import enrol_pc
from tests.support.fleet import make_hello
from tests.support.membership import KEYS, Office, open_office
from tests.support.patience import PATIENCE_S, until

PATHS = [CONTROL_PATH, DATA_PATH, BULK_PATH]


class Held:
    """Calls of one method of the registry: each has done its work and does not return before it may."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.may_go = threading.Event()
        self.now = self.most = 0
        self._guard = threading.Lock()

    def holding(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def held(*arguments: Any, **options: Any) -> Any:
            assert_off_the_loop()
            result = call(*arguments, **options)
            with self._guard:
                self.now += 1
                self.most = max(self.most, self.now)
            self.begun.release()
            try:
                assert self.may_go.wait(PATIENCE_S)
            finally:
                with self._guard:
                    self.now -= 1
            return result

        return held

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=PATIENCE_S)


def assert_off_the_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


@contextlib.contextmanager
def held_back(part: object, name: str) -> Iterator[Held]:
    """Hold back what `part.name` returns, until the block ends or the test says so."""
    held = Held()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part, name, held.holding(getattr(part, name)))
        try:
            yield held
        finally:
            held.may_go.set()


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(tmp_path) as opened:
        yield opened


async def member(office: Office, name: str) -> Identity:
    return load_identity(await office.enrol(name) / "identity", KEYS)


async def dial(office: Office, identity: Identity, path: str) -> ClientConnection:
    return await connect(
        f"{office.url}{path}", ssl=client_context(identity), server_hostname=identity.server_hostname,
        compression=None, proxy=None,
    )  # fmt: skip


async def introduced(office: Office, identity: Identity, mark: str = "") -> tuple[ClientConnection, str]:
    """Open a control link; returns it and the mark the console gave it."""
    control = await dial(office, identity, CONTROL_PATH)
    await control.send(encode_message(make_hello(mark=mark)))
    welcome = decode_from_console(await control.recv(decode=False))
    assert isinstance(welcome, Welcome)
    return control, welcome.mark


async def refusal(link: ClientConnection) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        async with asyncio.timeout(PATIENCE_S):
            await link.recv()
    assert closed.value.rcvd is not None
    return int(closed.value.rcvd.code)


async def test_links_go_on_while_another_one_is_looked_up(office: Office) -> None:
    ann, bob = await member(office, "ann"), await member(office, "bob")
    control, _ = await introduced(office, ann)
    with held_back(office.registry.devices, "find") as held:
        waiting = await dial(office, bob, CONTROL_PATH)
        await waiting.send(encode_message(make_hello()))
        await held.has_begun()
        # The console's loop answers, and has not looked at what the stranger said.
        await (await control.ping())
        assert office.hub.linked() == [ann.device_id]
        held.may_go.set()
        assert isinstance(decode_from_console(await waiting.recv(decode=False)), Welcome)
    assert set(office.hub.linked()) == {ann.device_id, bob.device_id}
    await asyncio.gather(control.close(), waiting.close())


async def test_no_more_look_ups_run_at_once_than_the_database_has_room_for(office: Office) -> None:
    ann = await member(office, "ann")
    with held_back(office.registry.devices, "find") as held:
        links = [await dial(office, ann, BULK_PATH) for _ in range(AT_ONCE + 4)]
        for _ in range(AT_ONCE):
            await held.has_begun()
        await (await links[0].ping())
        assert held.now == AT_ONCE
        held.may_go.set()
        await until(lambda: len(office.hub._reception._links.get(ann.device_id, ())) == len(links))
    assert held.most == AT_ONCE
    await asyncio.gather(*(link.close() for link in links))


@pytest.mark.parametrize("path", PATHS)
async def test_a_pc_that_is_revoked_while_it_is_looked_up_stays_out(office: Office, path: str) -> None:
    ann = await member(office, "ann")
    with held_back(office.registry.devices, "find") as held:
        link = await dial(office, ann, path)
        await held.has_begun()
        office.registry.devices.revoke(ann.device_id, "evict")
        office.hub.disconnect(ann.device_id, CloseCode.NOT_APPROVED, "revoked", "It was sold.")
        held.may_go.set()
        assert await refusal(link) == CloseCode.NOT_APPROVED
    await until(lambda: office.hub.linked() == [])


@pytest.mark.parametrize("path", PATHS)
async def test_who_is_let_in_between_the_revocation_and_its_cut_is_cut_with_the_others(
    office: Office, path: str
) -> None:
    ann = await member(office, "ann")
    control, _ = await introduced(office, ann)
    with held_back(office.registry.devices, "find") as held:
        link = await dial(office, ann, path)
        await held.has_begun()
        office.registry.devices.revoke(ann.device_id, "evict")
        held.may_go.set()
        await until(lambda: len(office.hub._reception._links[ann.device_id]) == 2)
    office.hub.disconnect(ann.device_id, CloseCode.NOT_APPROVED, "revoked", "It was sold.")
    assert await refusal(link) == CloseCode.NOT_APPROVED
    assert await refusal(control) == CloseCode.NOT_APPROVED
    await until(lambda: office.hub.linked() == [])


async def test_another_pcs_revocation_makes_nobody_look_again(office: Office) -> None:
    ann, bob = await member(office, "ann"), await member(office, "bob")
    with held_back(office.registry.devices, "find") as held:
        link = await dial(office, ann, BULK_PATH)
        await held.has_begun()
        office.hub.disconnect(bob.device_id, CloseCode.NOT_APPROVED, "revoked", "It was sold.")
        held.may_go.set()
        await until(lambda: office.hub.linked() == [ann.device_id])
        assert not held.begun.acquire(blocking=False)
    await link.close()


async def test_a_pc_that_is_revoked_while_its_mark_is_exchanged_gets_no_session(office: Office) -> None:
    ann = await member(office, "ann")
    with held_back(office.registry.marks, "exchange") as held:
        link = await dial(office, ann, CONTROL_PATH)
        await link.send(encode_message(make_hello()))
        await held.has_begun()
        office.registry.devices.revoke(ann.device_id, "evict")
        office.hub.disconnect(ann.device_id, CloseCode.NOT_APPROVED, "revoked", "It was sold.")
        held.may_go.set()
        assert await refusal(link) == CloseCode.NOT_APPROVED
    await until(lambda: office.hub.linked() == [])
    assert office.hub._sessions.find(ann.device_id) is None


async def test_a_pc_that_leaves_while_its_mark_is_exchanged_takes_nobodys_place(office: Office) -> None:
    ann = await member(office, "ann")
    with held_back(office.registry.marks, "exchange") as held:
        link = await dial(office, ann, CONTROL_PATH)
        await link.send(encode_message(make_hello()))
        await held.has_begun()
        (served,) = office.hub._reception._links[ann.device_id]
        link.transport.abort()
        await served.wait_closed()
        held.may_go.set()
        await until(lambda: office.hub.linked() == [])
    assert office.hub._sessions.find(ann.device_id) is None
    assert office.device().state == "active"


@pytest.mark.expected_logs("console.fleet.clones", "two PCs use its identity")
async def test_a_copy_that_comes_while_a_mark_is_exchanged_is_found(office: Office) -> None:
    ann = await member(office, "ann")
    with held_back(office.registry.marks, "exchange") as held:
        both = [await dial(office, ann, CONTROL_PATH) for _ in range(2)]
        for link in both:
            await link.send(encode_message(make_hello()))
            await held.has_begun()
        held.may_go.set()
        for link in both:
            with contextlib.suppress(ConnectionClosed):
                async with asyncio.timeout(PATIENCE_S):
                    while True:
                        await link.recv()
            assert link.close_code == CloseCode.NOT_APPROVED
    assert office.device().state == "suspended"


async def test_a_mark_that_is_being_confirmed_is_waited_for_by_the_next_session(office: Office) -> None:
    ann = await member(office, "ann")
    control, mark = await introduced(office, ann)
    with held_back(office.registry.marks, "confirm") as held:
        await control.send(encode_message(MarkKept(mark)))
        await held.has_begun()
        await (await control.ping())
        await control.close()
        again = await dial(office, ann, CONTROL_PATH)
        await again.send(encode_message(make_hello(mark=mark)))
        await until(lambda: office.hub.linked() == [ann.device_id])
        assert office.hub._sessions.find(ann.device_id) is None
        held.may_go.set()
        assert isinstance(decode_from_console(await again.recv(decode=False)), Welcome)
    await again.close()
    assert office.device().state == "active"


async def test_a_hub_that_stops_writes_the_marks_that_were_confirmed(tmp_path: Path) -> None:
    async with open_office(tmp_path) as office:
        ann = await member(office, "ann")
        control, mark = await introduced(office, ann)
        with held_back(office.registry.marks, "confirm") as held:
            await control.send(encode_message(MarkKept(mark)))
            await held.has_begun()
            stopping = asyncio.create_task(office.hub.stop())
            await control.wait_closed()
            assert not stopping.done()
            held.may_go.set()
            await stopping
        assert office.confirmed_mark() == mark


def introduction() -> bytes:
    return encode(Frame(FrameType.TICKET, 1, 1, 0, 0, 0, b"", None))


async def dial_stage(office: Office, identity: Identity) -> Wire:
    context = client_tls(credentials_of(identity))
    context.set_alpn_protocols([STAGE_PROTOCOL])
    address = office.url.removeprefix("wss://")
    wire = await asyncio.to_thread(Wire.dial, address, context, identity.server_hostname, PATIENCE_S)
    await asyncio.to_thread(wire.send, introduction())
    return wire


async def told(wire: Wire) -> Frame:
    data = b""
    while chunk := await asyncio.to_thread(wire.receive, PATIENCE_S):
        data += chunk
        with contextlib.suppress(Exception):  # not whole yet
            return decode(data)
    raise EOFError


@pytest.fixture
async def serving(office: Office) -> AsyncIterator[Identity]:
    """A PC that holds stage 0 of pipeline 1 in epoch 1."""
    ann = await member(office, "ann")
    control, _ = await introduced(office, ann)
    data = await dial(office, ann, DATA_PATH)
    await until(lambda: bool(office.hub.agents()))
    office.hub.set_route(1, 1, [ann.device_id])
    yield ann
    await asyncio.gather(control.close(), data.close())


async def test_a_stages_own_link_is_looked_up_beside_everything_else(office: Office, serving: Identity) -> None:
    with held_back(office.registry.devices, "find") as held:
        wire = await dial_stage(office, serving)
        await held.has_begun()
        assert [agent.device_id for agent in office.hub.agents()] == [serving.device_id]
        assert office.hub._sessions.uplink(serving.device_id, 1) is None
        held.may_go.set()
        assert (await told(wire)).type is FrameType.TAKEN
    wire.close()
    await until(lambda: office.hub._sessions.uplink(serving.device_id, 1) is None)


async def test_a_stage_whose_pc_is_revoked_while_it_is_looked_up_gets_no_link(
    office: Office, serving: Identity
) -> None:
    with held_back(office.registry.devices, "find") as held:
        wire = await dial_stage(office, serving)
        await held.has_begun()
        office.registry.devices.revoke(serving.device_id, "evict")
        office.hub.disconnect(serving.device_id, CloseCode.NOT_APPROVED, "revoked", "It was sold.")
        held.may_go.set()
        answer = await told(wire)
    assert answer.type is FrameType.NACK
    assert msgspec.msgpack.decode(answer.table, type=Nack).code == "evicted"
    wire.close()
    assert office.hub.linked() == []


async def test_a_stage_that_leaves_while_it_is_looked_up_leaves_nothing_behind(
    office: Office, serving: Identity
) -> None:
    with held_back(office.registry.devices, "find") as held:
        wire = await dial_stage(office, serving)
        await held.has_begun()
        wire.close()
        held.may_go.set()
    again = await dial_stage(office, serving)
    assert (await told(again)).type is FrameType.TAKEN
    again.close()
    await until(lambda: office.hub._sessions.uplink(serving.device_id, 1) is None)


async def test_a_registry_that_fails_costs_a_stage_its_link_and_is_told(
    office: Office, serving: Identity, monkeypatch: pytest.MonkeyPatch, expected_logs: Any
) -> None:
    expected_logs("console.fleet.uplinks", "could not be let in")

    def fail(device_id: str) -> None:
        raise OperationalError("SELECT", {}, Exception("database is locked"))

    monkeypatch.setattr(office.registry.devices, "find", fail)
    wire = await dial_stage(office, serving)
    answer = await told(wire)
    assert (answer.type, msgspec.msgpack.decode(answer.table, type=Nack).code) == (FrameType.NACK, "error")
    wire.close()
    assert [agent.device_id for agent in office.hub.agents()] == [serving.device_id]


@pytest.mark.parametrize("shown_on", ["stage", "door", "files"])
async def test_a_replaced_key_has_the_device_held_at_once_wherever_it_is_shown(
    office: Office, serving: Identity, monkeypatch: pytest.MonkeyPatch, shown_on: str
) -> None:
    monkeypatch.setattr(office.registry.device_keys, "use", lambda device_id, key: "outdated")
    renewed = msgspec.structs.replace(office.device(), spki_sha256="ab")
    monkeypatch.setattr(office.registry.devices, "find", lambda device_id: renewed)
    if shown_on == "stage":
        wire = await dial_stage(office, serving)
        assert msgspec.msgpack.decode((await told(wire)).table, type=Nack).code == "suspended"
        wire.close()
    elif shown_on == "files":
        assert await refusal(await dial(office, serving, BULK_PATH)) == CloseCode.NOT_APPROVED
    else:
        url, context = f"{office.url}{ENROL_PATH}", client_context(serving)
        question = Diagnose(certificate=serving.certificate.public_bytes(Encoding.DER))
        async with connect(url, ssl=context, server_hostname=serving.server_hostname, proxy=None) as door:
            await door.recv()
            await door.send(encode_enrol(question))
            assert await door.recv(decode=False)
    # Nobody else tells the PC that is here with the same identity.
    await until(lambda: office.hub.linked() == [])
    assert office.device().state == "suspended"


@pytest.mark.parametrize("asked", ["enrol", "renew", "diagnose"])
async def test_links_go_on_while_the_open_door_asks_the_registry(office: Office, tmp_path: Path, asked: str) -> None:
    ann = await member(office, "ann")
    control, _ = await introduced(office, ann)
    part, name = {
        "enrol": (office.registry.devices, "add_pending"),
        "renew": (office.registry.device_keys, "renew"),
        "diagnose": (office.registry.devices, "find"),
    }[asked]
    invite = office.invite()
    with held_back(part, name) as held:
        calls: dict[str, Callable[[], Any]] = {
            "enrol": lambda: enrol_pc(invite, tmp_path / "bob"),
            "renew": lambda: renew(ann, KEYS),
            "diagnose": lambda: diagnose(ann),
        }
        asking = asyncio.create_task(calls[asked]())
        await held.has_begun()
        await (await control.ping())
        assert not asking.done()
        held.may_go.set()
        answer = await asking
    assert answer == Diagnosis("ok", answer.message) if asked == "diagnose" else isinstance(answer, Identity)
    await control.close()


async def test_a_revocation_closes_the_links_also_when_whoever_asked_for_it_is_gone(office: Office) -> None:
    ann = await member(office, "ann")
    control, _ = await introduced(office, ann)
    gate = Gate(office.registry, ask=office.registry.ask)
    routes = MemberRoutes(office.registry, office.authority, office.hub, list, gate)
    path = {"type": "http", "method": "POST", "path_params": {"device_id": ann.device_id}, "headers": []}

    async def no_body() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    with held_back(office.registry.devices, "revoke") as held:
        asking = asyncio.create_task(routes.revoke(Request(path, no_body), Actor("ada")))
        await held.has_begun()
        await (await control.ping())
        asking.cancel()
        held.may_go.set()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert await refusal(control) == CloseCode.NOT_APPROVED
