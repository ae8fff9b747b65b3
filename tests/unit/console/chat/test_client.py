"""console.chat.client, events and sse: answers of a real server, and everything that can go wrong with them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.access import Access
from console.chat.client import ChatClient, Model, request_of
from console.chat.errors import AnswerFailed
from console.chat.events import AnswerReader, Ended, Event, Piece, Queued, Reading, Recovering, refusal
from console.chat.records import Message, Sampling, Setup
from console.pipeline import types as pipeline
from console.sse import MOST_LINE_BYTES, Comment, Data, LineTooLong, SseParser
from tests.conftest import ExpectLogs
from tests.support.api import CHAT_KEY, ScriptedModel, Step, chat_app, finished, says, serving
from tests.support.patience import PATIENCE_S, until
from tests.support.toy_stages import Stages, make_coordinator

STREAM = b": waiting\n\ndata: a\ndata: b\n\nevent: x\r\ndata:c\r\n\r\ndata: \xc3\xa9\r\r"
HELLO = [Message(id="1", chat_id="c", parent_id=None, role="user", text="Hi")]
SETUP = Setup("small", "Be brief.", Sampling(temperature=0.0, max_tokens=5))


@given(st.lists(st.integers(1, 7), min_size=1))
def test_a_stream_is_read_the_same_in_any_pieces(steps: list[int]) -> None:
    parser, found, at, turn = SseParser(), [], 0, 0
    while at < len(STREAM):
        step = steps[turn % len(steps)]
        found += parser.feed(STREAM[at : at + step])
        at, turn = at + step, turn + 1
    assert found == [Comment("waiting"), Data("a\nb"), Data("c"), Data("é")]


@given(st.binary(max_size=200))
def test_no_bytes_break_the_parser(data: bytes) -> None:
    SseParser().feed(data)


def test_a_line_without_an_end_is_given_up() -> None:
    parser = SseParser()
    with pytest.raises(LineTooLong):
        parser.feed(b"data: " + b"x" * MOST_LINE_BYTES)


async def all_of(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


async def answer_of(
    model: ScriptedModel, *, key: str = CHAT_KEY, setup: Setup = SETUP, **options: Any
) -> tuple[list[Event], AnswerFailed | None]:
    """Ask a served model; returns what came and the error, if there was one."""
    events: list[Event] = []
    async with serving(chat_app(model, **options)) as url:
        client = ChatClient(Access(url, key))
        try:
            async with aclosing(client.ask(setup, HELLO, AnswerReader("small"))) as answer:
                async for event in answer:
                    events += [event]
        except AnswerFailed as error:
            return events, error
        finally:
            await client.close()
    return events, None


async def test_an_answer_comes_with_its_figures() -> None:
    details = pipeline.Details(["pc-1", "pc-2"], drafted=4, accepted=3)
    script: list[Step] = [
        pipeline.Waiting(2), pipeline.Reading(256, 600), pipeline.Recovering("PC 7 left."), pipeline.Text("Good ", [1]),
        pipeline.Text("day", [2]), msgspec.structs.replace(finished(), details=details),
    ]  # fmt: skip
    model = ScriptedModel(script)
    events, error = await answer_of(model)
    assert error is None
    assert events[:3] == [Queued(2), Reading(256, 600), Recovering("PC 7 left.")]
    assert events[3:5] == [Piece("Good "), Piece("day")]
    last = events[-1]
    assert isinstance(last, Ended)
    assert (last.facts.model, last.facts.ending, last.facts.pcs) == ("small", "stop", ["pc-1", "pc-2"])
    assert (last.facts.prompt_tokens, last.facts.first_token_ms, last.facts.acceptance) == (5, 10.0, 0.75)
    assert model.messages[0] == {"role": "system", "content": "Be brief."}
    assert (model.requests[0].max_tokens, model.requests[0].sampling.temperature) == (5, 0.0)


async def test_the_models_that_the_key_may_use_are_listed() -> None:
    async with serving(chat_app(ScriptedModel([], context_tokens=4096))) as url:
        client = ChatClient(Access(url, CHAT_KEY))
        assert await client.models() == [Model("small", ready=True, context_tokens=4096)]
        await client.close()


async def test_stop_closes_the_request_and_the_server_ends_the_answer() -> None:
    model = ScriptedModel([pipeline.Text("a", [1]), asyncio.Event(), finished()])
    async with serving(chat_app(model)) as url:
        client = ChatClient(Access(url, CHAT_KEY))
        async with aclosing(client.ask(SETUP, HELLO, AnswerReader("small"))) as answer:
            assert await anext(answer) == Piece("a")
        await asyncio.wait_for(model.closed.wait(), PATIENCE_S)
        await client.close()


async def test_stop_frees_the_blocks_of_the_answer_at_every_stage() -> None:
    stages = Stages(count=2)
    coordinator = make_coordinator(stages, context_tokens=4096, kv_tokens=8192)
    free = coordinator._scheduler._caches._ledger.free
    async with serving(chat_app(coordinator)) as url:
        client = ChatClient(Access(url, CHAT_KEY))
        async with aclosing(client.ask(Setup("toy"), HELLO, AnswerReader("toy"))) as answer:
            assert isinstance(await anext(answer), Piece)
            assert stages.caches
            assert coordinator.status().streams_running == 1
        await until(lambda: coordinator.status().streams_running == 0 and not stages.caches)
        assert coordinator._scheduler._caches._ledger.free == free
        await client.close()
    await coordinator.close()


Made = Callable[[], tuple[ScriptedModel, dict[str, Any]]]


@pytest.mark.parametrize(
    ("make", "kind", "says_"),
    [
        (lambda: (ScriptedModel(says("x")), {"key": "revoked"}), "key", "revoked"),
        (lambda: (ScriptedModel(says("x")), {"setup": Setup("gone")}), "model", "not deployed here"),
        (lambda: (ScriptedModel(says("x")), {"unavailable": ["small"]}), "busy", "being loaded"),
        (lambda: (ScriptedModel(says("x"), context_tokens=3), {}), "refused", "context"),
        (lambda: (ScriptedModel([pipeline.Failed("too_many_waiting", "Too many.")]), {}), "busy", "Too many"),
        (
            lambda: (ScriptedModel([pipeline.Text("a", [1]), pipeline.Failed("stage_lost", "Left.")]), {}),
            "broken",
            "Left",
        ),
        (
            lambda: (ScriptedModel([pipeline.Text("a", [1]), pipeline.Failed("cancelled", "Taken.")]), {}),
            "model",
            "Taken",
        ),
    ],
)
async def test_every_failure_says_what_happened(make: Made, kind: str, says_: str) -> None:
    model, options = make()
    _, error = await answer_of(model, **options)
    assert error is not None
    assert error.kind == kind
    assert says_ in str(error)


async def test_a_server_that_says_when_to_come_back_is_heard() -> None:
    _, error = await answer_of(ScriptedModel(says("x")), unavailable=["small"])
    assert error is not None
    assert error.retry_after_s == 7


async def test_nobody_there_is_said_with_the_address() -> None:
    client = ChatClient(Access("http://127.0.0.1:9", CHAT_KEY))
    with pytest.raises(AnswerFailed, match=r"127.0.0.1:9 cannot be reached") as failed:
        await client.models()
    assert failed.value.kind == "unreachable"
    with pytest.raises(AnswerFailed) as failed:
        await all_of(client.ask(SETUP, HELLO, AnswerReader("small")))
    assert failed.value.kind == "unreachable"
    await client.close()


@contextlib.asynccontextmanager
async def client_of(body: bytes) -> AsyncIterator[ChatClient]:
    """A client of what answers every request with these bytes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        client = ChatClient(Access(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", CHAT_KEY))
        yield client
        await client.close()


async def test_a_stream_that_ends_without_its_mark_is_incomplete() -> None:
    body = b'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: {"choices":[]}\n\n'
    async with client_of(body) as client:
        with pytest.raises(AnswerFailed, match="broke off") as failed:
            await all_of(client.ask(SETUP, HELLO, AnswerReader("small")))
        assert failed.value.kind == "incomplete"


@pytest.mark.parametrize(
    "body",
    [
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnone",
        b"HTTP/1.1 200 OK\r\nContent-Length: 7000\r\n\r\n" + b"[" * 7000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xff",
        b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_what_answers_and_is_no_console_is_said_so(body: bytes) -> None:
    async with client_of(body) as client:
        with pytest.raises(AnswerFailed, match="no Fallow console") as failed:
            await client.models()
        assert failed.value.kind == "broken"


@pytest.mark.parametrize(
    ("url", "key"), [("https://console.example", "sch\u00f6n"), ("https://\x7f", "k"), ("https://x:99999", "k")]
)
def test_a_key_or_an_address_that_nothing_can_be_sent_with_is_said(url: str, key: str) -> None:
    with pytest.raises(AnswerFailed) as failed:
        ChatClient(Access(url, key))
    assert "sch" not in str(failed.value)


async def test_an_unexpected_error_in_the_stream_is_an_error_here(expected_logs: ExpectLogs) -> None:
    expected_logs("console.api.openai.answers")
    events, error = await answer_of(ScriptedModel([pipeline.Text("a", [1]), RuntimeError("x")]))
    assert events == [Piece("a")]
    assert error is not None
    assert (error.kind, error.code) == ("broken", "internal_error")


def test_done_without_a_finish_reason_is_no_whole_answer() -> None:
    with pytest.raises(AnswerFailed) as failed:
        AnswerReader("m").read(Data("[DONE]"))
    assert failed.value.kind == "incomplete"


@pytest.mark.parametrize("text", ["{", "[]", '{"choices": 3}', "null"])
def test_what_is_no_answer_is_said_so(text: str) -> None:
    with pytest.raises(AnswerFailed, match="no answer"):
        AnswerReader("m").read(Data(text))


@pytest.mark.parametrize(
    ("comment", "event"),
    [
        ("waiting", []),
        ("waiting, 3 ahead", [Queued(3)]),
        ("reading, 5 of 9 tokens", [Reading(5, 9)]),
        ("recovering, PC 7 left.", [Recovering("PC 7 left.")]),
        ("something new", []),
    ],
)
def test_notes_of_the_server_are_read_from_its_comments(comment: str, event: list[Event]) -> None:
    assert AnswerReader("m").read(Comment(comment)) == event


def test_a_refusal_in_any_shape_becomes_a_sentence() -> None:
    assert "status 502" in str(refusal(502, b"<html>", ""))
    assert refusal(502, b"<html>", "soon").retry_after_s is None
    assert refusal(400, b'{"error": "plain"}', "").kind == "refused"
    assert refusal(403, b'{"error": {"message": "No.", "code": "model_not_allowed"}}', "").kind == "model"
    assert refusal(429, b"{}", "3").retry_after_s == 3


def test_empty_answers_are_left_out_of_the_question() -> None:
    empty = Message(id="2", chat_id="c", parent_id="1", role="assistant", text="")
    assert [said["content"] for said in request_of(Setup("m"), [*HELLO, empty])["messages"]] == ["Hi"]
