"""Every body and event that we write, held against OpenAI's own description of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter, ValidationError

from console.pipeline.types import Failed, ScoredToken, Text, TokenLogprobs
from tests.support.api import CHAT_KEY, ScriptedModel, chat_app, finished, says, serving
from tests.support.openai_schema import check
from tests.support.patience import PATIENCE_S

CHAT: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}
SCORED = TokenLogprobs(ScoredToken(9, b"Hi", -0.5), [ScoredToken(1, b"A", -0.25)])
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel([Text("Hi", [1], [SCORED]), finished()])


@pytest.fixture
async def http(model: ScriptedModel) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"Authorization": f"Bearer {CHAT_KEY}"}
    async with (
        serving(chat_app(model)) as url,
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as http,
    ):
        yield http


async def body(http: httpx2.AsyncClient, path: str, fields: dict[str, Any]) -> dict[str, Any]:
    answer = await http.post(path, json=fields)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def events(http: httpx2.AsyncClient, path: str, fields: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await http.post(path, json=fields | {"stream": True})
    lines = [line for line in answer.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


@pytest.mark.parametrize("fields", [{}, {"n": 2}, {"logprobs": True, "top_logprobs": 1}])
async def test_chat_completions(http: httpx2.AsyncClient, fields: dict[str, Any]) -> None:
    check(ChatCompletion, await body(http, "/v1/chat/completions", CHAT | fields), extensions={"timings"})
    asked = CHAT | fields | {"stream_options": {"include_usage": True, "include_details": True}}
    for event in await events(http, "/v1/chat/completions", asked):
        check(ChatCompletionChunk, event, extensions={"timings", "details"})


@pytest.mark.parametrize("fields", [{}, {"n": 2}, {"logprobs": 1}])
async def test_legacy_completions(http: httpx2.AsyncClient, fields: dict[str, Any]) -> None:
    asked = {"model": "small", "prompt": "Once"} | fields
    check(Completion, await body(http, "/v1/completions", asked), extensions={"timings"})
    for event in await events(http, "/v1/completions", asked):
        for choice in event["choices"]:
            # What the specification leaves out, and OpenAI's own server sends: no reason before the end.
            choice["finish_reason"] = choice["finish_reason"] or "stop"
        check(Completion, event, extensions={"timings"})


@pytest.mark.parametrize("reason", ["stop", "length"])
async def test_responses(http: httpx2.AsyncClient, model: ScriptedModel, reason: str) -> None:
    model.script = [*says("a", "b")[:-1], finished(reason=reason)]
    asked = {"model": "small", "input": "Hi", "instructions": "Be kind.", "metadata": {"a": "b"}, "temperature": 0}
    check(Response, await body(http, "/v1/responses", asked), extensions={"timings"})
    for event in await events(http, "/v1/responses", asked | {"stream_options": {"include_details": True}}):
        if event["type"] in {"response.completed", "response.incomplete"}:
            assert {event["response"].pop(name) is not None for name in ("timings", "details")} == {True}
        check(EVENTS, event)
    model.script = [Text("a", [1]), Failed("stage_lost", "A PC left; send the request again.")]
    for event in await events(http, "/v1/responses", asked):
        check(EVENTS, event, extensions={"error"})


async def test_models(http: httpx2.AsyncClient) -> None:
    listed = (await http.get("/v1/models")).json()
    assert set(listed) == {"object", "data"}
    for card in [*listed["data"], (await http.get("/v1/models/small")).json()]:
        check(Model, card, extensions={"ready", "context_tokens"})


async def test_the_check_notices_what_is_missing_foreign_or_of_the_wrong_type(http: httpx2.AsyncClient) -> None:
    good = await body(http, "/v1/chat/completions", CHAT)
    choice = good["choices"][0]
    wrong: list[dict[str, Any]] = [
        good,
        good | {"timings": 1, "created": "5"},
        {name: value for name, value in good.items() if name not in {"id", "timings"}},
        good | {"timings": 1, "usage": {}},
        good | {"timings": 1, "choices": [{k: v for k, v in choice.items() if k != "logprobs"}]},
        good | {"timings": 1, "choices": [choice | {"finish_reason": ""}]},
        good | {"timings": 1, "choices": [choice | {"other": 1}]},
    ]
    for place, changed in enumerate(wrong):
        with pytest.raises((ValidationError, AssertionError)):
            check(ChatCompletion, changed, extensions={"timings"} if place else ())
