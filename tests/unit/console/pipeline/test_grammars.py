"""Answers with grammars at the coordinator: who cannot keep to one is said so, and nobody else is harmed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent.link.frames import MAX_TABLE_BYTES, Frame
from agent.stage.grammar import MAX_GRAMMAR_BYTES
from agent.stage.types import Epoch, PipelineId, Refusal, Sampling, StepTable, StreamId
from console.pipeline.codec import StepCodec
from console.pipeline.coordinator import Coordinator
from console.pipeline.errors import GrammarRefused
from console.pipeline.plans import Limits
from console.pipeline.scheduler import Scheduler
from console.pipeline.types import Failed, StageInfo
from tests.support.toy_stages import Stages, collect, finish_of, ids_of, make_coordinator, make_request
from tests.unit.console.pipeline.test_suspension import Asked

GRAMMAR = Sampling(grammar="start: /x/")


def infos(name: str, *, constrains: bool) -> list[StageInfo]:
    return [StageInfo(f"{name}-{i}", f"{name}-{i}", i, i + 1, "paged", True, constrains=constrains) for i in range(2)]


def constraining(stages: Stages, **changes: Any) -> Coordinator:
    coordinator = make_coordinator(stages, **changes)
    coordinator.resume(stages=infos("pc", constrains=True), epoch=Epoch(5), kv_tokens=4096)
    return coordinator


async def test_a_tail_that_knows_no_grammars_is_not_asked() -> None:
    stages = Stages()
    with pytest.raises(GrammarRefused, match="update its agent"):
        await collect(make_coordinator(stages).generate(make_request(sampling=GRAMMAR)))
    assert not stages.steps


async def test_every_row_of_an_answer_with_a_grammar_carries_its_ids() -> None:
    stages = Stages()
    await collect(constraining(stages).generate(make_request(sampling=GRAMMAR, max_tokens=4)))
    rows = [row for rows in stages.rows for row in rows]
    assert rows[0].sampling == Sampling(grammar="start: /x/", answer_start=5)
    assert [len(row.ids or ()) for row in rows] == [5, 1, 1, 1]


async def test_the_tail_gives_up_one_answer_and_the_other_goes_on() -> None:
    stages = Stages()
    coordinator = constraining(stages)
    plain = ids_of(await collect(coordinator.generate(make_request("other"))))

    def refuse(frame: Frame) -> list[Frame]:
        table = msgspec.msgpack.decode(frame.table, type=StepTable)
        refused = [Refusal(row.stream, "Too hard.") for row in table.rows if row.stream == StreamId(2)]
        told = msgspec.structs.replace(table, refused=refused)
        return [msgspec.structs.replace(frame, table=msgspec.msgpack.encode(told))]

    stages.change = refuse
    hard = Asked(coordinator, sampling=GRAMMAR, grammar_from="tools")
    other = Asked(coordinator, "other")
    assert (await hard.task)[-1] == Failed("grammar_refused", "Too hard.", retryable=False, param="tools")
    assert not ids_of(hard.events)
    assert ids_of(await other.task) == plain
    assert coordinator.status().streams_running == 0


def test_grammars_are_spread_over_steps_so_that_a_frame_can_hold_them() -> None:
    scheduler = Scheduler(Limits(1, 8192, 128, 64))
    grammar = "x" * MAX_GRAMMAR_BYTES
    for number in range(48):
        scheduler.add([1, 2], 3, sampling=Sampling(grammar=grammar if number % 8 else ""))
    codec = StepCodec(PipelineId(1), Epoch(1), stages=1, vocab_size=10)
    begun: list[int] = []
    while (step := scheduler.schedule()) is not None:
        assert len(codec.step(step)) < MAX_TABLE_BYTES
        begun += [row.stream for row in step.rows if row.sampling is not None]
        scheduler.update(step.id, [3] * step.wants)
    assert sorted(begun) == list(range(1, 49))


@pytest.mark.parametrize("constrains", [True, False])
async def test_an_answer_goes_on_only_where_it_can_be_kept_to_its_grammar(constrains: bool) -> None:
    first = Stages()
    coordinator = constraining(first)
    asked, other = Asked(coordinator, sampling=GRAMMAR), Asked(coordinator)
    await asked.has(3)
    first.paused = True
    coordinator.suspend("pc-1 left.")
    second = Stages()
    second.coordinator = coordinator
    coordinator.resume(stages=infos("new", constrains=constrains), epoch=Epoch(6), kv_tokens=4096, submit=second.submit)
    assert finish_of(await other.task) == "length"
    assert finish_of(await asked.task) == ("length" if constrains else "stage_failed")
    if constrains:
        assert ids_of(asked.events) == ids_of(other.events)
