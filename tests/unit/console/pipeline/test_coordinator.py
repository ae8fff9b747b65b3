from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec
import numpy as np
import pytest

from agent.link.frames import Frame, FrameType, decode, encode
from agent.stage.types import Epoch, Nack, PipelineId, Row, StageTiming, StepTable, StreamId
from console.pipeline.coordinator import Coordinator
from console.pipeline.errors import ContextExceeded, PromptError
from console.pipeline.flight import Deadlines
from console.pipeline.tokens import ModelTokenizer
from console.pipeline.types import Event, Failed, Finished, GenerationRequest, Generator, StageInfo, Text, Waiting
from shard_export.library.chat import ChatCodec
from tests.support.byte_tokens import BOS, EOS, byte_tokenizer

LOGGER = "console.pipeline.coordinator"


def make_tokenizer() -> ModelTokenizer:
    codec = ChatCodec(byte_tokenizer(), bos_id=BOS, template="{{ messages[0].content }}")
    return ModelTokenizer(codec, eos_ids=[EOS], bos_id=BOS)


TOKENIZER = make_tokenizer()


class Stages:
    """Plays all stages on the loop: keeps every stream's tokens and answers each step with the toy model's next ones.

    The toy model says `answers[prompt]` byte by byte and then EOS; other prompts get a sum of what came so far.
    """

    def __init__(self, count: int = 2, answers: dict[str, str] | None = None) -> None:
        self.count = count
        self.scripts = {
            tuple(TOKENIZER.encode_text(prompt)): [*TOKENIZER.encode_text(text), EOS]
            for prompt, text in (answers or {}).items()
        }
        self.caches: dict[StreamId, list[int]] = {}
        self.steps: list[Frame] = []
        self.rows: list[list[Row]] = []
        self.released: list[StreamId] = []
        self.in_flight = self.most_in_flight = 0
        self.paused = False
        self.held: deque[Frame] = deque()
        self.coordinator: Coordinator | None = None
        self.change: Callable[[Frame], list[Frame]] = lambda frame: [frame]

    def submit(self, data: bytes) -> None:
        frame = decode(data)
        assert (frame.type, frame.stage) == (FrameType.STEP, 0)
        assert frame.tensor is None or frame.tensor.dtype == np.int64
        self.steps.append(frame)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.held.append(self.run(frame))
        if not self.paused:
            asyncio.get_running_loop().call_soon(self.reply)

    def run(self, frame: Frame) -> Frame:
        table = msgspec.msgpack.decode(frame.table, type=StepTable)
        self.rows.append(table.rows)
        for share in table.shares:
            self.caches[share.stream] = self.caches[share.source][: share.tokens]
        for stream in table.release:
            self.released.append(stream)
            del self.caches[stream]
        tokens = [] if frame.tensor is None else frame.tensor.tolist()
        ids: list[int] = []
        for row in table.rows:
            cache = self.caches.setdefault(row.stream, [])
            assert row.first == len(cache)
            new, tokens = tokens[: row.count], tokens[row.count :]
            cache += new
            ids += [self.next_token(cache)] * row.wants
        reply = StepTable(table.rows, table.release, [StageTiming(100, 10)] * self.count)
        return Frame(
            FrameType.TOKENS,
            frame.pipeline,
            frame.epoch,
            frame.step,
            frame.sequence,
            self.count - 1,
            msgspec.msgpack.encode(reply),
            np.array(ids, np.int32),
        )

    def next_token(self, cache: list[int]) -> int:
        for prompt, script in self.scripts.items():
            if tuple(cache[: len(prompt)]) == prompt:
                return script[len(cache) - len(prompt)]
        return toy_token(cache)

    def reply(self) -> None:
        """Answer the oldest step."""
        if self.held:
            self.in_flight -= 1
            assert self.coordinator is not None
            for frame in self.change(self.held.popleft()):
                self.coordinator.on_frame(decode(encode(frame)))

    def resume(self) -> None:
        self.paused = False
        for _ in range(len(self.held)):
            self.reply()


def toy_token(cache: list[int]) -> int:
    return TOKENIZER.encode_text("abcdefghijklmnopqrstuvwxyz")[sum(cache) % 26]


def make_coordinator(
    stages: Stages, *, submit: Callable[[bytes], Awaitable[None] | None] | None = None, **changes: Any
) -> Coordinator:
    infos = [StageInfo(f"id-{i}", f"pc-{i}", 10 * i, 10 * i + 10, "paged", True) for i in range(stages.count)]
    options: dict[str, Any] = {"context_tokens": 512, "kv_tokens": 4096, "streams": 8, "deadlines": Deadlines()}
    stages.coordinator = Coordinator(
        model_id="toy",
        stages=infos,
        tokenizer=TOKENIZER,
        submit=submit or stages.submit,
        pipeline=PipelineId(3),
        epoch=Epoch(5),
        **(options | changes),
    )
    return stages.coordinator


def make_request(prompt: str = "hello", **changes: Any) -> GenerationRequest:
    return GenerationRequest(prompt_ids=TOKENIZER.encode_text(prompt), **({"max_tokens": 64} | changes))


async def collect(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def ids_of(events: list[Event]) -> list[int]:
    return [token for event in events if isinstance(event, Text) for token in event.token_ids]


def finish_of(events: list[Event]) -> str:
    last = events[-1]
    assert sum(isinstance(event, Finished | Failed) for event in events) == 1
    return last.reason if isinstance(last, Finished) else last.code if isinstance(last, Failed) else "?"


async def settle(condition: Callable[[], bool]) -> None:
    for _ in range(200):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never held")


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
    coordinator._tokenizer = Watched(ChatCodec(byte_tokenizer()), eos_ids=[EOS])
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
