"""Penalties, bias and log-probabilities as the openai SDK sends and reads them."""

from __future__ import annotations

import math
from typing import Any

import openai
import pytest

from agent.stage.types import Sampling
from console.pipeline.errors import UnknownToken
from console.pipeline.types import ScoredToken, Text, TokenLogprobs
from tests.support.api import ScriptedModel, finished

HELLO: list[dict[str, str]] = [{"role": "user", "content": "Hello"}]


def scored(data: bytes, logprob: float = -0.5, *, top: int = 0) -> TokenLogprobs:
    others = [ScoredToken(place, bytes([65 + place]), -1.0 - place) for place in range(top)]
    return TokenLogprobs(ScoredToken(9, data, logprob), others)


@pytest.fixture
def model() -> ScriptedModel:
    emoji = [scored(bytes([byte]), top=2) for byte in "😀".encode()]
    return ScriptedModel(
        [
            Text("Hi", [1], [scored(b"Hi", -0.25, top=2)]),
            Text("😀", [2, 3, 4, 5], emoji),
            Text("", [6], [scored(b"", -math.inf)]),
            finished(completion=6),
        ]
    )


async def ask(client: openai.AsyncOpenAI, **parameters: Any) -> Any:
    return await client.chat.completions.create(**{"model": "small", "messages": HELLO, **parameters})


def check(content: list[Any]) -> None:
    assert [entry.token for entry in content] == ["Hi", *["\ufffd"] * 4, ""]
    assert bytes(byte for entry in content for byte in entry.bytes).decode() == "Hi😀"
    assert [entry.logprob for entry in content] == [-0.25, -0.5, -0.5, -0.5, -0.5, -9999.0]
    assert [(top.token, top.logprob, top.bytes) for top in content[0].top_logprobs] == [
        ("A", -1.0, [65]), ("B", -2.0, [66]),
    ]  # fmt: skip


async def test_a_whole_answer_has_the_logprobs_of_every_token(client: openai.AsyncOpenAI) -> None:
    answer = await ask(client, logprobs=True, top_logprobs=2)
    assert answer.choices[0].message.content == "Hi😀"
    check(answer.choices[0].logprobs.content)
    assert answer.choices[0].logprobs.refusal is None


async def test_a_stream_has_them_beside_the_text_they_belong_to(client: openai.AsyncOpenAI) -> None:
    stream = await ask(client, logprobs=True, top_logprobs=2, stream=True)
    chunks = [chunk async for chunk in stream]
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", "Hi", "😀", "", None]
    assert chunks[0].choices[0].logprobs is chunks[-1].choices[0].logprobs is None
    check([entry for chunk in chunks[1:-1] for entry in chunk.choices[0].logprobs.content])


async def test_logprobs_without_a_number_are_those_of_the_sampled_tokens(
    client: openai.AsyncOpenAI, model: ScriptedModel
) -> None:
    await ask(client, logprobs=True)
    await ask(client)
    assert [request.sampling.logprobs for request in model.requests] == [0, -1]


async def test_an_answer_nobody_asked_logprobs_of_has_none(client: openai.AsyncOpenAI, model: ScriptedModel) -> None:
    model.script = [Text("Hi", [1]), finished()]
    assert (await ask(client)).choices[0].logprobs is None
    model.script = [finished(completion=1)]
    assert (await ask(client, logprobs=True)).choices[0].logprobs.content == []


@pytest.mark.parametrize("temperature", [0, 0.5])
async def test_penalties_and_bias_reach_the_generator_greedy_or_not(
    client: openai.AsyncOpenAI, model: ScriptedModel, temperature: float
) -> None:
    await ask(
        client, temperature=temperature, seed=3, presence_penalty=-2, frequency_penalty=1.5, top_logprobs=20,
        logprobs=True, logit_bias={"5": -100, "7": 2.5, "8": 0}, extra_body={"repetition_penalty": 1.2},
    )  # fmt: skip
    assert model.requests[0].sampling == Sampling(
        temperature, seed=3 if temperature else 0, repetition_penalty=1.2, presence_penalty=-2.0,
        frequency_penalty=1.5, logit_bias={5: -100.0, 7: 2.5}, logprobs=20,
    )  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
async def test_a_bias_on_an_id_the_model_lacks_is_a_400_naming_logit_bias(
    client: openai.AsyncOpenAI, model: ScriptedModel, stream: bool
) -> None:
    model.script = [UnknownToken(100)]
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(client, logit_bias={"100": 1}, stream=stream)
    assert caught.value.param == "logit_bias"
    assert "0..99" in caught.value.message
