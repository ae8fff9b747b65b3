from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import Any

import pytest

from console.pipeline.ended import EndedAnswer
from console.pipeline.tokens import ModelTokenizer, ToolCodec
from console.pipeline.types import (
    Event,
    Failed,
    Finished,
    GenerationRequest,
    Generator,
    Reading,
    Text,
    Waiting,
)
from tests.conftest import ExpectLogs
from tests.support.byte_tokens import EOS, byte_tokenizer
from tests.support.toy_stages import (
    TOKENIZER,
    Stages,
    collect,
    finish_of,
    ids_of,
    make_coordinator,
    make_request,
    settle,
    text_of,
    toy_token,
)


async def test_an_answer_comes_in_pieces_and_ends_with_its_usage() -> None:
    stages = Stages(answers={"hello": "Paris 😀!"})
    coordinator: Generator = make_coordinator(stages)
    events = await collect(coordinator.generate(make_request()))
    assert text_of(events) == "Paris 😀!"
    assert [event.text for event in events if isinstance(event, Text)] == [*"Paris ", "😀!"]
    assert ids_of(events) == TOKENIZER.encode_text("Paris 😀!")
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.reason, last.usage.prompt_tokens, last.usage.completion_tokens) == ("stop", 5, 12)
    assert 0 <= last.timings.queue_ms <= last.timings.first_token_ms <= last.timings.total_ms
    assert stages.caches == {}


async def test_a_long_prompt_tells_how_far_it_is_read_and_the_end_who_answered() -> None:
    coordinator = make_coordinator(Stages(count=2), context_tokens=1024)
    events = await collect(coordinator.generate(make_request("x" * 600, max_tokens=3)))
    read = [(event.done, event.total) for event in events if isinstance(event, Reading)]
    assert read
    assert read == sorted(read)
    assert {total for _, total in read} == {600}
    assert read[-1][0] < 600
    last = events[-1]
    assert isinstance(last, Finished)
    names = [stage.device_name for stage in coordinator.status().stages]
    assert last.details.pcs == [stage.pc for stage in last.details.stages] == names
    assert last.details.slowest.endswith(".")


async def test_the_parts_of_an_answers_time_add_up_to_it() -> None:
    stages = Stages(count=3, answers={"hello": "one two three four"})
    last = (await collect(make_coordinator(stages).generate(make_request())))[-1]
    assert isinstance(last, Finished)
    parts = last.timings.parts
    assert parts.total_ms == pytest.approx(last.timings.total_ms)
    assert parts.prompt_ms > 0
    # Played stages say a tenth of a millisecond each, or what a shorter trip has room for.
    assert 0 < parts.compute_ms <= 3 * 0.1 * len("one two three four") + 1e-6
    assert parts.recovery_ms == 0


async def test_every_answer_that_ends_is_told_with_its_time_but_no_probe(expected_logs: ExpectLogs) -> None:
    expected_logs("console.pipeline", "stops")
    stages = Stages(answers={"hello": "one two three"})
    coordinator = make_coordinator(stages)
    told: list[EndedAnswer] = []
    coordinator.on_ended = told.append
    assert (await coordinator.ready()).ready
    await collect(coordinator.generate(make_request(key_id="k", request_id="r-1")))
    left = coordinator.generate(make_request(request_id="r-2"))
    await anext(left)
    await left.aclose()
    waiting = asyncio.create_task(collect(coordinator.generate(make_request(request_id="r-3"))))
    await asyncio.sleep(0)
    coordinator.stage_lost("ann left.")
    await waiting
    assert [(one.request_id, one.key_id, one.ending, one.code) for one in told] == [
        ("r-1", "k", "stop", ""), ("r-2", "", "cancelled", ""), ("r-3", "", "error", "stage_lost"),
    ]  # fmt: skip
    for one in told:
        assert one.timings.parts.total_ms == pytest.approx(one.timings.total_ms)
        assert sum(1000 * (phase.to_s - phase.from_s) for phase in one.phases) == pytest.approx(one.timings.total_ms)


async def test_the_end_token_is_ignored_on_request() -> None:
    stages = Stages()
    stages.next_token = lambda cache: EOS  # type: ignore[method-assign]  # a model that only wants to end
    events = await collect(make_coordinator(stages).generate(make_request(max_tokens=5, ignore_eos=True)))
    assert (finish_of(events), ids_of(events)) == ("length", [EOS] * 5)


async def test_a_stop_string_over_several_tokens_ends_the_answer_without_leaking() -> None:
    stages = Stages(answers={"hello": "one\nUser: two three four"})
    events = await collect(make_coordinator(stages).generate(make_request(stop=["\nUser:"])))
    assert (text_of(events), finish_of(events)) == ("one", "stop")
    await settle(lambda: not stages.caches)


async def test_hundred_random_streams_get_their_own_texts_whoever_leaves_in_between() -> None:
    chance = random.Random(11)
    stages = Stages(count=3)
    coordinator = make_coordinator(stages)

    async def one(number: int) -> None:
        ids = [chance.randrange(256) for _ in range(chance.randint(1, 400))]
        tokens, leaves = chance.randint(1, 60), chance.random() < 0.3
        request = GenerationRequest(ids, tokens, key_id=f"key {number % 3}")
        for _ in range(chance.randint(0, 50)):
            await asyncio.sleep(0)
        got: list[int] = []
        async with aclosing(coordinator.generate(request)) as events:
            async for event in events:
                assert not isinstance(event, Failed)
                got += event.token_ids if isinstance(event, Text) else []
                if leaves and len(got) > tokens // 2:
                    break
        cache = list(ids)
        for token in got:
            assert token == toy_token(cache)
            cache.append(token)
        assert leaves or len(got) == min(tokens, 512 - len(ids))

    await asyncio.gather(*(one(number) for number in range(100)))
    await settle(lambda: not stages.held)
    for _ in range(2):
        coordinator._age_kept()
    await settle(lambda: not stages.caches)
    assert stages.most_in_flight <= 3
    assert max(len(rows) for rows in stages.rows) <= 8
    status = coordinator.status()
    assert (status.streams_running, status.streams_waiting, status.dropped_replies) == (0, 0, 0)
    await coordinator.close()


