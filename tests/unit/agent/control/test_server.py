"""agent.control: server and client over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from agent.control import client as client_module
from agent.control import endpoint as endpoint_module
from agent.control.client import ControlClient
from agent.control.endpoint import UnixSocket, endpoint_of
from agent.control.errors import ControlUnavailable, NotRunning, OrderRefused
from agent.control.protocol import (
    LENGTH,
    MAX_ANSWER_BYTES,
    MAX_REQUEST_BYTES,
    PROTOCOL,
    Answer,
    Done,
    FromService,
    Greeting,
    Order,
    Pause,
    QueryHistory,
    Refused,
    Resume,
    RunDoctor,
    Subscribe,
    Told,
    decode_from_service,
    encode,
)
from agent.control.server import ControlServer
from agent.control.status import Status
from tests.support.patience import PATIENCE_S, until
from tests.unit.agent.control.test_protocol import make_status


@dataclass
class ScriptedAgent:
    """Answers orders as the test says."""

    now: Status = field(default_factory=make_status)
    orders: list[Order] = field(default_factory=list)
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: bool = False

    def status(self) -> Status:
        return self.now

    async def carry_out(self, order: Order, tell: Callable[[Told], None]) -> Answer:
        self.orders.append(order)
        if isinstance(order, Resume):
            raise OrderRefused("An administrator paused this PC.", "not_allowed")
        if isinstance(order, RunDoctor):
            tell(Told(order.id, "disk"))
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        if isinstance(order, QueryHistory):
            raise ZeroDivisionError
        return Done(order.id, "Done so.")


@pytest.fixture
def agent() -> ScriptedAgent:
    return ScriptedAgent()


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data folder, and one for sockets, whose paths have to be short."""
    with tempfile.TemporaryDirectory(prefix="fw") as short:
        runtime = Path(short) / "run"
        runtime.mkdir(mode=0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        yield Path(short)


@pytest.fixture
async def server(folder: Path, agent: ScriptedAgent) -> AsyncIterator[ControlServer]:
    running = ControlServer(endpoint_of(folder), agent)
    await running.start()
    yield running
    await running.close()


def path_of(folder: Path) -> Path:
    endpoint = endpoint_of(folder)
    assert isinstance(endpoint, UnixSocket)
    return endpoint.path


@contextlib.asynccontextmanager
async def raw(
    folder: Path, *, greet: int = PROTOCOL
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_unix_connection(str(path_of(folder)))
    try:
        if greet:
            writer.write(encode(Greeting(greet, "9.9", "test")))
            await hear(reader)
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def hear(reader: asyncio.StreamReader) -> FromService:
    async with asyncio.timeout(PATIENCE_S):
        (size,) = LENGTH.unpack(await reader.readexactly(4))
        return decode_from_service(await reader.readexactly(size))


async def test_an_order_is_answered(server: ControlServer, folder: Path, agent: ScriptedAgent) -> None:
    async with ControlClient.open(folder, "test") as client:
        order = Pause(client.next_id(), "time", 900.0)
        assert await client.order(order) == Done(order.id, "Done so.")
    assert agent.orders == [order]


async def test_a_refusal_is_an_error_with_the_agents_sentence(server: ControlServer, folder: Path) -> None:
    async with ControlClient.open(folder, "test") as client:
        with pytest.raises(OrderRefused, match="An administrator paused") as caught:
            await client.order(Resume(client.next_id()))
    assert caught.value.code == "not_allowed"


async def test_an_order_that_breaks_is_answered_and_the_next_one_works(
    server: ControlServer, folder: Path, expected_logs: Callable[..., None]
) -> None:
    expected_logs("agent.control.server", "QueryHistory failed")
    async with ControlClient.open(folder, "test") as client:
        with pytest.raises(OrderRefused, match="look at its log"):
            await client.order(QueryHistory(client.next_id(), 0.0, 1.0))
        assert isinstance(await client.order(Pause(client.next_id(), "resumed")), Done)


async def test_a_long_order_tells_how_far_it_is_and_ends_with_its_client(
    server: ControlServer, folder: Path, agent: ScriptedAgent
) -> None:
    told: list[Told] = []
    async with ControlClient.open(folder, "test") as client:
        waiting = asyncio.create_task(client.order(RunDoctor(client.next_id()), told.append))
        await until(lambda: bool(told))
        assert isinstance(await client.order(Pause(client.next_id(), "resumed")), Done)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await until(lambda: agent.cancelled)


async def test_a_subscriber_hears_of_changes_only(server: ControlServer, folder: Path, agent: ScriptedAgent) -> None:
    async with ControlClient.open(folder, "test") as client:
        statuses = client.statuses()
        assert (await anext(statuses)).headline == ""
        agent.now = make_status(now_s=5.0)
        server.changed()
        await asyncio.sleep(0.1)
        agent.now = make_status(headline="Waiting: you are using this PC.")
        server.changed()
        async with asyncio.timeout(PATIENCE_S):
            assert (await anext(statuses)).headline == "Waiting: you are using this PC."


async def test_an_agent_that_ends_is_said_to_its_clients(server: ControlServer, folder: Path) -> None:
    async with ControlClient.open(folder, "test") as client:
        waiting = asyncio.create_task(client.order(RunDoctor(client.next_id())))
        statuses = client.statuses()
        await anext(statuses)
        await server.close()
        with pytest.raises(ControlUnavailable, match="ended"):
            await waiting
        with pytest.raises(ControlUnavailable, match="ended"):
            await anext(statuses)
        with pytest.raises(ControlUnavailable, match="ended"):
            await client.order(Resume(client.next_id()))


@pytest.mark.parametrize(
    "data",
    [LENGTH.pack(5) + b"hello", LENGTH.pack(0), encode(Greeting(PROTOCOL, "", "again")), encode(make_status())],
    ids=["noise", "empty", "second greeting", "a status"],
)
async def test_bytes_that_are_no_order_end_the_connection(server: ControlServer, folder: Path, data: bytes) -> None:
    async with raw(folder) as (reader, writer):
        writer.write(data)
        answer = await hear(reader)
        assert isinstance(answer, Refused)
        assert answer.code == "bad_message"
        assert await reader.read() == b""


async def test_a_message_over_the_limit_is_refused_before_it_is_read(server: ControlServer, folder: Path) -> None:
    async with raw(folder) as (reader, writer):
        writer.write(LENGTH.pack(MAX_REQUEST_BYTES + 1))
        answer = await hear(reader)
    assert isinstance(answer, Refused)
    assert "over the limit" in answer.message


async def test_another_protocol_is_refused_with_what_to_do(server: ControlServer, folder: Path) -> None:
    async with raw(folder, greet=0) as (reader, writer):
        writer.write(encode(Greeting(PROTOCOL + 1, "9.9", "tray")))
        answer = await hear(reader)
    assert isinstance(answer, Refused)
    assert "update the older one" in answer.message


async def test_too_many_orders_of_one_client_are_refused(server: ControlServer, folder: Path) -> None:
    async with raw(folder) as (reader, writer):
        for number in range(9):
            writer.write(encode(RunDoctor(number + 1)))
        answers = [await hear(reader) for _ in range(9)]
    assert [answer.id for answer in answers if isinstance(answer, Refused)] == [9]


async def test_a_client_that_does_not_read_is_cut(
    server: ControlServer, folder: Path, agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.control.server.MAX_UNREAD_BYTES", 1 << 16)
    monkeypatch.setattr("agent.control.server.SETTLE_S", 0.0)
    async with raw(folder) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(encode(Subscribe(1)))
        for number in range(60):
            agent.now = make_status(headline=f"{number} " + "x" * 50_000)
            server.changed()
            await asyncio.sleep(0.005)
    async with ControlClient.open(folder, "test") as client:
        assert isinstance(await client.order(Pause(client.next_id(), "resumed")), Done)


async def test_no_more_than_the_limit_of_clients(
    server: ControlServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.control.server.MAX_CLIENTS", 1)
    async with ControlClient.open(folder, "test"):
        with pytest.raises(ControlUnavailable, match="closed the connection"):
            async with ControlClient.open(folder, "test"):
                pass


def test_the_socket_is_for_its_user_alone(folder: Path, agent: ScriptedAgent) -> None:
    async def look() -> int:
        server = ControlServer(endpoint_of(folder), agent)
        await server.start()
        try:
            return stat.S_IMODE(path_of(folder).stat().st_mode)
        finally:
            await server.close()

    assert asyncio.run(look()) == 0o600
    assert not path_of(folder).exists()


async def test_a_system_that_does_not_set_the_mode_of_an_unbound_socket_can_listen_too(
    folder: Path, agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, mode: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fchmod", refuse)
    server = ControlServer(endpoint_of(folder), agent)
    await server.start()
    assert stat.S_IMODE(path_of(folder).stat().st_mode) == 0o600
    await server.close()


async def test_another_users_program_is_turned_away(
    server: ControlServer,
    folder: Path,
    agent: ScriptedAgent,
    monkeypatch: pytest.MonkeyPatch,
    expected_logs: Callable[..., None],
) -> None:
    expected_logs("agent.control.endpoint", "another user")
    monkeypatch.setattr(endpoint_module, "is_own_peer", lambda writer: False)
    reader, writer = await asyncio.open_unix_connection(str(path_of(folder)))
    writer.write(encode(Greeting(PROTOCOL, "", "spy")) + encode(Pause(1, "resumed")))
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    assert agent.orders == []


async def test_a_socket_somebody_else_listens_at_is_not_talked_to(
    server: ControlServer, folder: Path, monkeypatch: pytest.MonkeyPatch, expected_logs: Callable[..., None]
) -> None:
    monkeypatch.setattr(endpoint_module, "_socket_user", lambda connected: os.getuid() + 1)
    expected_logs("agent.control.endpoint", "another user", required=False)  # the server cannot know better here
    with pytest.raises(ControlUnavailable, match="Another user listens"):
        await endpoint_of(folder).connect()


async def test_a_socket_left_by_a_killed_agent_is_replaced(folder: Path, agent: ScriptedAgent) -> None:
    path = path_of(folder)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with pytest.raises(NotRunning):
        await endpoint_of(folder).connect()
    server = ControlServer(endpoint_of(folder), agent)
    await server.start()
    async with ControlClient.open(folder, "test") as client:
        assert (await client.status()).phase == "held"
    await server.close()


async def test_no_agent_no_connection(folder: Path) -> None:
    with pytest.raises(NotRunning, match="fallow-agent run"):
        await endpoint_of(folder).connect()


async def test_an_agent_that_hangs_is_an_error_after_a_moment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "GREETING_WAIT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(path_of(folder)))
        hung.listen()
        with pytest.raises(ControlUnavailable, match="does not answer"):
            async with ControlClient.open(folder, "test"):
                pass


def test_without_a_runtime_folder_a_private_one_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(folder))
    assert path_of(folder).parent == folder / f"fallow-agent-{os.getuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    folder.chmod(0o755)
    assert path_of(folder).parent != folder, "others can look into that one"


async def test_a_runtime_folder_others_can_enter_is_refused(
    folder: Path, agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(folder))
    (folder / f"fallow-agent-{os.getuid()}").mkdir(mode=0o777)
    (folder / f"fallow-agent-{os.getuid()}").chmod(0o777)
    with pytest.raises(ControlUnavailable, match="private folder"):
        await ControlServer(endpoint_of(folder), agent).start()


def test_each_data_folder_has_its_own_socket(folder: Path) -> None:
    assert path_of(folder / "a") != path_of(folder / "b")
    assert path_of(folder / "a") == path_of(folder / "b" / ".." / "a")


def test_a_status_fits_the_clients_limit() -> None:
    status = make_status(headline="x" * 1000, seen_by_console={str(n): "y" * 100 for n in range(50)})
    assert len(msgspec.msgpack.encode(status)) < MAX_ANSWER_BYTES
