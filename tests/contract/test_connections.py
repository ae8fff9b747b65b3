"""Connections of clients that do nothing end by themselves, and with them all that is held for their sake."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from console.api import connections
from console.api.http import MAX_BODY_BYTES
from console.pipeline.types import Text
from tests.support.api import CHAT_KEY, ScriptedModel, chat_app, finished, says, serving
from tests.support.patience import PATIENCE_S
from tests.support.raw_http import Connection

HEADERS = {"Authorization": f"Bearer {CHAT_KEY}"}
SOON_S = 0.2


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(says("a"))


@pytest.fixture
async def url(model: ScriptedModel) -> AsyncIterator[str]:
    async with serving(chat_app(model)) as url:
        yield url


def body(*, stream: bool = False) -> bytes:
    messages = [{"role": "user", "content": "Hi"}]
    return msgspec.json.encode({"model": "small", "messages": messages, "stream": stream})


async def test_a_client_that_takes_nothing_is_cut_off_and_its_answer_ends(
    url: str, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALLED_S", SOON_S)
    model.script = [*(Text("x" * 100_000, [1]) for _ in range(200)), asyncio.Event()]
    async with await Connection.open(url, small=True) as connection:
        await connection.send("/v1/chat/completions", body(stream=True), headers=HEADERS)
        await asyncio.wait_for(model.closed.wait(), PATIENCE_S)


async def test_a_client_that_takes_a_little_now_and_then_is_served(
    url: str, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALLED_S", PATIENCE_S)
    text = "x" * 2_000_000
    model.script = [Text(text, [1]), finished()]
    async with await Connection.open(url, small=True) as connection:
        await connection.send("/v1/chat/completions", body(), headers=HEADERS)
        assert (await connection.head()).status == 200
        await asyncio.sleep(SOON_S)  # it looks away for a moment
        assert msgspec.json.decode(await connection.body())["choices"][0]["message"]["content"] == text


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("headers", "status"), [({}, 413), ({"Content-Encoding": "gzip"}, 415), ({"Authorization": "Bearer wrong"}, 401)]
)
async def test_who_sends_all_of_a_body_that_is_refused_reads_why_and_goes_on(
    url: str, headers: dict[str, str], status: int, chunked: bool
) -> None:
    """A connection that is closed while its client still sends is reset, and the answer is lost on the way."""
    large = b" " * (3 * MAX_BODY_BYTES)
    async with await Connection.open(url) as connection, asyncio.timeout(PATIENCE_S):
        if chunked:
            await connection.send_chunked(
                "/v1/chat/completions", b"%x\r\n%b\r\n0\r\n\r\n" % (len(large), large), headers=HEADERS | headers
            )
        else:
            await connection.send("/v1/chat/completions", large, headers=HEADERS | headers)
        assert (await connection.head()).status == status
        assert b'"message"' in await connection.body()
        await connection.send("/v1/chat/completions", body(), headers=HEADERS)
        assert (await connection.head()).status == 200


async def test_who_goes_on_sending_what_is_refused_is_cut_off(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", SOON_S)
    fields = HEADERS | {"Content-Length": str(1 << 40)}
    async with await Connection.open(url) as connection, asyncio.timeout(PATIENCE_S):
        await connection.send("/v1/chat/completions", b" ", headers=fields)
        assert (await connection.head()).status == 413
        await connection.body()
        with contextlib.suppress(OSError):
            while True:
                await connection.send("/", b" " * 65536)
                await asyncio.sleep(0.01)
        assert await connection.ended()


@pytest.mark.parametrize("upto", [0, 40])
async def test_a_head_that_does_not_come_ends_the_connection(
    url: str, monkeypatch: pytest.MonkeyPatch, upto: int
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", SOON_S)
    async with await Connection.open(url) as connection, asyncio.timeout(PATIENCE_S):
        await connection.send("/v1/models", headers=HEADERS, upto=upto)
        assert await connection.ended()


async def test_half_a_second_request_ends_the_connection_and_a_long_answer_does_not(
    url: str, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", SOON_S)
    model.script = [3 * SOON_S, *says("a")]
    async with await Connection.open(url) as connection, asyncio.timeout(PATIENCE_S):
        for _ in range(2):
            await connection.send("/v1/chat/completions", body(), headers=HEADERS)
            assert (await connection.head()).status == 200
            await connection.body()
        await connection.send("/v1/chat/completions", body(), headers=HEADERS, upto=10)
        assert await connection.ended()
