"""The real model in exact numerics: stages, engines, batches and drafts change nothing in what it says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.stage.engines import Engine, load
from agent.stage.types import EngineName, StreamId
from tests.support.stage import Ids, generate, make_row, make_spec

LAYERS, SPLIT, VOCAB = 30, 18, 49152
OPENING = [1, 4093, 198, 1780, 314, 260]
CLOSING = [47, 2, 198, 1, 520, 9531, 198]
TOKENS, LONG_TOKENS = 16, 96


def prompts() -> list[Ids]:
    """Eight chat turns of different lengths about nothing in particular."""
    rng = np.random.default_rng(4)
    return [np.array([*OPENING, *rng.integers(300, 30_000, 3 + 4 * index), *CLOSING]) for index in range(8)]


@contextmanager
def stages(library: Path, engine: EngineName, *ranges: tuple[int, int]) -> Iterator[list[Engine]]:
    with ExitStack() as stack:
        loaded = []
        for first, last in ranges:
            loaded.append(load(make_spec(library, first=first, last=last, engine=engine, context_tokens=256)))
            stack.callback(loaded[-1].close)
        yield loaded


@pytest.fixture(scope="module")
def one_stage(smollm2_library: Path) -> Iterator[Engine]:
    with stages(smollm2_library, "paged", (0, LAYERS)) as (engine,):
        yield engine


@pytest.fixture(scope="module")
def answers(one_stage: Engine) -> list[list[int]]:
    """What one stage says, one stream at a time."""
    return generate([one_stage], prompts(), TOKENS, batch=1)


def test_every_layer_of_the_real_model_is_fused(one_stage: Engine) -> None:
    assert one_stage.fused


@pytest.mark.parametrize("batch", [3, 8])
def test_batches_of_one_stage_say_the_same(one_stage: Engine, answers: list[list[int]], batch: int) -> None:
    assert generate([one_stage], prompts(), TOKENS, batch=batch) == answers


@pytest.mark.parametrize("engine", ["paged", "stateful", pytest.param("packed", marks=pytest.mark.slow)])
def test_two_stages_say_the_same(smollm2_library: Path, answers: list[list[int]], engine: EngineName) -> None:
    with stages(smollm2_library, engine, (0, SPLIT), (SPLIT, LAYERS)) as pair:
        assert [stage.fused for stage in pair] == [engine != "packed"] * 2
        assert generate(pair, prompts(), TOKENS, batch=3) == answers


def test_verifying_drafts_says_the_same(one_stage: Engine, answers: list[list[int]]) -> None:
    for stream, (prompt, answer) in enumerate(zip(prompts()[:3], answers, strict=False)):
        assert verified(one_stage, stream, prompt, answer) == answer
        one_stage.release(StreamId(stream))


def verified(engine: Engine, stream: int, prompt: Any, known: list[int]) -> list[int]:
    """An answer by verify rows of four: two drafts of the known answer, then one that is surely wrong."""
    said = [int(engine.step([make_row(stream, 0, len(prompt))], prompt)[0].argmax())]
    at = len(prompt)
    while len(said) < TOKENS:
        drafts = known[len(said) : len(said) + 2]
        tokens = np.array([said[-1], *drafts, (said[-1] + 1) % VOCAB])
        row = make_row(stream, at, len(tokens), truncate_to=at, wants=len(tokens))
        picks = engine.step([row], tokens).argmax(axis=1).tolist()
        agreed = 0
        while agreed < len(drafts) and picks[agreed] == drafts[agreed]:
            agreed += 1
        said += picks[: agreed + 1]
        at += agreed + 1
    return said[:TOKENS]


@pytest.fixture(scope="module")
def long_answers(one_stage: Engine) -> list[list[int]]:
    """What one stage says at length, one stream at a time."""
    return generate([one_stage], prompts(), LONG_TOKENS, batch=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ["paged", "stateful", "packed"])
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_two_stages_say_the_same_for_long_answers(
    smollm2_library: Path, long_answers: list[list[int]], engine: EngineName, batch: int
) -> None:
    with stages(smollm2_library, engine, (0, SPLIT), (SPLIT, LAYERS)) as pair:
        assert generate(pair, prompts(), LONG_TOKENS, batch=batch) == long_answers
