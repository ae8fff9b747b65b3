"""A model that nobody asks anything for hours: it stays ready by its probes alone, keeps nothing of them, and answers.

Real coordinator, frames and engines over the toy model. The probes of the hours follow one another without the waits.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from console.pipeline.coordinator import Coordinator
from console.pipeline.types import Failed, GenerationRequest, Text
from tests.support.local_pipeline import local_pipeline
from tests.support.patience import until
from tests.support.toy_library import toy_library

PROBE_EVERY_S = 15.0
"""How often a deployed model that nobody asks proves itself."""


async def answer(coordinator: Coordinator) -> list[int]:
    ids: list[int] = []
    async with aclosing(coordinator.generate(GenerationRequest([1, 2, 3], 30))) as events:
        async for event in events:
            assert not isinstance(event, Failed), event
            if isinstance(event, Text):
                ids.extend(event.token_ids)
    return ids


async def stay_idle(folder: Path, hours: float) -> None:
    toy_library(folder)
    async with local_pipeline(folder) as pipeline:
        coordinator = pipeline.coordinator
        before = await answer(coordinator)
        await coordinator.ready(0.0)
        tasks = len(asyncio.all_tasks())
        kept = coordinator.status().kept_streams
        for _ in range(round(hours * 3600 / PROBE_EVERY_S)):
            began_s = coordinator._clock()
            age_s = (await coordinator.ready(0.0)).age_s
            assert 0 <= age_s <= coordinator._clock() - began_s, "a token came in this very probe"
        await until(lambda: not coordinator.status().steps_in_flight)  # the last probe's cache is let go
        status = coordinator.status()
        assert status.ready
        assert (status.streams_running, status.streams_waiting) == (0, 0)
        assert (status.dropped_replies, status.endings) == (0, {"length": 1})
        assert status.kept_streams <= kept + 1
        assert len(asyncio.all_tasks()) == tasks
        assert await answer(coordinator) == before


async def test_after_half_an_hour_without_a_question_the_first_one_is_answered(tmp_path: Path) -> None:
    await stay_idle(tmp_path, hours=0.5)


@pytest.mark.slow
async def test_after_twelve_hours_without_a_question_the_first_one_is_answered(tmp_path: Path) -> None:
    await stay_idle(tmp_path, hours=12)
