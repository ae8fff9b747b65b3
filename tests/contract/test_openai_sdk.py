"""The real openai SDK against our server over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from console.pipeline.types import Failed, Text
from tests.support.api import CHAT_KEY, ScriptedModel, chat_app, finished, says, serving
from tests.support.patience import PATIENCE_S

HELLO: list[dict[str, str]] = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(says("Good", " day"))


@pytest.fixture
async def client(model: ScriptedModel) -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        serving(chat_app(model, unavailable=["loading"])) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=CHAT_KEY, max_retries=0, timeout=PATIENCE_S) as client,
    ):
        yield client


async def ask(client: openai.AsyncOpenAI, **parameters: Any) -> Any:
    return await client.chat.completions.create(**{"model": "small", "messages": HELLO, **parameters})


async def test_a_whole_answer_has_text_reason_usage_and_timings(client: openai.AsyncOpenAI) -> None:
    answer = await ask(client)
    assert answer.choices[0].message.content == "Good day"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens == 7
    timings = answer.model_extra["timings"]
    assert (timings["queue_ms"], timings["first_token_ms"], timings["total_ms"]) == (0.5, 10.0, 20.0)
    assert answer._request_id


async def test_a_stream_joins_to_the_same_text(client: openai.AsyncOpenAI) -> None:
    chunks = [chunk async for chunk in await ask(client, stream=True)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Good day"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, "stop"]
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


async def test_usage_comes_in_one_more_chunk_when_asked(client: openai.AsyncOpenAI) -> None:
    stream = await ask(client, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    assert [chunk.usage is None for chunk in chunks] == [True] * 4 + [False]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 2
    assert chunks[-1].model_extra["timings"]["total_ms"] == 20.0


async def test_parameters_reach_the_generator(client: openai.AsyncOpenAI, model: ScriptedModel) -> None:
    await ask(
        client, temperature=0.5, top_p=0.9, seed=-1, stop=["a", "b"], max_tokens=3, max_completion_tokens=4,
        extra_body={"top_k": 40, "min_p": 0.1, "ignore_eos": True},
    )  # fmt: skip
    request = model.requests[0]
    assert (request.max_tokens, request.stop, request.ignore_eos) == (4, ["a", "b"], True)
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.5, 0.9, 40, 0.1)
    assert sampling.seed == 2**64 - 1
    assert request.key_id == CHAT_KEY[:4]


async def test_the_defaults_are_temperature_one_a_random_seed_and_all_the_room_there_is(
    client: openai.AsyncOpenAI, model: ScriptedModel
) -> None:
    await ask(client)
    await ask(client)
    first, second = model.requests
    assert first.sampling.temperature == 1.0
    assert first.sampling.seed != second.sampling.seed
    assert first.max_tokens == model.context_tokens - len("Hello")


async def test_developer_is_system_and_text_parts_are_joined(client: openai.AsyncOpenAI, model: ScriptedModel) -> None:
    parts = [{"type": "text", "text": "He"}, {"type": "text", "text": "llo"}]
    messages = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": parts}]
    await ask(client, messages=messages)
    assert model.messages == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]


async def test_models_are_listed_and_found_by_id(client: openai.AsyncOpenAI) -> None:
    listed = [item async for item in client.models.list()]
    assert [(item.id, item.object, item.created, item.owned_by) for item in listed] == [
        ("small", "model", 1_700_000_000, "fallow")
    ]
    assert (await client.models.retrieve("small")).id == "small"
    with pytest.raises(openai.NotFoundError) as caught:
        await client.models.retrieve("org/other")
    assert caught.value.code == "model_not_found"


async def test_an_unknown_model_is_404_with_our_code(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await ask(client, model="other")
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"


async def test_a_model_being_loaded_is_503_with_retry_after(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        await ask(client, model="loading")
    assert caught.value.status_code == 503
    assert caught.value.response.headers["retry-after"] == "7"


async def test_a_wrong_key_is_an_authentication_error(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.AuthenticationError) as caught:
        await ask(client.with_options(api_key="wrong"))
    assert caught.value.code == "invalid_api_key"


async def test_a_prompt_longer_than_the_context_is_a_clear_400(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(client, messages=[{"role": "user", "content": "x" * 100}])
    assert caught.value.code == "context_length_exceeded"
    assert "100 tokens" in caught.value.message


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("code", "kind"), [("overloaded", openai.InternalServerError), ("too_many_waiting", openai.RateLimitError)]
)
async def test_a_full_model_is_503_and_a_key_that_asks_too_much_429_before_the_first_byte_with_retry_after(
    client: openai.AsyncOpenAI, model: ScriptedModel, stream: bool, code: str, kind: type[openai.APIStatusError]
) -> None:
    model.script = [Failed(code, "Too many ask at once; try again soon.")]
    with pytest.raises(kind) as caught:
        await ask(client, stream=stream)
    assert caught.value.code == code
    assert caught.value.status_code == (503 if code == "overloaded" else 429)
    assert int(caught.value.response.headers["retry-after"]) > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_no_retry_can_help_says_so(
    client: openai.AsyncOpenAI, model: ScriptedModel, stream: bool
) -> None:
    model.script = [Failed("stage_failed", "The engine failed; see the console.", retryable=False)]
    with pytest.raises(openai.InternalServerError) as caught:
        await ask(client.with_options(max_retries=2), stream=stream)
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert len(model.requests) == 1


async def test_a_stage_lost_mid_stream_raises_and_is_never_a_short_answer(
    client: openai.AsyncOpenAI, model: ScriptedModel
) -> None:
    model.script = [Text("Good", [1]), Failed("stage_lost", "A PC left; send the request again.")]
    stream = await ask(client, stream=True)
    chunks = aiter(stream)
    texts = [(await anext(chunks)).choices[0].delta.content for _ in range(2)]
    with pytest.raises(openai.APIError) as caught:
        await anext(chunks)
    assert texts == ["", "Good"]
    assert caught.value.code == "stage_lost"


async def test_a_stage_lost_in_a_whole_answer_is_503(client: openai.AsyncOpenAI, model: ScriptedModel) -> None:
    model.script = [Text("Good", [1]), Failed("stage_lost", "A PC left; send the request again.")]
    with pytest.raises(openai.InternalServerError) as caught:
        await ask(client)
    assert caught.value.code == "stage_lost"


async def test_closing_a_stream_cancels_the_generation(client: openai.AsyncOpenAI, model: ScriptedModel) -> None:
    model.script = [Text("Good", [1]), asyncio.Event(), finished()]
    stream = await ask(client, stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content == "Good":
            break
    assert not model.closed.is_set()
    await stream.close()
    await asyncio.wait_for(model.closed.wait(), PATIENCE_S)


async def test_cancelling_a_whole_answer_cancels_the_generation(
    client: openai.AsyncOpenAI, model: ScriptedModel
) -> None:
    model.script = [Text("Good", [1]), asyncio.Event(), finished()]
    asking = asyncio.create_task(ask(client))
    while not model.requests:
        await asyncio.sleep(0.001)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await asyncio.wait_for(model.closed.wait(), PATIENCE_S)
