"""/tokenize and /detokenize, and the OpenAPI document."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from console.api.openai.completions import CompletionRequest
from console.api.openai.prompts import SHORT_BYTES
from console.api.openai.requests import ChatRequest
from console.api.openai.response_requests import ResponsesRequest
from console.pipeline.coordinator import Coordinator
from tests.conftest import ExpectLogs
from tests.support.api import CHAT_KEY, chat_app, serving
from tests.support.patience import PATIENCE_S
from tests.support.toy_stages import Stages, make_coordinator

HI: list[dict[str, Any]] = [{"role": "user", "content": "Hi 😀"}]


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    coordinator = make_coordinator(Stages())
    headers = {"Authorization": f"Bearer {CHAT_KEY}"}
    async with (
        serving(chat_app(coordinator)) as url,
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as http,
    ):
        yield http
    await coordinator.close()


async def refused(http: httpx2.AsyncClient, path: str, **fields: Any) -> tuple[int, str | None]:
    answer = await http.post(path, json={"model": "toy"} | fields)
    return answer.status_code, answer.json()["error"]["param"]


async def test_text_and_conversations_become_tokens_and_text_again(http: httpx2.AsyncClient) -> None:
    for asked in ({"prompt": "Hi 😀"}, {"messages": HI}):
        body = (await http.post("/tokenize", json={"model": "toy"} | asked)).json()
        assert (body["count"], body["max_model_len"]) == (7, 512)
        assert len(body["tokens"]) == 7
        assert body["token_strs"] is None
        back = await http.post("/detokenize", json={"model": "toy", "tokens": body["tokens"]})
        assert back.json() == {"prompt": "Hi 😀"}
    texts = (await http.post("/tokenize", json={"model": "toy", "prompt": "Hi", "return_token_strs": True})).json()
    assert texts["token_strs"] == ["H", "i"]


ASKS: dict[str, dict[str, Any]] = {
    "/tokenize": {"prompt": "Hi"},
    "/detokenize": {"tokens": [72, 105]},
    "/v1/chat/completions": {"messages": HI, "max_tokens": 1},
    "/v1/completions": {"prompt": "Hi", "max_tokens": 1},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 1},
}


@pytest.mark.parametrize("path", ASKS)
async def test_text_becomes_tokens_and_back_beside_the_event_loop(
    http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    threads: list[threading.Thread] = []
    for name in ("encode_chat", "encode_text", "decode"):
        real = getattr(Coordinator, name)

        def noted(self: Coordinator, given: Any, *more: Any, real: Any = real) -> Any:
            threads.append(threading.current_thread())
            return real(self, given, *more)

        monkeypatch.setattr(Coordinator, name, noted)
    assert (await http.post(path, json={"model": "toy"} | ASKS[path])).status_code == 200
    assert threads
    assert threading.main_thread() not in threads


async def test_a_stream_goes_on_while_a_long_prompt_is_tokenized(
    http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on, real = asyncio.Event(), threading.Event(), Coordinator.encode_chat
    loop = asyncio.get_running_loop()

    def slow(self: Coordinator, messages: Any, tools: Any = None) -> list[int]:
        if len(messages[0]["content"]) > SHORT_BYTES:
            loop.call_soon_threadsafe(began.set)
            go_on.wait(PATIENCE_S)
        return real(self, messages, tools)

    monkeypatch.setattr(Coordinator, "encode_chat", slow)
    long = [{"role": "user", "content": "x" * (SHORT_BYTES + 1)}]
    asking = asyncio.create_task(http.post("/v1/chat/completions", json={"model": "toy", "messages": long}))
    await began.wait()
    whole = await http.post("/v1/chat/completions", json={"model": "toy", "messages": HI, "max_tokens": 20})
    assert whole.json()["usage"]["completion_tokens"] == 20
    assert not asking.done()
    go_on.set()
    assert (await asking).json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("leaves", [False, True])
async def test_who_takes_a_request_back_or_leaves_does_not_wait_for_its_prompt(
    http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    began, go_on, asked = asyncio.Event(), threading.Event(), list[str]()
    loop = asyncio.get_running_loop()

    def slow(self: Coordinator, text: str) -> list[int]:
        asked.append(text)
        loop.call_soon_threadsafe(began.set)
        go_on.wait(PATIENCE_S)
        return [1]

    monkeypatch.setattr(Coordinator, "encode_text", slow)
    asking = [
        asyncio.create_task(
            http.post("/v1/completions", json={"model": "toy", "prompt": name}, headers={"x-request-id": name})
        )
        for name in ("first", "second")
    ]
    await began.wait()
    try:
        for task, name in zip(asking, ("first", "second"), strict=True):
            if leaves:
                task.cancel()
                await asyncio.wait([task])
                continue
            while (await http.post(f"/v1/requests/{name}/cancel")).status_code == 404:
                await asyncio.sleep(0.001)
            assert (await task).json()["error"]["code"] == "request_cancelled"
        if leaves:
            while (await http.post("/v1/requests/second/cancel")).status_code != 404:
                await asyncio.sleep(0.001)
    finally:
        go_on.set()
    assert (await http.post("/tokenize", json={"model": "toy", "prompt": "third"})).status_code == 200
    assert asked == ["first", "third"]


async def test_what_is_wrong_is_named(http: httpx2.AsyncClient, expected_logs: ExpectLogs) -> None:
    assert await refused(http, "/tokenize") == (400, "prompt")
    assert await refused(http, "/tokenize", prompt="a", messages=HI) == (400, "prompt")
    assert await refused(http, "/tokenize", prompt="a", add_special_tokens=False) == (400, "add_special_tokens")
    assert await refused(http, "/tokenize", messages=[{"role": "user"}]) == (400, "messages[0].content")
    assert await refused(http, "/tokenize", messages=HI, tools=[{"type": "function"}]) == (400, "tools")
    assert await refused(http, "/tokenize", prompt="a", model="other") == (404, "model")
    assert await refused(http, "/detokenize", tokens=[10**6]) == (400, "tokens")
    assert await refused(http, "/detokenize", tokens=[-1]) == (400, "tokens[0]")
    assert await refused(http, "/detokenize", tokens=[1], model="other") == (404, "model")
    expected_logs("console.api.openai.parameters", "'a_new_field'")
    assert (await http.post("/tokenize", json={"model": "toy", "prompt": "a", "a_new_field": 1})).status_code == 200


async def test_the_document_has_every_route_and_every_parameter_and_resolves(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/openapi.json", headers={"Authorization": ""})
    assert answer.status_code == 200
    found = answer.json()
    assert found["openapi"] == "3.1.0"
    schemas = found["components"]["schemas"]
    for name in re.findall(r"#/components/schemas/([^\"]+)", json.dumps(found)):
        assert name in schemas
    for path, request in (
        ("/v1/chat/completions", ChatRequest),
        ("/v1/completions", CompletionRequest),
        ("/v1/responses", ResponsesRequest),
    ):
        operation = found["paths"][path]["post"]
        (reference,) = operation["requestBody"]["content"]["application/json"]["schema"].values()
        properties = schemas[reference.rpartition("/")[2]]["properties"]
        assert properties.keys() == set(request.__struct_fields__)
        assert set(operation["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    assert schemas["ChatRequest"]["required"] == ["model", "messages"]
    assert {"minimum": 1, "maximum": 32, "type": "integer"} in schemas["ChatRequest"]["properties"]["n"]["anyOf"]
    for path, operations in found["paths"].items():
        for method in operations:
            reached = await http.request(method, path.replace("{model_id}", "toy").replace("{request_id}", "x"))
            assert reached.json().get("error", {}).get("code") not in {"not_found", "method_not_allowed"}, path
