"""Real engines on the toy library: whatever is guessed, every answer has the ids that it has without guesses.

The scheduler's own steps go as frames through one or two stages of either engine. A few requests are asked over and
over: what they get plainly, alone and on one stage, is computed once.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.link.frames import FrameType, decode
from agent.stage.engines import Engine, load
from agent.stage.steps import StepRunner, read_grammars
from agent.stage.types import Sampling, StepTable, StreamId
from console.pipeline.drafts import NoDrafts
from console.pipeline.plans import Limits, Step
from console.pipeline.scheduler import Scheduler
from console.pipeline.speculation.proposers import LookupProposer
from console.pipeline.speculation.speculator import Speculator
from tests.support.spelling_library import spelling_library
from tests.support.stage import make_spec, make_step
from tests.support.toy_library import VOCAB

TOKENS = 16
CONTEXT = 48
PAIRS = {
    "one paged": [("paged", 0, 3)],
    "one stateful": [("stateful", 0, 3)],
    "two paged": [("paged", 0, 2), ("paged", 2, 3)],
    "paged, stateful": [("paged", 0, 2), ("stateful", 2, 3)],
    "stateful, paged": [("stateful", 0, 2), ("paged", 2, 3)],
    "paged, packed": [("paged", 0, 2), ("packed", 2, 3)],
}
GRAMMAR = 'start: %json {"type": "array", "minItems": 20, "items": {"enum": [1, 10, 17, "a", "ab", {"b": 1}]}}'
"""Too long to end within the tokens."""
SAMPLINGS = [
    Sampling(),
    Sampling(),
    Sampling(temperature=0.9, seed=3),
    Sampling(temperature=1.3, seed=2**63, top_k=20, top_p=0.95),
    Sampling(repetition_penalty=1.2, logprobs=1),
    Sampling(temperature=0.7, seed=8, presence_penalty=0.8, frequency_penalty=0.3),
    Sampling(grammar=GRAMMAR),
    Sampling(temperature=1.2, seed=5, repetition_penalty=1.1, grammar=GRAMMAR),
]


class Asked(NamedTuple):
    """A request and all that it gets plainly."""

    prompt: list[int]
    sampling: Sampling
    answer: list[int]


class Pipelines(NamedTuple):
    """The loaded stages by the name of their pair, and the requests."""

    stages: dict[str, list[StepRunner]]
    asked: list[Asked]


class Knowing(NoDrafts):
    """Guesses by chance from the known answers: right so far as luck has it, then wrong, sometimes late."""

    def __init__(self, chance: random.Random, answers: dict[StreamId, list[int]]) -> None:
        super().__init__()
        self._chance, self._answers = chance, answers

    def drafts_for(self, stream: StreamId, ids: Sequence[int], room: int) -> Sequence[int] | None:
        known = self._answers[stream]
        chance = self._chance
        if chance.random() < 0.2:
            return None
        count = chance.choice([0, 1, 1, 2, 3, 5, 8, 33])
        right = chance.choice([0, 1, 2, count, count])
        guess = [known[at] if at < len(known) else 0 for at in range(len(ids), len(ids) + count)]
        return [token if place < right else (token + 1) % VOCAB for place, token in enumerate(guess)]


class Timed(Speculator):
    """Guesses by lookup as in earnest, with round times that make any number of drafts worth it."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(LookupProposer())
        for rows in (1, 2, 4, 8):
            self.round_took(1, rows, 1, chance.choice([0.01, 1.0]) + 0.001 * rows, 0.001 * rows)


def run_step(stages: Sequence[StepRunner], step: Step) -> list[int]:
    data = make_step(
        step.rows, np.array(step.tokens, np.int64) if step.rows else None, release=step.release, shares=step.shares
    )
    for stage in stages:
        data = stage.answer(data, 0.0)
    frame = decode(data)
    assert frame.type is FrameType.TOKENS, msgspec.msgpack.decode(frame.table)
    assert not msgspec.msgpack.decode(frame.table, type=StepTable).refused
    return [] if frame.tensor is None else frame.tensor.tolist()


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipelines]:
    folder: Path = tmp_path_factory.mktemp("toy")
    spelling_library(folder, windows=[0, 9, 0])
    engines: list[Engine] = []

    def stage(index: int, engine: str, first: int, last: int) -> StepRunner:
        fields: dict[str, Any] = {"engine": engine, "stage": index, "context_tokens": CONTEXT, "streams": 4}
        engines.append(load(make_spec(folder, first=first, last=last, **fields)))
        spec, loaded = engines[-1].spec, engines[-1]
        return StepRunner(spec, loaded, grammars=read_grammars(spec, loaded.manifest))

    stages = {name: [stage(at, *parts) for at, parts in enumerate(pair)] for name, pair in PAIRS.items()}
    chance = random.Random(5)
    asked = []
    for index, sampling in enumerate(2 * SAMPLINGS):
        prompt = [chance.randrange(VOCAB) for _ in range(chance.choice([1, 5, 12, 30]))]
        if index % 3 == 0:
            prompt = (prompt * 4)[:30]
        asked.append(Asked(prompt, sampling, plain(stages["one paged"], prompt, sampling)))
    yield Pipelines(stages, asked)
    for engine in engines:
        engine.close()


