"""Taking back a running request by its id, as somebody does who has no connection to close."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from console.pipeline.types import Text
from console.registry.records import Principal
from tests.support.api import Keys, ScriptedModel, chat_app, finished, says, serving
from tests.support.patience import PATIENCE_S

ASKS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "small", "messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"model": "small", "prompt": "Hi"},
    "/v1/responses": {"model": "small", "input": "Hi"},
}


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel([Text("a", [1]), asyncio.Event(), finished()])


@pytest.fixture
async def http(model: ScriptedModel) -> AsyncIterator[httpx2.AsyncClient]:
    keys = Keys(key=Principal("k", "", frozenset({"chat"})), other=Principal("o", "", frozenset({"chat"})))
    headers = {"Authorization": "Bearer key", "x-request-id": "mine-1"}
    async with (
        serving(chat_app(model, keys=keys)) as url,
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as http,
    ):
        yield http


async def cancel(http: httpx2.AsyncClient, name: str, key: str = "key") -> httpx2.Response:
    return await http.post(f"/v1/requests/{name}/cancel", headers={"Authorization": f"Bearer {key}"})


@pytest.mark.parametrize("path", ASKS)
async def test_a_stream_taken_back_ends_with_the_error_and_frees_its_place(
    http: httpx2.AsyncClient, model: ScriptedModel, path: str
) -> None:
    async with http.stream("POST", path, json=ASKS[path] | {"stream": True}) as answer:
        lines = answer.aiter_lines()
        first = await anext(line async for line in lines if line.startswith("data"))
        body = json.loads(first.removeprefix("data: "))
        name = body["id"] if "id" in body else body["response"]["id"]
        assert (await cancel(http, name)).json() == {"id": name, "object": "request.cancellation"}
        rest = "\n".join([line async for line in lines])
    assert '"code":"request_cancelled"' in rest
    assert '"cancelled"' in rest
    assert "[DONE]" not in rest
    await asyncio.wait_for(model.closed.wait(), PATIENCE_S)
    assert (await cancel(http, name)).status_code == 404


@pytest.mark.parametrize("path", ASKS)
async def test_a_whole_answer_is_taken_back_by_the_id_that_its_client_chose(
    http: httpx2.AsyncClient, model: ScriptedModel, path: str
) -> None:
    asking = asyncio.create_task(http.post(path, json=ASKS[path]))
    while not model.requests:
        await asyncio.sleep(0.001)
    assert (await cancel(http, "mine-1")).status_code == 200
    answer = await asking
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "request_cancelled")
    assert answer.headers["x-should-retry"] == "false"
    assert model.closed.is_set()


async def test_a_stream_that_said_nothing_yet_is_refused_with_a_status(
    http: httpx2.AsyncClient, model: ScriptedModel
) -> None:
    model.script = [asyncio.Event(), finished()]
    asking = asyncio.create_task(http.post("/v1/completions", json=ASKS["/v1/completions"] | {"stream": True}))
    while not model.requests:
        await asyncio.sleep(0.001)
    assert (await cancel(http, "mine-1")).status_code == 200
    assert (await asking).status_code == 409


async def test_nobody_takes_back_what_another_key_asked(http: httpx2.AsyncClient, model: ScriptedModel) -> None:
    gate = asyncio.Event()
    model.script = [gate, *says("a")]
    asking = asyncio.create_task(http.post("/v1/completions", json=ASKS["/v1/completions"]))
    while not model.requests:
        await asyncio.sleep(0.001)
    refused = await cancel(http, "mine-1", key="other")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "request_not_found")
    gate.set()
    assert (await asking).status_code == 200
    assert (await cancel(http, "mine-1")).status_code == 404
