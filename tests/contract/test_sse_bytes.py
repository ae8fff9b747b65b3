"""The bytes of a stream, read from the socket without any SDK between: what strict parsers depend on."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import httpx2
import msgspec
import pytest

from console.api.openai import routes
from console.api.openai.answers import StreamedAnswer
from console.pipeline.parts import StageTime, TimeParts
from console.pipeline.types import Details, Failed, Reading, Text, Waiting
from tests.conftest import ExpectLogs
from tests.support.api import CHAT_KEY, ScriptedModel, Step, chat_app, finished, says, serving
from tests.support.patience import PATIENCE_S

BODY = {"model": "small", "messages": [{"role": "user", "content": "Hi"}], "stream": True}


async def stream(model: ScriptedModel, **fields: Any) -> tuple[httpx2.Response, list[str]]:
    """Ask for a stream; return the response and its events, each without the blank line that ends it."""
    headers = {"Authorization": f"Bearer {CHAT_KEY}"}
    async with serving(chat_app(model)) as url, httpx2.AsyncClient(base_url=url, headers=headers) as client:
        response = await client.post("/v1/chat/completions", json=BODY | fields, timeout=PATIENCE_S)
    assert response.text.endswith("\n\n") or response.is_error
    return response, response.text.split("\n\n")[:-1]


def chunk(event: str) -> dict[str, Any]:
    assert event.startswith("data: ")
    assert "\n" not in event
    return dict(json.loads(event.removeprefix("data: ")))


async def test_a_stream_opens_with_the_role_then_only_text_then_the_reason_then_done() -> None:
    _, events = await stream(ScriptedModel(says("a", "b")))
    assert events[-1] == "data: [DONE]"
    choices = [chunk(event)["choices"] for event in events[:-1]]
    assert [choice[0]["delta"] for choice in choices] == [
        {"role": "assistant", "content": ""},
        {"content": "a"},
        {"content": "b"},
        {},
    ]
    assert [choice[0]["finish_reason"] for choice in choices] == [None, None, None, "stop"]


async def test_identity_is_the_same_on_all_chunks_and_nulls_are_written_out() -> None:
    _, events = await stream(ScriptedModel(says("a")))
    chunks = [chunk(event) for event in events[:-1]]
    assert len({(item["id"], item["created"], item["model"], item["object"]) for item in chunks}) == 1
    assert chunks[0]["id"].startswith("chatcmpl-")
    assert all({"index", "delta", "finish_reason", "logprobs"} == set(item["choices"][0]) for item in chunks)
    assert all(item["choices"][0]["logprobs"] is None for item in chunks)


async def test_who_waits_for_a_place_reads_how_many_are_ahead_in_comments() -> None:
    _, events = await stream(ScriptedModel([Waiting(3), Waiting(0), *says("a")]))
    assert events[:2] == [": waiting, 3 ahead", ": waiting, 0 ahead"]
    assert chunk(events[2])["choices"][0]["delta"]["role"] == "assistant"
    assert events[-1] == "data: [DONE]"


async def test_usage_is_sent_only_when_asked() -> None:
    _, events = await stream(ScriptedModel(says("a")))
    assert not any("usage" in chunk(event) for event in events[:-1])
    assert chunk(events[-2])["timings"]["total_ms"] == 20.0


async def test_with_usage_every_chunk_has_the_field_and_the_last_one_has_no_choices() -> None:
    _, events = await stream(ScriptedModel(says("a")), stream_options={"include_usage": True})
    chunks = [chunk(event) for event in events[:-1]]
    assert [item["usage"] for item in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 1,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    timings = chunks[-1]["timings"]
    assert (timings["queue_ms"], timings["first_token_ms"], timings["total_ms"]) == (0.5, 10.0, 20.0)
    assert set(timings["parts"]) == set(TimeParts.__struct_fields__)
    assert timings["slowest"] == ""


async def test_details_and_how_far_the_prompt_is_read_come_only_when_asked() -> None:
    stages = [StageTime("pc-1", 3.0, 0.5, 1.0)]
    details = Details(["pc-1", "pc-2"], 8, 5, stages, "It was inference, at pc-1.")
    script: list[Step] = [Reading(256, 600), Text("a", [1]), msgspec.structs.replace(finished(), details=details)]
    _, events = await stream(ScriptedModel(script), stream_options={"include_usage": True, "include_details": True})
    assert events[0] == ": reading, 256 of 600 tokens"
    assert chunk(events[-2])["details"] == {
        "pcs": ["pc-1", "pc-2"],
        "drafted": 8,
        "accepted": 5,
        "stages": [{"pc": "pc-1", "compute_ms": 3.0, "turn_ms": 0.5, "link_ms": 1.0}],
        "slowest": "It was inference, at pc-1.",
    }
    assert chunk(events[-2])["timings"]["total_ms"] == 20.0
    _, events = await stream(ScriptedModel(script), stream_options={"include_details": True})
    assert chunk(events[-2])["details"]["pcs"] == ["pc-1", "pc-2"]
    _, events = await stream(ScriptedModel(script), stream_options={"include_usage": True})
    assert not any(event.startswith(":") or '"details"' in event for event in events)


async def test_the_reason_length_is_told() -> None:
    _, events = await stream(ScriptedModel([Text("a", [1]), finished(reason="length")]))
    assert chunk(events[-2])["choices"][0]["finish_reason"] == "length"


async def test_an_answer_without_text_is_still_a_whole_stream() -> None:
    _, events = await stream(ScriptedModel([finished(completion=1)]))
    assert [chunk(event)["choices"][0]["delta"] for event in events[:-1]] == [{"role": "assistant", "content": ""}, {}]


async def test_an_error_after_the_first_byte_is_one_event_and_then_the_end() -> None:
    failed = Failed("stage_lost", "A PC left; send the request again.")
    response, events = await stream(ScriptedModel([Text("a", [1]), failed]))
    assert response.status_code == 200
    last = chunk(events[-1])
    assert last["error"] == {
        "message": "A PC left; send the request again.",
        "type": "server_error",
        "param": None,
        "code": "stage_lost",
    }
    assert last["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "error"}]
    assert last["id"] == chunk(events[0])["id"]
    assert "[DONE]" not in response.text


async def test_an_answer_whose_model_is_taken_down_says_cancelled() -> None:
    _, events = await stream(ScriptedModel([Text("a", [1]), Failed("cancelled", "The model was taken down.")]))
    last = chunk(events[-1])
    assert (last["choices"][0]["finish_reason"], last["error"]["code"]) == ("cancelled", "cancelled")


async def test_an_error_before_the_first_byte_is_an_http_status() -> None:
    response, events = await stream(ScriptedModel([Failed("not_ready", "No stage is loaded.")]))
    assert response.status_code == 503
    assert events == []
    assert response.headers["content-type"] == "application/json"
    assert response.headers["retry-after"] == "5"
    assert response.headers["x-should-retry"] == "true"
    assert response.json()["error"]["code"] == "not_ready"


async def test_an_unexpected_error_mid_stream_tells_the_client_without_the_cause(expected_logs: ExpectLogs) -> None:
    expected_logs("console.api.openai.answers")
    _, events = await stream(ScriptedModel([Text("a", [1]), RuntimeError("secret detail")]))
    assert chunk(events[-1])["error"]["code"] == "internal_error"
    assert "secret" not in events[-1]


async def test_an_unexpected_error_before_the_first_byte_is_a_500_in_the_same_shape(expected_logs: ExpectLogs) -> None:
    expected_logs("console.api.app")
    response, _ = await stream(ScriptedModel([RuntimeError("secret detail")]))
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"
    assert response.headers["x-request-id"] in response.json()["error"]["message"]
    assert "secret" not in response.text


async def test_headers_say_event_stream_without_caching_or_buffering() -> None:
    response, _ = await stream(ScriptedModel(says("a")))
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-request-id"].startswith("req_")
    assert "access-control-allow-origin" not in response.headers


async def test_silence_is_filled_with_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()
    model = ScriptedModel([gate, *says("late")])

    monkeypatch.setattr(routes, "StreamedAnswer", partial(StreamedAnswer, keep_alive_s=0.01))
    headers = {"Authorization": f"Bearer {CHAT_KEY}"}
    async with (
        serving(chat_app(model)) as url,
        httpx2.AsyncClient(base_url=url, headers=headers) as client,
        client.stream("POST", "/v1/chat/completions", json=BODY) as response,
    ):
        parts = aiter(response.aiter_text())
        first = await anext(parts)
        gate.set()
        rest = "".join([part async for part in parts])
    assert first == ": waiting\n\n"
    assert [line for line in rest.split("\n\n") if line.startswith("data")][-1] == "data: [DONE]"
    assert '"late"' in rest


async def test_text_is_utf_8_and_quotes_and_newlines_are_escaped() -> None:
    text = 'Grüße 😀 "x"\n\ndata: {}'
    response, events = await stream(ScriptedModel(says(text)))
    assert chunk(events[1])["choices"][0]["delta"]["content"] == text
    assert "😀".encode() in response.content


async def test_a_slow_reader_does_not_hold_up_another_stream() -> None:
    many = ScriptedModel(says(*["x" * 10_000] * 3000), model_id="many")
    small = ScriptedModel(says("quick"))
    headers = {"Authorization": f"Bearer {CHAT_KEY}"}
    async with (
        serving(chat_app(many, small)) as url,
        httpx2.AsyncClient(base_url=url, headers=headers) as client,
        client.stream("POST", "/v1/chat/completions", json=BODY | {"model": "many"}) as unread,
    ):
        answer = await client.post("/v1/chat/completions", json=BODY, timeout=PATIENCE_S)
        assert '"quick"' in answer.text
        assert not many.closed.is_set()
        await unread.aclose()
        await asyncio.wait_for(many.closed.wait(), PATIENCE_S)


async def test_a_client_that_hangs_up_mid_stream_closes_the_generation() -> None:
    model = ScriptedModel([Text("a", [1]), asyncio.Event(), finished()])
    async with serving(chat_app(model)) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps(BODY).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {CHAT_KEY}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await reader.readuntil(b'"content":"a"')
        writer.transport.abort()
        await asyncio.wait_for(model.closed.wait(), PATIENCE_S)


@pytest.mark.parametrize("header", ["Basic abc", "Bearer", "Bearer wrong", "bearer-chat-secret", ""])
async def test_without_a_live_key_nothing_is_answered(header: str) -> None:
    model = ScriptedModel(says("a"))
    async with serving(chat_app(model)) as url, httpx2.AsyncClient(base_url=url) as client:
        response = await client.post("/v1/chat/completions", json=BODY, headers={"Authorization": header})
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"
    assert model.requests == []
