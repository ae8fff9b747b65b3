"""The benchmark's links keep order and content, take the time they should, and lose contact on request."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.net import HOST, Link, Network, Shape, Wire
from tests.support.patience import PATIENCE_S

FAR = Shape(delay_ms=30)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 100_000)), max_size=20),
    st.floats(0, 50),
    st.sampled_from([0.0, 1e5, 1e7]),
    st.randoms(use_true_random=False),
)
def test_nothing_overtakes_and_nothing_comes_early(
    sends: list[tuple[float, int]], jitter_ms: float, bytes_per_s: float, chance: object
) -> None:
    shape = Shape(20, jitter_ms, bytes_per_s)
    wire = Wire(chance.uniform)  # type: ignore[attr-defined]  # hypothesis' Random
    now_s, last_s, total = 0.0, 0.0, 0
    for wait_s, size in sends:
        now_s, total = now_s + wait_s, total + size
        arrival_s = wire.arrival_s(now_s, size, shape)
        assert arrival_s >= max(last_s, now_s + 0.02)
        if bytes_per_s:
            assert arrival_s >= total / bytes_per_s
        last_s = arrival_s


def test_a_wire_without_shape_takes_no_time() -> None:
    assert Wire().arrival_s(5.0, 1 << 20, Shape()) == 5.0


def test_bandwidth_is_shared_by_what_is_sent_one_after_the_other() -> None:
    wire = Wire()
    assert wire.arrival_s(0.0, 1000, Shape(0, 0, 1000)) == 1.0
    assert wire.arrival_s(0.5, 1000, Shape(0, 0, 1000)) == 2.0


@contextlib.asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """Serve what sends everything back."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, HOST, 0) as server:
        yield server.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def dialled(shape: Shape) -> AsyncIterator[tuple[Link, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A link to an echo, with one connection through it."""
    async with echo() as port:
        link = await Link.open(port, shape)
        reader, writer = await asyncio.open_connection(HOST, link.port)
        try:
            yield link, reader, writer
        finally:
            writer.close()
            await link.close()


async def test_a_round_trip_takes_both_delays() -> None:
    async with dialled(FAR) as (link, reader, writer):
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        assert loop.time() - began_s >= 0.06
        assert link.carried_bytes == 10


async def test_much_data_arrives_whole_and_in_order_through_a_jittery_link() -> None:
    data = bytes(range(256)) * 50_000
    async with dialled(Shape(delay_ms=1, jitter_ms=3)) as (_, reader, writer):

        async def send() -> None:
            writer.write(data)
            await writer.drain()

        sending = asyncio.create_task(send())
        assert await reader.readexactly(len(data)) == data
        await sending


async def test_a_stalled_link_holds_everything_and_loses_nothing() -> None:
    async with dialled(Shape()) as (link, reader, writer):
        link.stall()
        writer.write(b"held")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
        link.heal()
        assert await reader.readexactly(4) == b"held"


async def test_a_cut_link_resets_and_refuses_until_it_heals() -> None:
    async with dialled(Shape()) as (link, reader, _):
        link.cut()
        assert await _ended(reader)
        refused, other = await asyncio.open_connection(HOST, link.port)
        assert await _ended(refused)
        other.close()
        link.heal()
        back, again = await asyncio.open_connection(HOST, link.port)
        again.write(b"back")
        assert await back.readexactly(4) == b"back"
        again.close()


async def _ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True


async def test_the_end_of_one_side_reaches_the_other_after_its_last_bytes() -> None:
    got = asyncio.get_running_loop().create_future()

    async def read_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.set_result(await reader.read())
        writer.close()

    async with await asyncio.start_server(read_all, HOST, 0) as server:
        link = await Link.open(server.sockets[0].getsockname()[1], FAR)
        _, writer = await asyncio.open_connection(HOST, link.port)
        writer.write(b"last words")
        writer.close()
        assert await asyncio.wait_for(got, PATIENCE_S) == b"last words"
        await link.close()


async def test_a_target_that_does_not_listen_looks_like_a_cut() -> None:
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        link = await Link.open(unused.getsockname()[1])
        reader, writer = await asyncio.open_connection(HOST, link.port)
        assert await _ended(reader)
        writer.close()
        await link.close()


def test_a_network_serves_callers_without_a_loop() -> None:
    with socket.create_server((HOST, 0)) as server, Network() as network:
        link = network.link(server.getsockname()[1])
        network.shape(Shape(delay_ms=5))
        with socket.create_connection((HOST, link.port)) as near:
            near.sendall(b"x")
            far, _ = server.accept()
            with far:
                assert far.recv(1) == b"x"
        assert network.carried_bytes == 1
