from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np
import pytest

from agent.link.frames import Frame, FrameType
from agent.stage.types import Nack, StepTable
from console.pipeline.errors import ContextExceeded, PromptError
from console.pipeline.flight import Deadlines
from console.pipeline.types import Failed, GenerationRequest
from tests.support.toy_stages import (
    TOKENIZER,
    Stages,
    collect,
    finish_of,
    ids_of,
    make_coordinator,
    make_request,
    settle,
    toy_token,
)

LOGGER = "console.pipeline"


@pytest.mark.parametrize(("prompt", "tokens"), [("x" * 512, 1), ("x" * 600, 10)])
async def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(prompt: str, tokens: int) -> None:
    coordinator = make_coordinator(Stages())
    with pytest.raises(ContextExceeded) as caught:
        await anext(coordinator.generate(make_request(prompt, max_tokens=tokens)))
    assert (caught.value.prompt_tokens, caught.value.context_tokens) == (len(prompt), 512)


async def test_a_token_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(PromptError, match="outside"):
        await anext(make_coordinator(Stages()).generate(GenerationRequest([9999], 1)))


async def test_a_lost_stage_ends_every_answer_at_once_and_names_the_pc(expected_logs: Any) -> None:
    expected_logs(LOGGER, "pc-1")
    stages = Stages()
    coordinator = make_coordinator(stages, streams=1)
    stages.paused = True
    tasks = [asyncio.create_task(collect(coordinator.generate(make_request()))) for _ in range(3)]
    await settle(lambda: coordinator.status().streams_waiting == 2)
    coordinator.stage_lost("pc-1 went away.")
    coordinator.stage_lost("again")
    for events in await asyncio.gather(*tasks):
        assert events == [Failed("stage_lost", "pc-1 went away.")]
    stages.resume()
    assert coordinator.status().dropped_replies == 1
    assert not coordinator.status().ready
    (refused,) = await collect(coordinator.generate(make_request()))
    assert isinstance(refused, Failed)
    assert (refused.code, "pc-1" in refused.message) == ("not_ready", True)
    assert not (await coordinator.ready()).ready


async def test_a_nack_ends_the_streams_of_its_step_and_no_others(expected_logs: Any) -> None:
    expected_logs(LOGGER, "kv_full")
    stages = Stages()
    coordinator = make_coordinator(stages)
    nacked = []

    def refuse(frame: Frame) -> list[Frame]:
        if frame.step != 1:
            return [frame]
        nacked.append(frame)
        table = msgspec.msgpack.encode(Nack(1, "kv_full", "The cache is full."))
        return [Frame(FrameType.NACK, 3, 5, frame.step, frame.sequence, 1, table, None)]

    stages.change = refuse
    lost, fine = await asyncio.gather(
        collect(coordinator.generate(make_request("a"))), collect(coordinator.generate(make_request("b", max_tokens=9)))
    )
    assert (finish_of(lost), finish_of(fine)) == ("stage_failed", "length")
    assert isinstance(lost[-1], Failed)
    assert "pc-1 (stage 1)" in lost[-1].message
    await settle(lambda: not stages.caches)


async def test_a_stage_that_cannot_reach_the_next_one_loses_the_pipeline(expected_logs: Any) -> None:
    expected_logs(LOGGER, "pc-0")
    stages = Stages()
    coordinator = make_coordinator(stages)
    table = msgspec.msgpack.encode(Nack(0, "gone", "The next stage cannot be reached."))
    stages.change = lambda frame: [Frame(FrameType.NACK, 3, 5, frame.step, frame.sequence, 0, table, None)]
    events = await collect(coordinator.generate(make_request()))
    assert finish_of(events) == "stage_lost"


async def test_late_repeated_and_foreign_replies_are_dropped_and_counted() -> None:
    stages = Stages(count=1)
    coordinator = make_coordinator(stages)

    def noisy(frame: Frame) -> list[Frame]:
        fields = {name: getattr(frame, name) for name in frame.__struct_fields__}
        return [
            Frame(**fields | {"epoch": 4}),
            Frame(**fields | {"pipeline": 9}),
            Frame(**fields | {"step": frame.step + 1}),
            Frame(**fields | {"sequence": 77}),
            Frame(**fields | {"type": FrameType.REPORT}),
            frame,
            frame,
        ]

    stages.change = noisy
    events = await collect(coordinator.generate(make_request(max_tokens=4)))
    cache = TOKENIZER.encode_text("hello")
    for token in ids_of(events):
        assert token == toy_token(cache)
        cache.append(token)
    await settle(lambda: not stages.held)
    assert len(cache) == 9
    assert coordinator.status().dropped_replies == 6 * len(stages.steps)


@pytest.mark.parametrize(
    "change",
    [
        {"tensor": np.array([1, 2], np.int32)},
        {"tensor": None},
        {"tensor": np.array([99999], np.int32)},
        {"tensor": np.array([-1], np.int32)},
        {"tensor": np.array([1.5], np.float32)},
        {"table": b"\xc1"},
        {"table": msgspec.msgpack.encode(StepTable([], [], []))},
    ],
)
async def test_an_answer_that_is_none_fails_its_streams(change: dict[str, Any], expected_logs: Any) -> None:
    expected_logs(LOGGER, "something else than its tokens")
    stages = Stages()
    coordinator = make_coordinator(stages)

    def wrong(frame: Frame) -> list[Frame]:
        fields = {name: getattr(frame, name) for name in frame.__struct_fields__}
        return [Frame(**fields | change)] if frame.step == 1 else [frame]

    stages.change = wrong
    assert finish_of(await collect(coordinator.generate(make_request()))) == "stage_failed"
    assert finish_of(await collect(coordinator.generate(make_request(max_tokens=2)))) == "length"


async def test_silence_beyond_the_deadline_loses_the_pipeline(expected_logs: Any) -> None:
    expected_logs(LOGGER, "No stage of toy answered")
    stages = Stages()
    stages.paused = True
    coordinator = make_coordinator(stages, deadlines=Deadlines(step_s=0.05, token_s=0.0))
    events = await asyncio.wait_for(collect(coordinator.generate(make_request())), 10)
    assert finish_of(events) == "stage_lost"


async def test_a_link_that_fails_loses_the_pipeline(expected_logs: Any) -> None:
    expected_logs(LOGGER, "pc-0")

    def submit(data: bytes) -> None:
        raise ConnectionError("closed")

    coordinator = make_coordinator(Stages(), submit=submit)
    assert finish_of(await collect(coordinator.generate(make_request()))) == "stage_lost"


async def test_more_requests_than_the_queue_takes_are_refused() -> None:
    stages = Stages()
    stages.paused = True
    coordinator = make_coordinator(stages, streams=1, queue=1)
    tasks = [asyncio.create_task(collect(coordinator.generate(make_request(max_tokens=1)))) for _ in range(3)]
    await settle(tasks[2].done)
    assert finish_of(tasks[2].result()) == "overloaded"
    stages.resume()
    assert [finish_of(events) for events in await asyncio.gather(*tasks[:2])] == ["length", "length"]
    await coordinator.close()


async def test_closing_ends_what_runs() -> None:
    stages = Stages()
    stages.paused = True
    coordinator = make_coordinator(stages)
    task = asyncio.create_task(collect(coordinator.generate(make_request())))
    await settle(lambda: bool(stages.steps))
    await coordinator.close()
    await coordinator.close()
    assert finish_of(await task) == "cancelled"
    assert coordinator.status().endings == {"cancelled": 1}
