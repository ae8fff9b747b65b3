"""Several answers to one request, in front of the real coordinator and its caches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from agent.stage.types import Sampling
from console.api.openai.several import Placed, answer_all
from console.pipeline.types import Event, Failed, Finished, GenerationRequest, Text
from tests.support.api import ScriptedModel, Step, finished, says
from tests.support.toy_stages import Stages, make_coordinator


def requests(count: int, prompt: str = "x" * 100, tokens: int = 5) -> list[GenerationRequest]:
    ids = [ord(letter) for letter in prompt]
    return [GenerationRequest(ids, tokens, Sampling(temperature=1, seed=place), key_id="k") for place in range(count)]


async def collect(model: ScriptedModel, count: int, answers: int) -> list[Placed]:
    return [placed async for placed in answer_all(model, requests(count), answers)]


async def test_answers_to_one_prompt_share_its_cache() -> None:
    coordinator = make_coordinator(Stages())
    events = answer_all(coordinator, requests(4), 4)
    ended = {place: event async for place, event in events if isinstance(event, Finished)}
    assert sorted(ended) == [0, 1, 2, 3]
    assert [ended[place].usage.cached_tokens for place in range(4)] == [0, 96, 96, 96]
    await coordinator.close()


async def test_the_first_answer_of_each_prompt_begins_alone_and_the_others_after_its_first_token() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([gate, *says("a", "b")])
    async with aclosing(answer_all(model, requests(6), 3)) as events:
        coming = asyncio.ensure_future(anext(events))
        while len(model.requests) < 2:
            await asyncio.sleep(0)
        assert [request.sampling.seed for request in model.requests] == [0, 3]
        gate.set()
        await coming
        places = {place async for place, _ in events}
    assert places == set(range(6))
    assert sorted(request.sampling.seed for request in model.requests) == list(range(6))


@pytest.mark.parametrize("script", [[Text("a", [1]), Failed("stage_lost", "A PC left.")], [Text("a", [1])]])
async def test_one_that_fails_ends_all(script: list[Step]) -> None:
    placed = await collect(ScriptedModel(script), 2, 2)
    failures = [event for _, event in placed if isinstance(event, Failed)]
    assert placed[-1][1] is failures[0]
    assert len(failures) == 1


async def test_what_a_model_raises_is_raised() -> None:
    with pytest.raises(RuntimeError, match="broken"):
        await collect(ScriptedModel([RuntimeError("broken")]), 2, 1)


async def test_closing_it_ends_every_answer() -> None:
    closed = 0

    class Counting(ScriptedModel):
        async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
            nonlocal closed
            try:
                async for event in super().generate(request):
                    yield event
            finally:
                closed += 1

    script: list[Step] = [Text("a", [1]), asyncio.Event(), finished()]
    seen: list[Event] = []
    async with aclosing(answer_all(Counting(script), requests(3), 3)) as events:
        async for _, event in events:
            seen.append(event)
            if len(seen) == 3:
                break
    assert closed == 3
