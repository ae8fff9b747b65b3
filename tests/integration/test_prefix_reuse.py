"""Warm and cold, undisturbed and preempted: real engines give the same ids, whatever their caches held before.

The stateful engine's probabilities differ in the seventh digit when a prompt comes in other pieces; ids never do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from agent.link.frames import FrameType, decode
from agent.stage.engines import Engine, load
from agent.stage.steps import StepRunner
from agent.stage.types import Sampling, StepTable, StreamId
from console.pipeline.plans import Limits, Step
from console.pipeline.scheduler import Scheduler
from tests.support.stage import make_spec, make_step
from tests.support.toy_library import VOCAB, toy_library

ASKED = [
    Sampling(),
    Sampling(0.9, seed=4, logprobs=2),
    Sampling(0.7, seed=9, repetition_penalty=1.3, frequency_penalty=0.4, logit_bias={3: 2.0}),
]
TOKENS = 12
NUMBERS = itertools.count(1000, 1000)
"""The engines outlive the schedulers here, so each of these names its streams anew."""


class Pipeline:
    """Engines and a scheduler, step by step in this thread."""

    def __init__(self, engines: Sequence[Engine], **limits: Any) -> None:
        copies = any(engine.spec.engine == "stateful" for engine in engines)
        values = {"stages": 1, "kv_tokens": 1024, "context_tokens": 128, "streams": 8, "shares_blocks": not copies}
        self.scheduler = Scheduler(Limits(**(values | {"places": 8 if copies else 0} | limits)))
        self.scheduler._next_stream = next(NUMBERS)
        self.found: dict[StreamId, tuple[list[int], list[float]]] = {}
        self.reused: dict[StreamId, int] = {}
        self.told = 0
        self._runners = [StepRunner(engine.spec, engine) for engine in engines]

    def ask(self, prompt: Sequence[int], sampling: Sampling, tokens: int = TOKENS) -> StreamId:
        stream = self.scheduler.add(list(prompt), tokens, sampling=sampling)
        self.found[stream] = ([], [])
        return stream

    def run(self) -> None:
        while (step := self.scheduler.schedule()) is not None:
            self.carry(step)

    def carry(self, step: Step) -> None:
        """Take a step through all stages and its answer back."""
        tensor = np.array(step.tokens, np.int64) if step.rows else None
        data = make_step(step.rows, tensor, release=step.release, shares=step.shares)
        for runner in self._runners:
            data = runner.answer(data, 0.0)
        frame = decode(data)
        assert frame.type is FrameType.TOKENS, msgspec.msgpack.decode(frame.table)
        for row in step.rows:
            self.told += row.sampling is not None
            self.reused[row.stream] = self.scheduler.reused(row.stream)
        table = msgspec.msgpack.decode(frame.table, type=StepTable)
        ids = [] if frame.tensor is None else frame.tensor.tolist()
        for outcome in self.scheduler.update(step.id, ids, table.logprobs):
            self.found[outcome.stream][0].extend(outcome.ids)
            self.found[outcome.stream][1].extend(entry.chosen for entry in outcome.logprobs if entry)

    def close(self) -> None:
        """Leave the engines' caches empty."""
        for _ in range(2):
            self.scheduler.age_kept()
        self.run()


@pytest.fixture(scope="module", params=["paged", "paged paged", "paged stateful", "packed paged"])
def engines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Engine]]:
    folder: Path = tmp_path_factory.mktemp("toy")
    toy_library(folder)
    names = request.param.split()
    ends = [0, 3] if len(names) == 1 else [0, 2, 3]
    loaded = [
        load(make_spec(folder, first=ends[stage], last=ends[stage + 1], stage=stage, engine=name))
        for stage, name in enumerate(names)
    ]
    yield loaded
    for engine in loaded:
        engine.close()


def prompt_of(length: int, number: int = 0) -> list[int]:
    return [(7 * place + place * place + number) % VOCAB for place in range(length)]


def cold(
    engines: Sequence[Engine], prompt: Sequence[int], sampling: Sampling, tokens: int = TOKENS
) -> tuple[list[int], list[float]]:
    pipeline = Pipeline(engines)
    stream = pipeline.ask(prompt, sampling, tokens)
    pipeline.run()
    pipeline.close()
    assert pipeline.reused[stream] == 0
    return pipeline.found[stream]


def check(found: tuple[list[int], list[float]], expected: tuple[list[int], list[float]]) -> None:
    assert found[0] == expected[0]
    assert found[1] == pytest.approx(expected[1], abs=1e-5)


def test_warm_turns_and_a_shared_beginning_give_the_ids_of_cold_runs(engines: list[Engine]) -> None:
    pipeline = Pipeline(engines)
    prompt = prompt_of(70)
    for turn in range(3):
        streams = [pipeline.ask(prompt, sampling) for sampling in ASKED]
        pipeline.run()
        # The first turn's streams run side by side; every later one finds the turn before.
        assert all(pipeline.reused[stream] == (0 if turn == 0 else 64) for stream in streams)
        for stream, sampling in zip(streams, ASKED, strict=True):
            check(pipeline.found[stream], cold(engines, prompt, sampling))
        prompt = [*prompt, *pipeline.found[streams[0]][0], turn]
    pipeline.close()


def test_a_prompt_of_one_token_starts_clean_on_every_stage_whoever_was_there_before(engines: list[Engine]) -> None:
    expected = cold(engines, [5], ASKED[1])
    pipeline = Pipeline(engines)
    pipeline.ask([5], ASKED[0])
    pipeline.run()
    left = pipeline.ask(prompt_of(70), ASKED[1], 40)
    step = pipeline.scheduler.schedule()
    assert step is not None
    pipeline.carry(step)
    assert pipeline.scheduler.cancel(left)
    stream = pipeline.ask([5], ASKED[1])
    pipeline.run()
    check(pipeline.found[stream], expected)
    pipeline.close()


def test_preempted_streams_give_the_ids_of_undisturbed_ones(engines: list[Engine]) -> None:
    expected = [cold(engines, prompt_of(30, number), ASKED[number], 70) for number in range(3)]
    pipeline = Pipeline(engines, kv_tokens=288, streams=3)
    streams = [pipeline.ask(prompt_of(30, number), ASKED[number], 70) for number in range(3)]
    pipeline.run()
    assert pipeline.told > 3, "nobody lost a place"
    for stream, answer in zip(streams, expected, strict=True):
        check(pipeline.found[stream], answer)
    pipeline.close()
