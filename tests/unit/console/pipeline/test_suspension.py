"""Streams whose stages are lost: nothing of the answer is lost, doubled or different, whoever computes the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.link.frames import Frame, FrameType
from agent.stage.types import Epoch, Nack, Sampling, StreamId
from console.pipeline.coordinator import Coordinator
from console.pipeline.flight import Deadlines
from console.pipeline.plans import Limits
from console.pipeline.scheduler import Scheduler
from console.pipeline.types import Event, Failed, Finished, Recovering, StageInfo, Waiting
from tests.support.patience import until
from tests.support.played_stages import Guesses, PlayedStages, plain_answer
from tests.support.toy_stages import (
    Stages,
    collect,
    finish_of,
    ids_of,
    make_coordinator,
    make_request,
    settle,
    text_of,
)

LOGGER = "console.pipeline"
LONG = "a long prompt " * 30


def infos(count: int, engine: str = "paged") -> list[StageInfo]:
    return [StageInfo(f"new-{i}", f"spare-{i}", 10 * i, 10 * i + 10, engine, True) for i in range(count)]


def take_over(coordinator: Coordinator, *, count: int = 2, kv_tokens: int = 4096, **settings: Any) -> Stages:
    """Go on with other stages, in the next epoch."""
    stages = Stages(count, **settings)
    stages.coordinator = coordinator
    epoch = Epoch(coordinator.epoch + 1)
    coordinator.resume(stages=infos(count), epoch=epoch, kv_tokens=kv_tokens, submit=stages.submit)
    return stages


class Asked:
    """An answer under way."""

    def __init__(self, coordinator: Coordinator, prompt: str = "hello", **changes: Any) -> None:
        self.events: list[Event] = []
        self._generator = coordinator.generate(make_request(prompt, **changes))
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> list[Event]:
        async for event in self._generator:
            self.events.append(event)
        return self.events

    async def has(self, tokens: int) -> None:
        await settle(lambda: len(ids_of(self.events)) >= tokens)

    @property
    def notes(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, Recovering)]


async def undisturbed(prompt: str, **changes: Any) -> list[Event]:
    return await collect(
        make_coordinator(Stages(**changes.pop("stages", {}))).generate(make_request(prompt, **changes))
    )


@pytest.mark.parametrize("prompt", ["hello", LONG])
@pytest.mark.parametrize("at", [0, 1, 2, 50])
@pytest.mark.parametrize("count", [1, 2, 3])
async def test_an_answer_goes_on_where_it_was_on_other_stages(prompt: str, at: int, count: int) -> None:
    first = Stages()
    coordinator = make_coordinator(first)
    asked = Asked(coordinator, prompt)
    await (asked.has(at) if at else settle(lambda: bool(first.steps)))
    first.paused = True
    coordinator.suspend("pc-1 left.")
    before = ids_of(asked.events)
    second = take_over(coordinator, count=count)
    events = await asked.task
    plain = await undisturbed(prompt)
    assert (ids_of(events), text_of(events)) == (ids_of(plain), text_of(plain))
    assert ids_of(events)[: len(before)] == before
    assert asked.notes == ["pc-1 left."]
    last, wanted = events[-1], plain[-1]
    assert isinstance(last, Finished)
    assert isinstance(wanted, Finished)
    assert last.usage == wanted.usage
    (replay, *_) = (row for rows in second.rows for row in rows)
    assert (replay.first, replay.sampling) == (0, make_request().sampling), "the history is read anew, in chunks"
    assert all(frame.epoch == 6 for frame in second.steps)


async def test_it_may_be_lost_again_and_again_even_before_anything_came() -> None:
    coordinator = make_coordinator(Stages())
    asked = Asked(coordinator)
    for at in (3, 3, 9, 9, 9, 30):
        await asked.has(at)
        coordinator.suspend(f"Lost at {at}.")
        coordinator.suspend("That is known already.")
        take_over(coordinator, count=1 + at % 3)
    assert ids_of(await asked.task) == ids_of(await undisturbed("hello"))
    assert asked.notes == [f"Lost at {at}." for at in (3, 3, 9, 9, 9, 30)]


async def test_many_answers_go_on_in_their_order_and_who_asks_meanwhile_waits() -> None:
    coordinator = make_coordinator(Stages(), streams=2, queue=4)
    running = [Asked(coordinator, prompt, key_id=prompt) for prompt in ("one", "two")]
    waiting = Asked(coordinator, "three", key_id="three")
    for asked in running:
        await asked.has(5)
    coordinator.suspend("pc-0 left.")
    late, too_many = Asked(coordinator, "four", key_id="four"), Asked(coordinator, "five", key_id="five")
    await settle(lambda: finish_of(too_many.events) == "overloaded" if too_many.events else False)
    assert late.notes == ["pc-0 left."]
    status = coordinator.status()
    assert (status.ready, status.reason, status.streams_waiting) == (False, "pc-0 left.", 4)
    second = take_over(coordinator)
    for asked, prompt in zip([*running, waiting, late], ("one", "two", "three", "four"), strict=True):
        assert ids_of(await asked.task) == ids_of(await undisturbed(prompt))
    first_rows = [row.stream for rows in second.rows for row in rows if row.sampling is not None]
    assert first_rows == sorted(first_rows), "whoever ran before goes on first"
    assert not any(isinstance(event, Waiting) for asked in running for event in asked.events)


async def test_an_answer_that_is_taken_back_meanwhile_is_not_computed() -> None:
    coordinator = make_coordinator(Stages())
    asked, other = Asked(coordinator), Asked(coordinator, "other")
    await asked.has(4)
    await other.has(4)
    coordinator.suspend("pc-1 left.")
    asked.task.cancel()
    await asyncio.gather(asked.task, return_exceptions=True)
    await asked._generator.aclose()
    second = take_over(coordinator)
    assert ids_of(await other.task) == ids_of(await undisturbed("other"))
    assert len({row.stream for rows in second.rows for row in rows}) == 1
    assert coordinator.status().endings == {"cancelled": 1, "length": 1}


async def test_a_stop_string_and_half_a_letter_survive_the_loss() -> None:
    script = {"hello": "Paris 😀 is nice, STOP it"}
    plain = await undisturbed("hello", stop=["STOP"], stages={"answers": script})
    coordinator = make_coordinator(Stages(answers=script))
    asked = Asked(coordinator, stop=["STOP"])
    losses = 0
    while not asked.task.done():  # at nearly every token: in the middle of the letter and of the stop string
        for _ in range(3):
            await asyncio.sleep(0)
        if not asked.task.done():
            coordinator.suspend("pc-1 left.")
            take_over(coordinator, answers=script)
            losses += 1
    assert losses > 3
    events = await asked.task
    assert text_of(events) == text_of(plain) == "Paris 😀 is nice, "
    assert finish_of(events) == "stop"


async def test_the_replay_tells_the_tail_everything_that_penalties_count() -> None:
    sampling = Sampling(temperature=0.7, seed=3, presence_penalty=0.5, repetition_penalty=1.1, top_p=0.9)
    first = Stages()
    coordinator = make_coordinator(first)
    asked = Asked(coordinator, sampling=sampling)
    await asked.has(7)
    coordinator.suspend("pc-1 left.")
    history = coordinator.history(StreamId(1))
    second = take_over(coordinator)
    await asked.task
    told = second.rows[0][0]
    assert told.sampling == msgspec.structs.replace(sampling, answer_start=5)
    assert told.ids == history
    assert told.wants == 1


async def test_what_the_former_stages_still_say_is_dropped() -> None:
    first = Stages()
    coordinator = make_coordinator(first)
    asked = Asked(coordinator)
    await asked.has(3)
    first.paused = True
    await settle(lambda: bool(first.held))
    coordinator.suspend("pc-1 left.")
    first.resume()
    take_over(coordinator)
    first.paused = True
    dropped = coordinator.status().dropped_replies
    assert dropped >= 1
    assert ids_of(await asked.task) == ids_of(await undisturbed("hello"))


async def test_whoever_brings_others_hears_of_a_loss_that_the_steps_show() -> None:
    stages = Stages()
    coordinator = make_coordinator(stages)
    reasons: list[str] = []
    coordinator.on_lost = reasons.append
    table = msgspec.msgpack.encode(Nack(0, "gone", "The next stage cannot be reached."))
    stages.change = lambda frame: [Frame(FrameType.NACK, 3, 5, frame.step, frame.sequence, 0, table, None)]
    asked = Asked(coordinator)
    await settle(lambda: bool(reasons))
    assert reasons == ["pc-0 (stage 0) cannot go on: The next stage cannot be reached."]
    assert coordinator.suspended == reasons[0]
    take_over(coordinator)
    assert ids_of(await asked.task) == ids_of(await undisturbed("hello"))


async def test_an_answer_that_was_lost_on_its_way_is_noticed_by_the_next_one() -> None:
    stages = Stages(count=2)
    coordinator = make_coordinator(stages)
    reasons: list[str] = []
    coordinator.on_lost = reasons.append
    asked = [Asked(coordinator, prompt) for prompt in ("one", "two")]
    for one in asked:
        await one.has(3)
    lost: list[int] = []

    def lose_one(frame: Frame) -> list[Frame]:
        if not lost:
            lost.append(frame.step)
            return []
        return [frame]

    stages.change = lose_one
    await settle(lambda: bool(reasons))
    assert reasons == ["An answer of pc-1 (stage 1) did not come, but the one after it."]
    take_over(coordinator)
    for one, prompt in zip(asked, ("one", "two"), strict=True):
        assert ids_of(await one.task) == ids_of(await undisturbed(prompt))


async def test_an_answer_that_was_lost_with_none_behind_it_is_noticed_by_a_step_sent_for_that() -> None:
    stages = Stages(count=2)
    coordinator = make_coordinator(stages, deadlines=Deadlines(probe_s=0.01))
    reasons: list[str] = []
    coordinator.on_lost = reasons.append
    asked = Asked(coordinator)
    await asked.has(3)
    lost: list[int] = []

    def lose_one(frame: Frame) -> list[Frame]:
        if not lost:
            lost.append(frame.step)
            return []
        return [frame]

    stages.change = lose_one
    await until(lambda: bool(reasons))
    assert reasons == ["An answer of pc-1 (stage 1) did not come, but the one after it."]
    assert stages.rows[-1] == []
    take_over(coordinator)
    assert ids_of(await asked.task) == ids_of(await undisturbed("hello"))


@pytest.mark.parametrize("engine_says", ["kv_full", "bad_step"])
async def test_a_step_refused_for_what_was_lost_before_it_fails_nobody(engine_says: str) -> None:
    stages = Stages(count=2)
    coordinator = make_coordinator(stages, deadlines=Deadlines(probe_s=0.01))
    reasons: list[str] = []
    coordinator.on_lost = reasons.append
    asked = [Asked(coordinator, prompt) for prompt in ("one", "two")]
    for one in asked:
        await one.has(3)
    seen: list[int] = []

    def lose_one_and_refuse_the_next(frame: Frame) -> list[Frame]:
        seen.append(frame.step)
        if len(seen) == 1:
            return []
        if len(seen) == 2:
            table = msgspec.msgpack.encode(Nack(1, engine_says, "The step needs more room."))
            return [Frame(FrameType.NACK, 3, 5, frame.step, frame.sequence, 1, table, None)]
        return [frame]

    stages.change = lose_one_and_refuse_the_next
    await until(lambda: bool(reasons))
    take_over(coordinator)
    for one, prompt in zip(asked, ("one", "two"), strict=True):
        assert ids_of(await one.task) == ids_of(await undisturbed(prompt))


async def test_a_refusal_that_overtakes_an_answer_is_told_after_it(expected_logs: Any) -> None:
    expected_logs(LOGGER, "kv_full")
    stages = Stages(count=2)
    coordinator = make_coordinator(stages)
    asked = [Asked(coordinator, prompt) for prompt in ("one", "two")]
    for one in asked:
        await one.has(3)
    late: list[Frame] = []

    def refuse_early(frame: Frame) -> list[Frame]:
        if not late:
            late.append(frame)
            return []
        if len(late) == 1:
            late.append(frame)
            table = msgspec.msgpack.encode(Nack(0, "kv_full", "The step needs more room."))
            return [Frame(FrameType.NACK, 3, 5, frame.step, frame.sequence, 0, table, None), late[0]]
        return [frame]

    stages.change = refuse_early
    events = [await one.task for one in asked]
    ends = [finish_of(each) for each in events]
    assert sorted(ends) == ["length", "stage_failed"]
    fine = ends.index("length")
    assert ids_of(events[fine]) == ids_of(await undisturbed(["one", "two"][fine]))


async def test_stages_that_are_only_slow_are_not_lost() -> None:
    stages = Stages(count=2)
    coordinator = make_coordinator(stages, deadlines=Deadlines(probe_s=0.001))
    reasons: list[str] = []
    coordinator.on_lost = reasons.append
    asked = Asked(coordinator, max_tokens=12)
    await asked.has(3)
    stages.paused = True
    await until(lambda: len(stages.rows) > 3 and stages.rows[-3:] == [[], [], []])
    stages.resume()
    assert ids_of(await asked.task) == ids_of(await undisturbed("hello", max_tokens=12))
    assert not reasons
    assert coordinator.status().dropped_replies == 0


async def test_a_loss_that_nobody_makes_good_ends_every_answer(expected_logs: Any) -> None:
    expected_logs(LOGGER, "Nobody")
    coordinator = make_coordinator(Stages(), streams=1)
    asked, queued = Asked(coordinator), Asked(coordinator, "other")
    await asked.has(3)
    coordinator.suspend("pc-1 left.")
    coordinator.stage_lost("Nobody took over.")
    for events in await asyncio.gather(asked.task, queued.task):
        assert events[-1] == Failed("stage_lost", "Nobody took over.")
    coordinator.resume(stages=infos(2), epoch=Epoch(6), kv_tokens=4096)
    assert finish_of(await collect(coordinator.generate(make_request()))) == "not_ready"


async def test_only_answers_too_long_for_the_new_stages_end() -> None:
    coordinator = make_coordinator(Stages())
    long, short = Asked(coordinator, "x" * 200), Asked(coordinator, max_tokens=200)
    await long.has(2)
    await short.has(2)
    coordinator.suspend("pc-1 left.")
    take_over(coordinator, kv_tokens=128)
    failed = (await long.task)[-1]
    assert isinstance(failed, Failed)
    assert (failed.code, failed.retryable) == ("stage_failed", True)
    events = await short.task
    assert finish_of(events) == "length"
    assert len(ids_of(events)) == 128 - 5
    assert coordinator.context_tokens == 128


async def test_readiness_is_what_a_token_says_that_came_through_the_new_stages() -> None:
    coordinator = make_coordinator(Stages())
    assert (await coordinator.ready()).ready
    stuck = Stages()
    stuck.paused = True
    stuck.coordinator = coordinator
    coordinator.resume(stages=infos(2), epoch=Epoch(6), kv_tokens=4096, submit=stuck.submit)
    assert not coordinator.status().ready
    probing = asyncio.create_task(coordinator.ready(0.0))
    await settle(lambda: bool(stuck.steps))
    coordinator.suspend("spare-1 left.")
    readiness = await probing
    assert (readiness.ready, readiness.reason) == (False, "spare-1 left."), "a probe does not wait for others"
    take_over(coordinator)
    assert not coordinator.status().ready
    assert (await coordinator.ready()).ready
    assert coordinator.status().ready


def limits(stages: int, blocks: int, *, copies: bool) -> Limits:
    places = 3 if copies else 0
    return Limits(stages, 32 * blocks, 160, 3, prefill_tokens=48, shares_blocks=not copies, places=places)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_is_lost_when_ever_the_scheduler_gives_the_same_answers(data: st.DataObject) -> None:
    """Prompts with common beginnings, drafts, full caches, cancelled streams, and stages that change at any moment."""
    plan = data.draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4))
    scheduler = Scheduler(limits(2, 12, copies=False), Guesses(*plan))
    stages = PlayedStages(scheduler)
    prompts = data.draw(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=90), min_size=1, max_size=5))
    asked = {scheduler.add(ids, 40, sampling=Sampling(), eos=[4], key="k"): ids for ids in prompts}
    answers: dict[StreamId, list[int]] = stages.answers
    finished: dict[StreamId, str] = {}
    for _ in range(data.draw(st.integers(1, 6))):
        for _ in range(data.draw(st.integers(0, 12))):
            stages.send()
            if data.draw(st.booleans()) and stages.flying:
                stages.answer()
        if data.draw(st.booleans()):
            stream = data.draw(st.sampled_from(sorted(asked)))
            if scheduler.cancel(stream):
                asked.pop(stream)
                if not asked:
                    break
        finished |= stages.finished
        scheduler.suspend()
        new = limits(data.draw(st.integers(1, 3)), data.draw(st.integers(6, 12)), copies=data.draw(st.booleans()))
        assert scheduler.resume(new) == []
        stages = PlayedStages(scheduler)
        stages.answers = answers
    stages.run()
    finished |= stages.finished
    for stream, ids in asked.items():
        assert answers[stream] == plain_answer(ids, 40, [4])
        assert stream in finished


async def test_how_long_a_pc_that_takes_over_may_compute_at_once_counts_from_then_on() -> None:
    coordinator = make_coordinator(Stages(1))
    assert "up to 256 prompt tokens" in coordinator.status().pace
    coordinator.suspend("ann's owner is back")
    (taker,) = infos(1)
    coordinator.resume(stages=[msgspec.structs.replace(taker, infer_ms=80)], epoch=Epoch(6), kv_tokens=4096)
    assert "up to 16 prompt tokens" in coordinator.status().pace
    await coordinator.close()


async def test_what_a_loss_takes_is_told_as_recovery() -> None:
    stages = Stages(answers={"hello": "one two three four five"})
    now_s = 100.0
    coordinator = make_coordinator(stages, clock=lambda: now_s)
    asked = Asked(coordinator)
    await asked.has(3)
    now_s += 1.0
    coordinator.suspend("ann left.")
    now_s += 4.0
    take_over(coordinator, answers={"hello": "one two three four five"})
    last = (await asked.task)[-1]
    assert isinstance(last, Finished)
    parts = last.timings.parts
    assert last.timings.total_ms == parts.total_ms == parts.recovery_ms == 5000
    assert last.timings.slowest == ("Most of 5.0 s was others taking over from a PC that was lost: 5.0 s (100%).")
    assert {stage.pc for stage in last.details.stages} == {"pc-0", "pc-1", "spare-0", "spare-1"}
