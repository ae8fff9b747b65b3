"""console.bench.client, load and running: users in front of a scripted model, and everything that can go wrong."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from console.access import Access
from console.bench.client import LoadClient, durations
from console.bench.load import Level, Load
from console.bench.mix import Mix, Prompt
from console.bench.running import measure
from console.errors import ClientError
from console.pipeline.types import Failed, Text
from tests.conftest import ExpectLogs
from tests.support.api import CHAT_KEY, Keys, ScriptedModel, Step, chat_app, says, serving
from tests.support.patience import until

MIX = Mix("one", ["short"], {"short": [Prompt("short", [{"role": "user", "content": "Hi"}])]}, "ab12")


def asked_for(users: int = 2, **fields: Any) -> Load:
    values: dict[str, Any] = {"requests": 2, "warm_up": 0, "max_tokens": 5}
    return Load(model="small", users=[users], **values | fields)


async def run(script: Sequence[Step], *, key: str = CHAT_KEY, **fields: Any) -> tuple[Level, ScriptedModel]:
    model, load = ScriptedModel(script), asked_for(**fields)
    async with serving(chat_app(model)) as url, LoadClient(Access(url, key), 2) as client:
        level = Level(client, load, MIX, itertools.count(), load.users[0])
        await level.run()
    return level, model


async def test_each_user_asks_one_after_the_other_and_every_prompt_is_new() -> None:
    level, model = await run(says("It ", "is ", "so."))
    found = level.figures()
    assert (found.answered, found.answer_tokens, found.errors) == (4, 12, {})
    assert found.first_token_ms.count == 4
    assert found.inter_token_ms.count == 8
    assert {"queue_ms", "first_token_ms", "total_ms"} <= set(found.timings_ms)
    assert len({tuple(request.prompt_ids) for request in model.requests}) == 4
    assert {(request.max_tokens, request.ignore_eos) for request in model.requests} == {(5, True)}
    assert level.done == 1.0


async def test_the_warm_up_is_in_no_figure() -> None:
    level, model = await run(says("a"), warm_up=3)
    assert (level.figures().answered, len(model.requests)) == (4, 10)


async def test_a_time_ends_when_it_is_over_and_answers_that_were_begun_end_too() -> None:
    level, _ = await run([0.05, *says("a", "b")], requests=0, duration_s=0.12, natural=True)
    found = level.figures()
    assert found.window_s == pytest.approx(0.12)
    assert (found.cut, found.errors) == (0, {})
    assert found.answered >= 2


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ([Failed("overloaded", "It is full.")], "overloaded"),
        ([Text("a", [1]), Failed("stage_lost", "A PC left.")], "stage_lost"),
        ([Text("a", [1])], "ended_early"),
    ],
    ids=["refused", "in the stream", "without an end"],
)
async def test_failures_are_counted_by_their_codes(
    script: list[Step], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.bench.load.PAUSE_S", 0.0)
    monkeypatch.setattr("console.bench.load.MOST_PAUSE_S", 0.0)
    level, _ = await run(script, users=1)
    assert level.asked[0].message
    if code == "ended_early":
        code = level.asked[0].error
    assert level.figures().errors == {code: 2}
    assert level.figures().failed == 2


async def test_a_key_that_is_none_is_told_with_what_the_server_says() -> None:
    async with serving(chat_app(ScriptedModel(says("a")))) as url:
        with pytest.raises(ClientError, match=r"No request was answered\. The API key is not known"):
            await measure(Access(url, "nobody"), asked_for(warm_up=1), MIX, lambda *_: None)


async def test_nobody_there_is_a_failure_by_its_name() -> None:
    async with serving(chat_app(ScriptedModel(says("a")))) as url:
        pass
    async with LoadClient(Access(url, CHAT_KEY), 1) as client:
        level = Level(client, asked_for(1, requests=1), MIX, itertools.count(), 1)
        await level.run()
    assert level.figures().errors == {"unreachable": 1}


async def test_what_is_cancelled_gives_what_came_by_then_and_frees_the_places() -> None:
    stuck = asyncio.Event()
    model = ScriptedModel([Text("a", [1]), Text("b", [2]), stuck])
    async with serving(chat_app(model, keys=Keys())) as url:
        shares: list[float] = []
        level: list[Level] = []

        def on_progress(one: Level, share: float) -> None:
            level.append(one)
            shares.append(share)

        task = asyncio.create_task(
            measure(Access(url, CHAT_KEY), asked_for(2, requests=0, duration_s=600.0), MIX, on_progress)
        )
        await until(lambda: bool(level) and sum(len(one.pieces_s) for one in level[0].asked) == 4)
        task.cancel()
        measured = await task
        await until(model.closed.is_set)
    (found,) = measured.levels
    assert measured.interrupted
    assert (found.cut, found.answered, found.answer_tokens) == (2, 0, 4)
    assert all(0 <= share < 1 for share in shares)


async def test_what_is_no_answer_is_said_so(expected_logs: ExpectLogs) -> None:
    async def odd(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"data: {]\n\n"})

    async with serving(odd) as url, LoadClient(Access(url, CHAT_KEY), 1) as client:
        level = Level(client, asked_for(1, requests=1), MIX, itertools.count(), 1)
        await level.run()
    assert level.figures().errors == {"not_understood": 1}


def test_durations_are_read_whatever_a_server_calls_them() -> None:
    said = {"queue_ms": 1, "note": "x", "deep": {"link_ms": 2.5, "deeper": {"a_ms": 1}}, "odd_ms": True, "pcs": ["a"]}
    assert durations(said) == {"queue_ms": 1.0, "deep.link_ms": 2.5}
    assert len(durations({f"{number}_ms": number for number in range(100)})) == 32
