"""What a key's limits look like from outside: statuses, headers, OpenAI's error object, and what is counted."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import pytest

from console.pipeline.errors import QueueFull
from console.pipeline.types import Failed, Text
from console.registry.records import Principal, Quota
from tests.conftest import ExpectLogs
from tests.support.api import Counted, Keys, ScriptedModel, Step, chat_app, finished, says, serving
from tests.support.patience import PATIENCE_S


@contextlib.asynccontextmanager
async def client_of(
    model: ScriptedModel, quota: Quota, counted: Counted | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    keys = Keys(key=Principal("k", "", frozenset({"chat"}), quota), other=Principal("o", "", frozenset({"chat"})))
    app = chat_app(model, ScriptedModel(says("x"), model_id="large"), keys=keys, counted=counted)
    async with (
        serving(app) as url,
        httpx2.AsyncClient(base_url=url, headers={"Authorization": "Bearer key"}, timeout=PATIENCE_S) as http,
    ):
        yield http


def chat(model: str = "small", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "12345"}], **fields}


async def ask(http: httpx2.AsyncClient, **fields: Any) -> httpx2.Response:
    return await http.post("/v1/chat/completions", json=chat(**fields))


async def test_a_key_sees_and_uses_only_its_models() -> None:
    async with client_of(ScriptedModel(says("Hi")), Quota(models=["small"])) as http:
        assert [card["id"] for card in (await http.get("/v1/models")).json()["data"]] == ["small"]
        assert (await ask(http)).status_code == 200
        for answer in (await ask(http, model="large"), await http.get("/v1/models/large")):
            assert answer.status_code == 403
            assert answer.headers["x-should-retry"] == "false"
            assert answer.json()["error"] == {
                "message": "This key may not use the model 'large'; GET /v1/models lists those it may.",
                "type": "invalid_request_error", "param": "model", "code": "model_not_allowed",
            }  # fmt: skip


@pytest.mark.parametrize("stream", [True, False])
async def test_one_answer_too_many_at_once_is_429_until_one_ends(stream: bool) -> None:
    go_on = asyncio.Event()
    model = ScriptedModel([Text("a", [1]), go_on, finished()])
    async with client_of(model, Quota(streams=2)) as http:
        running = [asyncio.create_task(ask(http, stream=stream)) for _ in range(2)]
        while len(model.requests) < 2:
            await asyncio.sleep(0)
        refused = await ask(http, stream=stream)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "5")
        error = refused.json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "too_many_streams")
        other = asyncio.create_task(
            http.post("/v1/chat/completions", json=chat(), headers={"Authorization": "Bearer other"})
        )
        go_on.set()
        assert {answer.status_code for answer in await asyncio.gather(*running, other)} == {200}
        assert (await ask(http, stream=stream)).status_code == 200


async def test_a_key_over_its_limits_is_refused_before_its_prompt_is_tokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedModel(says("Hi"))
    monkeypatch.setattr(model, "encode_chat", lambda *_: pytest.fail("The prompt was tokenized."))
    async with client_of(model, Quota(tokens_per_day=10), Counted(k=10)) as http:
        assert (await ask(http)).status_code == 429


async def test_the_place_of_an_answer_whose_client_left_is_free_again() -> None:
    model = ScriptedModel([Text("abc", [1, 2, 3]), asyncio.Event(), finished()])
    counted = Counted()
    async with client_of(model, Quota(streams=1), counted) as http:
        async with http.stream("POST", "/v1/chat/completions", json=chat(stream=True)) as answer:
            await anext(answer.aiter_bytes())
        await model.closed.wait()
        while not counted.used:
            await asyncio.sleep(0)
        assert counted.used == {"k": 5 + 3}
        model.script = says("Hi")
        assert (await ask(http)).status_code == 200


async def test_a_key_that_used_its_tokens_waits_for_the_next_day() -> None:
    counted = Counted(k=11, o=1000)
    async with client_of(ScriptedModel(says("Hi", "!")), Quota(tokens_per_day=12), counted) as http:
        assert (await ask(http)).status_code == 200
        assert counted.used["k"] == 11 + 5 + 2
        for stream in (True, False):
            refused = await ask(http, stream=stream)
            assert refused.status_code == 429
            assert (refused.headers["Retry-After"], refused.headers["x-should-retry"]) == ("1000", "false")
            error = refused.json()["error"]
            assert (error["type"], error["code"]) == ("rate_limit_error", "insufficient_quota")
        assert (await http.get("/v1/models")).status_code == 200


@pytest.mark.parametrize(
    ("script", "tokens"),
    [
        ([Text("ab", [1, 2]), Failed("stage_lost", "A PC left.")], 5 + 2),
        ([Failed("stage_lost", "A PC left.")], 0),
        ([QueueFull(8)], 0),
    ],
)
async def test_what_failed_counts_as_far_as_it_came(script: Sequence[Step], tokens: int) -> None:
    counted = Counted()
    async with client_of(ScriptedModel(script), Quota(), counted) as http:
        assert (await ask(http)).status_code in {429, 503}
    assert counted.used["k"] == tokens


async def test_an_answer_that_cannot_be_counted_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, expected_logs: ExpectLogs
) -> None:
    expected_logs("console.api.quotas", "could not be counted")

    def fail(self: Counted, key_id: str, tokens: int) -> None:
        raise OSError("disk")

    monkeypatch.setattr(Counted, "add", fail)
    async with client_of(ScriptedModel(says("Hi")), Quota(streams=1)) as http:
        for _ in range(2):
            assert (await ask(http)).status_code == 200


async def test_headers_say_what_a_key_may_still_use_and_are_left_out_where_it_is_unlimited() -> None:
    counted = Counted(k=40)
    async with client_of(ScriptedModel(says("Hi")), Quota(streams=3, tokens_per_day=100), counted) as http:
        for stream in (False, True):
            answer = await ask(http, stream=stream, n=2)
            used = 40 if not stream else 40 + 5 + 2
            assert {name: value for name, value in answer.headers.items() if name.startswith("x-ratelimit")} == {
                "x-ratelimit-limit-requests": "3", "x-ratelimit-remaining-requests": "1",
                "x-ratelimit-reset-requests": "0s", "x-ratelimit-limit-tokens": "100",
                "x-ratelimit-remaining-tokens": str(100 - used), "x-ratelimit-reset-tokens": "1000s",
            }  # fmt: skip
        counted.used["k"] = 100
        refused = await ask(http, n=3)
        assert refused.status_code == 429
        assert refused.headers["x-ratelimit-remaining-tokens"] == "0"
        assert refused.headers["x-ratelimit-reset-requests"] == "5s"
        free = await http.post("/v1/chat/completions", json=chat(), headers={"Authorization": "Bearer other"})
        assert free.status_code == 200
        assert not any(name.startswith("x-ratelimit") for name in free.headers)


class Waited:
    """What waits in a thread until it may go on."""

    def __init__(self) -> None:
        self.begun, self.may_go = threading.Semaphore(0), threading.Event()

    def wait(self) -> None:
        self.begun.release()
        assert self.may_go.wait(PATIENCE_S)

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=PATIENCE_S)


async def test_two_requests_at_once_do_not_share_the_last_place_while_tokens_are_looked_up() -> None:
    waited, go_on = Waited(), asyncio.Event()

    class SlowlyCounted(Counted):
        def today(self, key_id: str) -> int:
            waited.wait()
            return super().today(key_id)

    model = ScriptedModel([Text("a", [1]), go_on, finished()])
    async with client_of(model, Quota(streams=1, tokens_per_day=100), SlowlyCounted()) as http:
        both = [asyncio.create_task(ask(http)) for _ in range(2)]
        for _ in both:
            await waited.has_begun()
        waited.may_go.set()
        (refused,), _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        go_on.set()
        assert sorted([answer.status_code for answer in await asyncio.gather(*both)]) == [200, 429]
        assert (await refused).json()["error"]["code"] == "too_many_streams"
        assert (await ask(http)).status_code == 200


async def test_a_running_answer_goes_on_while_a_key_is_looked_up() -> None:
    waited, go_on = Waited(), asyncio.Event()

    class SlowKeys(Keys):
        def authenticate(self, token: str) -> Principal | None:
            if token == "slow":
                waited.wait()
            return super().authenticate(token)

    keys = SlowKeys(key=Principal("k", "", frozenset({"chat"})), slow=Principal("s", "", frozenset({"chat"})))
    app = chat_app(ScriptedModel([Text("a", [1]), go_on, Text("b", [2]), finished()]), keys=keys)
    async with serving(app) as url, httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as http:
        asked: dict[str, Any] = {"json": chat(stream=True), "headers": {"Authorization": "Bearer key"}}
        async with http.stream("POST", "/v1/chat/completions", **asked) as answer:
            pieces = answer.aiter_text()
            said = await anext(pieces)
            waiting = asyncio.create_task(http.get("/v1/models", headers={"Authorization": "Bearer slow"}))
            await waited.has_begun()
            go_on.set()
            said += "".join([piece async for piece in pieces])
        assert said.endswith("data: [DONE]\n\n")
        assert not waiting.done()
        waited.may_go.set()
        assert (await waiting).status_code == 200
