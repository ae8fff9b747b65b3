"""Penalties and bias on real engines: the tail of a split model picks what one stage would have picked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from agent.link.frames import FrameType, decode
from agent.stage.engines import Engine, load
from agent.stage.steps import StepRunner
from agent.stage.types import Sampling, StepTable
from console.pipeline.plans import Limits
from console.pipeline.scheduler import Scheduler
from tests.support.stage import make_spec, make_step
from tests.support.toy_library import VOCAB, toy_library

PROMPT, TOKENS = [5, 9, 5, 33, 12, 7, 40, 5], 24
BANNED = [1, 5, 9, 17]


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[list[Engine]]]:
    folder: Path = tmp_path_factory.mktemp("toy")
    toy_library(folder)
    whole = [load(make_spec(folder))]
    split = [load(make_spec(folder, first=0, last=2)), load(make_spec(folder, first=2, last=3, stage=1))]
    yield [whole, split]
    for engine in [*whole, *split]:
        engine.close()


def answers(engines: Sequence[Engine], asked: Sequence[Sampling], *, prefill: int = 256) -> list[list[int]]:
    """Run the scheduler's own steps through the stages until every stream has its tokens."""
    stages = [StepRunner(engine.spec, engine) for engine in engines]
    scheduler = Scheduler(Limits(1, 4096, 128, 8, prefill_tokens=prefill))
    found: dict[int, list[int]] = {scheduler.add(PROMPT, TOKENS, sampling=sampling): [] for sampling in asked}
    while (step := scheduler.schedule()) is not None:
        data = make_step(step.rows, np.array(step.tokens, np.int64) if step.rows else None, release=step.release)
        for stage in stages:
            data = stage.answer(data, 0.0)
        frame = decode(data)
        assert frame.type is FrameType.TOKENS, msgspec.msgpack.decode(frame.table)
        table: Any = msgspec.msgpack.decode(frame.table, type=StepTable)
        ids = [] if frame.tensor is None else frame.tensor.tolist()
        for outcome in scheduler.update(step.id, ids, table.logprobs):
            found[outcome.stream] += outcome.ids
            if outcome.logprobs:
                assert len(outcome.logprobs) == len(outcome.ids)
    return list(found.values())


ASKED = [
    Sampling(),
    Sampling(repetition_penalty=1.3, logprobs=3),
    Sampling(presence_penalty=1.5, frequency_penalty=0.7),
    Sampling(1.0, seed=5, repetition_penalty=1.2, frequency_penalty=-0.5, logit_bias={3: 4.0}),
]


def test_penalties_give_the_same_ids_on_one_and_on_two_stages_together_and_alone(
    pipelines: list[list[Engine]],
) -> None:
    whole, split = pipelines
    together = answers(whole, ASKED)
    assert answers(split, ASKED) == together
    assert [answers(whole, [sampling])[0] for sampling in ASKED] == together
    assert len({tuple(ids) for ids in together}) == len(ASKED)


def test_a_prompt_in_pieces_is_penalised_as_one_in_a_single_step(pipelines: list[list[Engine]]) -> None:
    assert answers(pipelines[1], ASKED, prefill=3) == answers(pipelines[0], ASKED)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_banned_token_never_appears_and_a_forced_one_always(
    pipelines: list[list[Engine]], temperature: float
) -> None:
    plain = answers(pipelines[1], [Sampling(temperature, seed=2)])[0]
    bias = dict.fromkeys([*BANNED, plain[0]], -100.0)
    banned = answers(pipelines[1], [Sampling(temperature, seed=2, logit_bias=bias)])[0]
    assert not set(banned) & set(bias)
    forced = answers(pipelines[1], [Sampling(temperature, seed=2, logit_bias={VOCAB - 1: 100.0})])[0]
    assert forced == [VOCAB - 1] * TOKENS


def test_a_frequency_penalty_ends_repetition(pipelines: list[list[Engine]]) -> None:
    loop = answers(pipelines[0], [Sampling(logit_bias={8: 30.0})])[0]
    assert set(loop) == {8}
    assert len(set(answers(pipelines[0], [Sampling(logit_bias={8: 30.0}, frequency_penalty=2.0)])[0])) > 1
