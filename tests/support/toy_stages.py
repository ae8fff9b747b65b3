"""Plays a pipeline's stages under a coordinator, on its loop and without sockets: a toy model with fixed answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from agent.link.frames import Frame, FrameType, decode, encode
from agent.stage.types import Epoch, PipelineId, Row, StageTiming, StepTable, StreamId
from console.pipeline.coordinator import Coordinator
from console.pipeline.flight import Deadlines
from console.pipeline.tokens import ModelTokenizer, ToolCodec
from console.pipeline.types import Event, Failed, Finished, GenerationRequest, StageInfo, Text
from tests.support.byte_tokens import BOS, EOS, byte_tokenizer


def make_tokenizer() -> ModelTokenizer:
    codec = ToolCodec(byte_tokenizer(), bos_id=BOS, template="{{ messages[0].content }}")
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


def text_of(events: Sequence[Event]) -> str:
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
