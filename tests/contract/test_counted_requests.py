"""Every request is counted once, by the route it reached and by what became of it in the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from console.api.app import UNKNOWN, RequestCounts
from console.pipeline.types import Failed, Generator, Text
from tests.support.api import CHAT_KEY, ScriptedModel, chat_app, says, serving
from tests.support.patience import PATIENCE_S, until

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}
STREAM = BODY | {"stream": True}
LOST = Failed("stage_lost", "ann left: it was switched off.")


@contextlib.asynccontextmanager
async def counted(*models: Generator) -> AsyncIterator[tuple[RequestCounts, httpx2.AsyncClient]]:
    counts = RequestCounts()
    headers = {"Authorization": f"Bearer {CHAT_KEY}"}
    async with (
        serving(chat_app(*models, counts=counts)) as url,
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as http,
    ):
        yield counts, http


async def test_requests_count_by_route_method_and_status() -> None:
    async with counted(ScriptedModel(says("a"))) as (counts, http):
        await http.post(CHAT, json=BODY)
        await http.post(CHAT, json=STREAM)
        await http.post(CHAT, content=b"{")
        await http.post(CHAT, json=BODY, headers={"Authorization": "Bearer wrong"})
        await http.get("/v1/models/small")
        await http.get("/v1/models/org/unheard-of")
        await http.delete(CHAT)
    assert counts.done == {
        (CHAT, "POST", "200"): 2,
        (CHAT, "POST", "400"): 1,
        (CHAT, "POST", "401"): 1,
        ("/v1/models/{model_id:path}", "GET", "200"): 1,
        ("/v1/models/{model_id:path}", "GET", "404"): 1,
        (CHAT, "DELETE", "405"): 1,
    }
    assert counts.running == 0


async def test_what_somebody_types_is_no_label() -> None:
    async with counted() as (counts, http):
        for path in ("/.env", "/admin.php?x=1", "/%22%7D", "/v1"):
            await http.request("PROPFIND", path)
    assert counts.done == {(UNKNOWN, UNKNOWN, "404"): 4}


async def test_a_stream_that_breaks_off_counts_as_what_broke_it() -> None:
    async with counted(ScriptedModel([Text("a", [1]), LOST])) as (counts, http):
        assert (await http.post(CHAT, json=STREAM)).status_code == 200
    assert counts.done == {(CHAT, "POST", "stage_lost"): 1}


@pytest.mark.parametrize(
    ("code", "counts_as"),
    [
        ("stage_lost", "stage_lost"),
        ("stage_failed", "stage_failed"),
        ("overloaded", "503"),
        ("too_many_waiting", "429"),
    ],
)
async def test_an_answer_lost_before_its_first_byte_is_told_from_a_refusal(code: str, counts_as: str) -> None:
    async with counted(ScriptedModel([Failed(code, "ann left: it was switched off.")])) as (counts, http):
        for body in (BODY, STREAM):
            assert (await http.post(CHAT, json=body)).status_code in {429, 503}
    assert counts.done == {(CHAT, "POST", counts_as): 2}


async def test_what_may_become_of_an_answer_is_known_before_it_happens() -> None:
    async with counted() as (counts, _):
        told = {outcome for path, method, outcome in counts.possible if (path, method) == (CHAT, "POST")}
    assert {"200", "503", "stage_lost", "internal_error"} <= told
    assert all(path.startswith("/v1/") for path, _, _ in counts.possible)


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["whole", "streamed"])
async def test_a_client_that_leaves_is_no_failure_of_ours(body: dict[str, Any]) -> None:
    model = ScriptedModel([Text("a", [1]), asyncio.Event()])
    async with counted(model) as (counts, http):
        asking = asyncio.create_task(http.post(CHAT, json=body))
        await until(lambda: bool(model.requests))
        assert counts.running == 1
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: counts.running == 0)
    assert counts.done == {(CHAT, "POST", "client_left"): 1}
