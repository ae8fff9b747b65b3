"""What clients of OpenAI-compatible servers rely on, rule by rule. The bytes are read without an SDK between.

Each rule is one that some server broke for its users. Other files here test the same things in more depth.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from console.api.openai import routes
from console.api.openai.answers import StreamedAnswer
from console.pipeline.types import Failed, Generator, Text
from console.registry.registry import Registry
from console.service import ServiceSettings
from tests.conftest import ExpectLogs
from tests.support.api import CHAT_KEY, ScriptedModel, chat_app, says, serving
from tests.support.patience import PATIENCE_S
from tests.support.toy_stages import Stages, make_coordinator

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}
STREAM = BODY | {"stream": True}


@contextlib.asynccontextmanager
async def client(*models: Generator, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"Authorization": f"Bearer {CHAT_KEY}"}
    async with (
        serving(chat_app(*models, **options)) as url,
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as http,
    ):
        yield http


async def chunks(generator: Generator, /, **fields: Any) -> list[dict[str, Any]]:
    async with client(generator) as http:
        text = (await http.post(CHAT, json=STREAM | fields)).text
    assert text.endswith("\n\ndata: [DONE]\n\n")
    return [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n")[:-2] if event[0] != ":"]


async def test_rule_1_a_stream_is_role_then_content_then_reason_then_done() -> None:
    choices = [chunk["choices"][0] for chunk in await chunks(ScriptedModel(says("a", "b")))]
    deltas = [choice["delta"] for choice in choices]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "a"}, {"content": "b"}, {}]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]


async def test_rule_2_identity_is_on_every_chunk_and_nulls_are_written_out() -> None:
    came = await chunks(ScriptedModel(says("a", "b")))
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in came}) == 1
    assert came[0]["id"].startswith("chatcmpl-")
    assert all(chunk["choices"][0]["logprobs"] is None for chunk in came)
    assert all("finish_reason" in chunk["choices"][0] for chunk in came)


async def test_rule_3_usage_comes_in_a_stream_only_when_asked_and_in_a_chunk_of_its_own() -> None:
    assert not any("usage" in chunk for chunk in await chunks(ScriptedModel(says("a"))))
    came = await chunks(ScriptedModel(says("a")), stream_options={"include_usage": True})
    assert [chunk["usage"] for chunk in came[:-1]] == [None] * (len(came) - 1)
    assert (came[-1]["choices"], came[-1]["usage"]["total_tokens"]) == ([], 6)


async def test_rule_4_a_whole_answer_has_its_usage_with_cached_tokens() -> None:
    async with client(ScriptedModel(says("a"))) as http:
        usage = (await http.post(CHAT, json=BODY)).json()["usage"]
    assert usage == {
        "prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6, "prompt_tokens_details": {"cached_tokens": 0},
    }  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
async def test_rule_5_an_error_before_the_first_byte_is_a_status_with_the_error_object(stream: bool) -> None:
    async with client(ScriptedModel([Failed("stage_lost", "A PC left.")])) as http:
        answers = [
            await http.post(CHAT, json=BODY | {"stream": stream}),
            await http.post(CHAT, json=BODY | {"stream": stream, "model": "other"}),
            await http.post(CHAT, json=BODY | {"stream": stream, "temperature": 9}),
        ]
    assert [answer.status_code for answer in answers] == [503, 404, 400]
    for answer in answers:
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert isinstance(error["code"], str)


async def test_rule_6_an_error_after_the_first_byte_is_one_event_and_then_the_end() -> None:
    async with client(ScriptedModel([Text("a", [1]), Failed("stage_lost", "A PC left.")])) as http:
        events = (await http.post(CHAT, json=STREAM)).text.split("\n\n")
    assert json.loads(events[-2].removeprefix("data: "))["error"]["code"] == "stage_lost"
    assert events[-1] == ""
    assert sum('"error"' in event for event in events[:-2]) == 0
    assert "data: [DONE]" not in events


async def test_rule_7_a_model_that_cannot_answer_now_says_when_to_try_again_or_that_it_is_no_use() -> None:
    hopeless = Failed("stage_failed", "The engine failed.", retryable=False)
    async with client(ScriptedModel([hopeless]), unavailable=["loading"]) as http:
        loading = await http.post(CHAT, json=BODY | {"model": "loading"})
        failed = await http.post(CHAT, json=BODY)
    assert (loading.status_code, loading.headers["retry-after"]) == (503, "7")
    assert loading.headers["x-should-retry"] == "true"
    assert (failed.status_code, failed.headers["x-should-retry"]) == (503, "false")
    assert "retry-after" not in failed.headers


async def test_rule_8_silence_is_filled_with_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    assert StreamedAnswer.__init__.__kwdefaults__ == {"keep_alive_s": 10.0}
    monkeypatch.setattr(routes, "StreamedAnswer", partial(StreamedAnswer, keep_alive_s=0.01))
    gate = asyncio.Event()
    async with client(ScriptedModel([gate, *says("late")])) as http, http.stream("POST", CHAT, json=STREAM) as answer:
        parts = answer.aiter_text()
        assert (await anext(parts)).startswith(":")
        gate.set()
        assert "late" in "".join([part async for part in parts])


async def test_rule_9_headers_keep_proxies_from_holding_a_stream_back() -> None:
    async with client(ScriptedModel(says("a"))) as http:
        headers = (await http.post(CHAT, json=STREAM)).headers
    assert headers["content-type"].startswith("text/event-stream")
    assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-cache", "no")
    assert headers["x-request-id"].startswith("req_")


async def test_rule_10_unknown_fields_are_ignored_with_a_warning_and_what_changes_the_answer_is_refused(
    expected_logs: ExpectLogs,
) -> None:
    expected_logs("console.api.openai.parameters", "'a_new_field'")
    async with client(ScriptedModel(says("a"))) as http:
        assert (await http.post(CHAT, json=BODY | {"a_new_field": 1})).status_code == 200
        for wrong in ({"max_tokens": 0}, {"max_tokens": -1}, {"n": 0}, {"audio": {"voice": "x"}}):
            answer = await http.post(CHAT, json=BODY | wrong)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, *wrong)


async def test_rule_11_spellings_that_mean_the_same_do_the_same() -> None:
    model = ScriptedModel(says("a"))
    parts = [{"type": "text", "text": "He"}, {"type": "text", "text": "llo"}]
    messages = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": parts}]
    more = {"max_completion_tokens": 4, "max_tokens": 9, "stop": "x", "messages": messages}
    async with client(model) as http:
        assert (await http.post(CHAT, json=BODY | more)).status_code == 200
        for stop, status in ((["a", "b", "c", "d"], 200), (["a"] * 5, 400)):
            assert (await http.post(CHAT, json=BODY | {"stop": stop})).status_code == status
    assert model.requests[0].max_tokens == 4
    assert [request.stop for request in model.requests] == [["x"], ["a", "b", "c", "d"]]


async def test_rule_12_models_are_listed_and_an_unknown_one_is_a_404() -> None:
    model = ScriptedModel(says("a"), model_id="org/small")
    async with client(model) as http:
        listed, known = (await http.get("/v1/models")).json(), (await http.get("/v1/models/org/small")).json()
        unknown = await http.get("/v1/models/other")
    assert listed["object"] == "list"
    assert listed["data"] == [known]
    assert (known["id"], known["object"], known["owned_by"]) == ("org/small", "model", "fallow")
    assert type(known["created"]) is int
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


async def test_rule_13_no_chunk_ends_inside_a_code_point_or_with_a_part_of_a_stop_string() -> None:
    said = "Grüße 😀 äh EN EN END nie"
    coordinator = make_coordinator(Stages(answers={"Hi": said}))
    came = await chunks(coordinator, model="toy", stop=" END")
    texts = [chunk["choices"][0]["delta"].get("content", "") for chunk in came]
    assert "".join(texts) == "Grüße 😀 äh EN EN"
    assert not any("\ufffd" in text for text in texts)
    assert sum(bool(text) for text in texts) > 5
    await coordinator.close()


async def test_rule_14_a_client_that_leaves_cancels_within_a_step_and_bad_json_is_a_400() -> None:
    stages = Stages()
    coordinator = make_coordinator(stages)
    async with client(coordinator) as http:
        assert (await http.post(CHAT, content=b"{")).status_code == 400
        async with http.stream("POST", CHAT, json=STREAM | {"model": "toy", "ignore_eos": True}) as answer:
            await anext(answer.aiter_bytes())
            stages.paused = True
        await until(lambda: not coordinator.status().streams_running)
        carried = len(stages.rows)
        stages.resume()
        await until(lambda: not coordinator.status().steps_in_flight)
    assert [rows for rows in stages.rows[carried:] if rows] == []
    await coordinator.close()


async def test_rule_15_keys_are_hashed_compared_in_constant_time_and_scoped_and_the_door_is_shut_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(stored: bytes, shown: bytes) -> bool:
        compared.append((stored, shown))
        return stored == shown

    monkeypatch.setattr("console.registry.bearers.hmac.compare_digest", compare)
    with Registry.open(tmp_path / "registry.sqlite") as registry:
        secret, foreign = (registry.keys.create(scope, [scope])[1] for scope in ("chat", "view"))
        async with client(ScriptedModel(says("a")), keys=registry) as http:
            answers = [
                await http.post(CHAT, json=BODY, headers={"Authorization": f"Bearer {key}", "Origin": "http://x"})
                for key in (secret, foreign, secret[:-1] + ("A" if secret[-1] != "A" else "B"))
            ]
    assert [answer.status_code for answer in answers] == [200, 403, 401]
    assert answers[2].json()["error"]["code"] == "invalid_api_key"
    assert not any("access-control-allow-origin" in answer.headers for answer in answers)
    assert len(compared) >= 3
    assert secret.encode() not in (tmp_path / "registry.sqlite").read_bytes()
    settings = ServiceSettings(folder=tmp_path)
    assert (settings.api_host, settings.cors_origins) == ("127.0.0.1", [])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)
