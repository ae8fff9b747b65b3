"""A real child with a toy model: its guesses, and what its absence, death and slowness cost (drafts, nothing else)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from agent.stage.engines import load
from agent.stage.types import Sampling, StreamId
from console.pipeline.speculation import draft_model
from console.pipeline.speculation.draft_model import DraftModel
from tests.conftest import ExpectLogs
from tests.support.leaks import child_processes
from tests.support.patience import PATIENCE_S
from tests.support.stage import SEEDED, generate, make_spec
from tests.support.toy_library import VOCAB, toy_library

LOGGER = "console.pipeline.speculation.draft_model"
ONE, TWO, THREE = StreamId(1), StreamId(2), StreamId(3)
PROMPTS = {ONE: [3, 1, 4, 1, 5], TWO: [2, 7, 1, 8]}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("draft")
    toy_library(folder)
    return folder


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let streams wait for their drafts on a busy machine, too."""
    monkeypatch.setattr(draft_model, "WAIT_S", PATIENCE_S)
    monkeypatch.setattr(draft_model, "STEP_S", PATIENCE_S)


class Waiter:
    """Hears of guesses, as the coordinator does."""

    def __init__(self) -> None:
        self.told = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self.told.clear()
                await self.told.wait()

    async def guess(self, model: DraftModel, stream: StreamId, ids: Sequence[int], count: int) -> list[int]:
        drafts: list[Sequence[int]] = []

        def asked() -> bool:
            if (found := model.propose(stream, ids, count)) is not None:
                drafts.append(found)
            return bool(drafts)

        await self.until(asked)
        return list(drafts[0])

    async def ready(self, model: DraftModel) -> None:
        await self.until(lambda: not model.problem)


@asynccontextmanager
async def drafting(folder: Path, **fields: Any) -> AsyncIterator[tuple[DraftModel, Waiter]]:
    model = DraftModel("toy", make_spec(folder), **{"vocab_size": VOCAB, **fields})
    waiter = Waiter()
    model.start(waiter.told.set)
    try:
        yield model, waiter
    finally:
        await model.close()


def the_child() -> psutil.Process:
    (child,) = (child for child in child_processes() if "agent.stage.worker" in child.cmdline())
    return child


@pytest.fixture(scope="module")
def said(library: Path) -> dict[StreamId, list[int]]:
    """What the toy model says after each prompt."""
    engine = load(make_spec(library))
    answers = generate([engine], [np.array(prompt) for prompt in PROMPTS.values()], 40, batch=1)
    engine.close()
    return dict(zip(PROMPTS, answers, strict=True))


async def test_guesses_are_the_draft_models_own_words(library: Path, said: dict[StreamId, list[int]]) -> None:
    async with drafting(library) as (model, waiter):
        assert model.kind(ONE, PROMPTS[ONE]) is None
        assert model.propose(ONE, PROMPTS[ONE], 4) == ()
        for stream, prompt in PROMPTS.items():
            model.begin(stream, prompt, Sampling())
        await waiter.ready(model)
        assert model.kind(ONE, PROMPTS[ONE]) == 0
        guesses = await asyncio.gather(*(waiter.guess(model, stream, PROMPTS[stream], 8) for stream in PROMPTS))
        assert dict(zip(PROMPTS, guesses, strict=True)) == {stream: said[stream][:8] for stream in PROMPTS}
        assert model.draft_s > 0
        longer = [*PROMPTS[ONE], *said[ONE][:3]]
        assert await waiter.guess(model, ONE, longer, 5) == said[ONE][3:8]
        model.forget(ONE)
        model.forget(TWO)
        assert model.kind(ONE, longer) is None
        # Sampled streams are guessed with their own noise: the same position gives the same token again.
        model.begin(THREE, PROMPTS[ONE], SEEDED)
        sampled = await waiter.guess(model, THREE, PROMPTS[ONE], 12)
        assert sampled != said[ONE][:12]
        assert await waiter.guess(model, THREE, [*PROMPTS[ONE], *sampled[:5]], 7) == sampled[5:]


async def test_a_child_that_dies_gives_up_its_guesses_and_is_started_again(
    library: Path, said: dict[StreamId, list[int]], expected_logs: ExpectLogs
) -> None:
    expected_logs(LOGGER, "gives no drafts: .*signal 9")
    async with drafting(library, pause_s=0.0) as (model, waiter):
        model.begin(ONE, PROMPTS[ONE], Sampling())
        await waiter.ready(model)
        child = the_child()
        child.suspend()
        assert model.propose(ONE, PROMPTS[ONE], 8) is None
        child.kill()
        assert await waiter.guess(model, ONE, PROMPTS[ONE], 8) == []
        assert "signal 9" in model.problem
        assert model.kind(ONE, PROMPTS[ONE]) is None
        await waiter.ready(model)
        assert await waiter.guess(model, ONE, PROMPTS[ONE], 8) == said[ONE][:8]


async def test_a_child_that_is_slow_makes_nobody_wait_for_long(
    library: Path, said: dict[StreamId, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with drafting(library) as (model, waiter):
        model.begin(ONE, PROMPTS[ONE], Sampling())
        await waiter.ready(model)
        child = the_child()
        child.suspend()
        with monkeypatch.context() as hurry:
            hurry.setattr(draft_model, "WAIT_S", 0.1)
            assert await waiter.guess(model, ONE, PROMPTS[ONE], 8) == []
        assert model.draft_s > 0.05
        child.resume()
        longer = [*PROMPTS[ONE], *said[ONE][:20]]
        assert await waiter.guess(model, ONE, longer, 8) == said[ONE][20:28]
        # Whoever waits when the model is taken down goes on at once.
        assert model.propose(ONE, longer, 8) is None
        await model.close()
        assert await waiter.guess(model, ONE, longer, 8) == []
        assert model.problem == "The draft model was taken down."


async def test_a_child_that_is_stuck_is_ended(
    library: Path, expected_logs: ExpectLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected_logs(LOGGER, "did not answer a step")
    async with drafting(library) as (model, waiter):
        await waiter.ready(model)
        the_child().suspend()
        monkeypatch.setattr(draft_model, "STEP_S", 0.1)
        model.begin(ONE, PROMPTS[ONE], Sampling())
        model.propose(ONE, PROMPTS[ONE], 4)
        await waiter.until(lambda: bool(model.problem))
        assert "did not answer a step" in model.problem


async def test_a_library_that_cannot_be_loaded_is_said(tmp_path: Path, expected_logs: ExpectLogs) -> None:
    expected_logs(LOGGER, "gives no drafts")
    async with drafting(tmp_path) as (model, waiter):
        assert model.problem == "The draft model is being loaded."
        await waiter.until(lambda: "is out" in model.problem)
        assert model.propose(ONE, [1], 4) == ()