def limits_for(stages: Sequence[StepRunner], in_flight: int, prefill_tokens: int = 256) -> Limits:
    copies = any(runner._spec.engine == "stateful" for runner in stages)
    places = 4 if copies else 0
    return Limits(in_flight, 4 * CONTEXT, CONTEXT, 3, prefill_tokens, shares_blocks=not copies, places=places)


def leave_nothing(scheduler: Scheduler, stages: Sequence[StepRunner]) -> None:
    """Free what is kept for its beginning: the engines outlive the schedulers here, and their streams' names."""
    for _ in range(2):
        scheduler.age_kept()
        while (step := scheduler.schedule()) is not None:
            scheduler.update(step.id, run_step(stages, step))


def plain(stages: Sequence[StepRunner], prompt: list[int], sampling: Sampling) -> list[int]:
    scheduler = Scheduler(limits_for(stages, 1))
    stream = scheduler.add(prompt, TOKENS, sampling=sampling)
    said: list[int] = []
    while (step := scheduler.schedule()) is not None:
        for outcome in scheduler.update(step.id, run_step(stages, step)):
            assert outcome.stream == stream
            said += outcome.ids
    leave_nothing(scheduler, stages)
    return said


def check(pipelines: Pipelines, pair: str, seed: int) -> None:
    """One day of a pipeline: who comes, how much they want, where it ends, who leaves and what is guessed is chance."""
    chance = random.Random(seed)
    stages = pipelines.stages[pair]
    known: dict[StreamId, list[int]] = {}
    drafts = Timed(chance) if chance.random() < 0.3 else Knowing(chance, known)
    in_flight, prefill_tokens = chance.randint(1, len(stages) + 1), chance.choice([3, 16, 256])
    scheduler = Scheduler(limits_for(stages, in_flight, prefill_tokens), drafts)
    coming = [chance.choice(pipelines.asked) for _ in range(chance.randint(1, 3))]
    expected: dict[StreamId, list[int]] = {}
    said: dict[StreamId, list[int]] = {}
    ended: set[StreamId] = set()
    leaving: dict[StreamId, int] = {}
    flying: deque[tuple[Step, list[int]]] = deque()
    while coming or not scheduler.idle:
        if coming and (chance.random() < 0.5 or scheduler.idle):
            one = coming.pop()
            tokens, eos = chance.randint(1, TOKENS), {chance.choice(one.answer)} if chance.random() < 0.3 else set()
            stream = scheduler.add(one.prompt, tokens, sampling=one.sampling, eos=eos)
            known[stream], said[stream] = one.prompt + one.answer, []
            ends = [place for place, token in enumerate(one.answer[:tokens], 1) if token in eos]
            expected[stream] = one.answer[: min([tokens, *ends])]
            if chance.random() < 0.2:
                leaving[stream] = chance.randint(1, tokens)
        while (step := scheduler.schedule()) is not None:
            flying.append((step, run_step(stages, step)))
        if not flying:
            continue
        step, ids = flying.popleft()
        for outcome in scheduler.update(step.id, ids):
            said[outcome.stream] += outcome.ids
            if outcome.finish:
                ended.add(outcome.stream)
            elif len(said[outcome.stream]) >= leaving.get(outcome.stream, TOKENS + 1):
                scheduler.cancel(outcome.stream)
    for stream, answer in expected.items():
        assert said[stream] == (answer if stream in ended else answer[: len(said[stream])])
        assert stream in ended or stream in leaving
    leave_nothing(scheduler, stages)


@settings(max_examples=500, deadline=None)
@given(pair=st.sampled_from(list(PAIRS)), seed=st.integers(0, 2**32))
def test_guesses_change_no_answer(pipelines: Pipelines, pair: str, seed: int) -> None:
    check(pipelines, pair, seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=5000, deadline=None)
@given(pair=st.sampled_from(list(PAIRS)), seed=st.integers(0, 2**32))
def test_guesses_change_no_answer_in_five_thousand_mixes(pipelines: Pipelines, pair: str, seed: int) -> None:
    check(pipelines, pair, seed)