async def test_the_next_step_is_sent_before_text_is_made() -> None:
    stages = Stages(count=1)
    order: list[str] = []

    def submit(data: bytes) -> None:
        order.append("step")
        stages.submit(data)

    class Watched(ModelTokenizer):
        def decode(self, ids: Any) -> str:
            order.append("text")
            return super().decode(ids)

    coordinator = make_coordinator(stages, submit=submit)
    coordinator._tokenizer = Watched(ToolCodec(byte_tokenizer()), eos_ids=[EOS])
    await collect(coordinator.generate(make_request(max_tokens=2)))
    assert order[:2] == ["step", "step"]
    assert "text" in order


async def test_closing_the_iterator_cancels_within_one_step() -> None:
    stages = Stages(count=1)
    coordinator = make_coordinator(stages)
    async with aclosing(coordinator.generate(make_request(max_tokens=400))) as events:
        assert isinstance(await anext(events), Text)
        before = len(stages.steps)
    await settle(lambda: not stages.caches)
    assert len(stages.steps) <= before + 2
    assert stages.released == [1]
    assert coordinator.status().endings == {"cancelled": 1}


async def test_a_slow_link_gets_its_frames_in_order() -> None:
    stages = Stages(count=3)

    async def submit(data: bytes) -> None:
        for _ in range(len(stages.steps) % 3):
            await asyncio.sleep(0)
        stages.submit(data)

    coordinator = make_coordinator(stages, submit=submit)
    answers = await asyncio.gather(*(collect(coordinator.generate(make_request(max_tokens=20))) for _ in range(7)))
    assert {finish_of(events) for events in answers} == {"length"}
    assert [frame.step for frame in stages.steps] == sorted(frame.step for frame in stages.steps)
    await coordinator.close()


async def test_who_waits_hears_how_many_are_ahead_and_the_status_shows_it() -> None:
    stages = Stages()
    stages.paused = True
    now_s = 0.0
    coordinator = make_coordinator(stages, streams=1, clock=lambda: now_s)
    requests = [make_request(max_tokens=1, key_id=key) for key in ("a", "a", "a", "b")]
    heard: list[list[Event]] = [[] for _ in requests]

    async def listen(place: int) -> None:
        async for event in coordinator.generate(requests[place]):
            heard[place].append(event)

    tasks = [asyncio.create_task(listen(place)) for place in range(len(requests))]
    await settle(lambda: len(coordinator.status().queue) == 3)
    now_s = 7.0
    queue = coordinator.status().queue
    assert [(each.key_id, each.ahead, each.waited_s) for each in queue] == [("a", 0, 7.0), ("b", 1, 7.0), ("a", 2, 7.0)]
    await settle(lambda: all(heard[1:]))
    stages.resume()
    await asyncio.gather(*tasks)
    told = [[event.ahead for event in events if isinstance(event, Waiting)] for events in heard]
    assert (told[0], told[1], told[2][0], told[3][0]) == ([], [0], 2, 1)
    assert [finish_of(events) for events in heard] == ["length"] * 4
    await coordinator.close()


async def test_the_next_turn_says_how_much_of_it_was_cached() -> None:
    stages = Stages()
    coordinator = make_coordinator(stages)
    first = await collect(coordinator.generate(make_request("x" * 100, max_tokens=5)))
    again = await collect(coordinator.generate(make_request("x" * 100 + text_of(first), max_tokens=5)))
    cached = []
    for events in (first, again):
        assert isinstance(events[-1], Finished)
        cached.append(events[-1].usage.cached_tokens)
    assert cached == [0, 96]
    assert coordinator.status().kept_streams == 2
    coordinator._age_kept()
    coordinator._age_kept()
    await settle(lambda: not stages.caches)
    await coordinator.close()


async def test_readiness_is_a_token_that_went_through_all_stages() -> None:
    stages = Stages()
    coordinator = make_coordinator(stages)
    assert coordinator.status().last_token_age_s == -1
    first = await coordinator.ready()
    assert (first.ready, first.reason) == (True, "")
    probes = len(stages.steps)
    assert (await coordinator.ready(60)).ready
    assert len(stages.steps) == probes
    assert coordinator.status().ready


async def test_the_status_shows_stage_times_speed_and_overhead() -> None:
    stages = Stages()
    coordinator = make_coordinator(stages)
    await collect(coordinator.generate(make_request(max_tokens=50)))
    status = coordinator.status()
    assert [(stage.device_name, stage.first, stage.last) for stage in status.stages] == [
        ("pc-0", 0, 10),
        ("pc-1", 10, 20),
    ]
    assert [(stage.ms_per_step, stage.ms_per_token) for stage in status.stages] == [(0.1, 0.1)] * 2
    assert status.tokens_per_second > 0
    assert status.overhead_ms_per_hop >= 0
