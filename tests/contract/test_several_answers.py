"""`n`: several answers to one prompt, as the openai SDK asks for and reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from console.pipeline.types import Event, Failed, GenerationRequest, Text
from console.registry.records import Principal, Quota
from tests.support.api import Counted, Keys, ScriptedModel, chat_app, finished, says, serving
from tests.support.patience import PATIENCE_S

HELLO: list[dict[str, str]] = [{"role": "user", "content": "Hello"}]


class Numbered(ScriptedModel):
    """Says which request it answers before what the script says."""

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        yield Text(f"{len(self.requests)}:", [1])
        async for event in super().generate(request):
            yield event


@pytest.fixture
def model() -> Numbered:
    return Numbered(says("Good", " day"))


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
async def client(model: Numbered, counted: Counted) -> AsyncIterator[openai.AsyncOpenAI]:
    keys = Keys(key=Principal("k", "", frozenset({"chat"}), Quota(streams=3)))
    async with (
        serving(chat_app(model, keys=keys, counted=counted)) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0, timeout=PATIENCE_S) as client,
    ):
        yield client


async def ask(client: openai.AsyncOpenAI, **parameters: Any) -> Any:
    return await client.chat.completions.create(**{"model": "small", "messages": HELLO, "n": 3, **parameters})


async def test_a_whole_answer_has_n_choices_and_one_prompt_in_its_usage(
    client: openai.AsyncOpenAI, counted: Counted
) -> None:
    answer = await ask(client)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert sorted(choice.message.content for choice in answer.choices) == [f"{n}:Good day" for n in range(3)]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 6)
    assert counted.used == {"k": 5 + 6}


async def test_a_stream_has_all_choices_each_with_its_role_first_and_its_reason_last(
    client: openai.AsyncOpenAI,
) -> None:
    texts: dict[int, list[str | None]] = {0: [], 1: [], 2: []}
    roles, reasons, usages = [], [], []
    async for chunk in await ask(client, stream=True, stream_options={"include_usage": True}):
        usages += [chunk.usage] if chunk.usage else []
        for choice in chunk.choices:
            if not texts[choice.index] and choice.delta.role:
                roles.append(choice.index)
            texts[choice.index].append(choice.delta.content)
            reasons += [choice.index] if choice.finish_reason == "stop" else []
    assert sorted(roles) == sorted(reasons) == [0, 1, 2]
    assert all(text[0] == "" and text[-1] is None for text in texts.values())
    assert {"".join(text or "" for text in texts[index]) for index in range(3)} == {f"{n}:Good day" for n in range(3)}
    assert [(usage.prompt_tokens, usage.completion_tokens) for usage in usages] == [(5, 6)]


async def test_answers_of_one_seed_differ_and_the_first_is_what_it_is_alone(
    client: openai.AsyncOpenAI, model: Numbered
) -> None:
    await ask(client, seed=7)
    await ask(client, seed=7, n=1)
    assert sorted(request.sampling.seed for request in model.requests) == [7, 7, 8, 9]
    assert {request.sampling.seed for request in model.requests[:1]} == {7}


async def test_more_answers_than_a_key_may_have_at_once_are_refused_by_name(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(client, n=4)
    assert (caught.value.param, caught.value.code) == ("n", "too_many_streams")


async def test_each_of_n_answers_takes_one_of_a_key_s_places(client: openai.AsyncOpenAI, model: Numbered) -> None:
    gate = asyncio.Event()
    model.script = [gate, finished()]
    running = asyncio.create_task(ask(client, n=2))
    while not model.requests:
        await asyncio.sleep(0)
    with pytest.raises(openai.RateLimitError):
        await ask(client, n=2)
    gate.set()
    await running
    assert len((await ask(client, n=3)).choices) == 3


async def test_one_answer_that_fails_is_an_error_for_all(client: openai.AsyncOpenAI, model: Numbered) -> None:
    model.script = [Failed("stage_lost", "A PC left; send the request again.")]
    with pytest.raises(openai.InternalServerError):
        await ask(client)
    with pytest.raises(openai.APIError) as caught:
        async for _ in await ask(client, stream=True):
            pass
    assert caught.value.code == "stage_lost"
