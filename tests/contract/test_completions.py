"""The legacy /v1/completions: what the openai SDK, and editors that still use it, send and read."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest

from console.pipeline.errors import PromptError
from console.pipeline.types import Failed, ScoredToken, Text, TokenLogprobs
from tests.support.api import CHAT_KEY, ScriptedModel, finished, says
from tests.support.patience import PATIENCE_S

PATH = "/v1/completions"


def scored(data: bytes) -> TokenLogprobs:
    return TokenLogprobs(ScoredToken(9, data, -0.5), [ScoredToken(1, b"A", -0.25), ScoredToken(2, b"B", -1.5)])


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(says(" upon", " a time"))


async def ask(client: openai.AsyncOpenAI, **parameters: Any) -> Any:
    return await client.completions.create(**{"model": "small", "prompt": "Once", **parameters})


async def refusal(url: str, **fields: Any) -> dict[str, Any]:
    body = {"model": "small", "prompt": "Once", **fields}
    headers = {"Authorization": f"Bearer {CHAT_KEY}"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as http:
        answer = await http.post(PATH, json=body)
    assert answer.status_code == 400, answer.text
    return dict(answer.json()["error"])


async def test_text_goes_on_without_a_template_and_at_most_16_tokens_unless_asked(
    client: openai.AsyncOpenAI, model: ScriptedModel
) -> None:
    answer = await ask(client)
    assert (answer.object, answer.id[:5]) == ("text_completion", "cmpl-")
    assert [(choice.index, choice.text, choice.finish_reason) for choice in answer.choices] == [
        (0, " upon a time", "stop")
    ]
    assert answer.usage.total_tokens == 7
    assert model.requests[0].prompt_ids == [ord(letter) for letter in "Once"]
    assert model.requests[0].max_tokens == 16
    assert model.messages == []


async def test_a_stream_has_the_same_text_then_the_reason_usage_and_done(url: str) -> None:
    headers = {"Authorization": f"Bearer {CHAT_KEY}"}
    body = {"model": "small", "prompt": "Once", "stream": True, "stream_options": {"include_usage": True}}
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as http:
        events = (await http.post(PATH, json=body)).text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    assert [chunk["choices"] for chunk in chunks] == [
        [{"index": 0, "text": " upon", "logprobs": None, "finish_reason": None}],
        [{"index": 0, "text": " a time", "logprobs": None, "finish_reason": None}],
        [{"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}],
        [],
    ]
    assert [chunk["usage"] and chunk["usage"]["completion_tokens"] for chunk in chunks] == [None, None, None, 2]


async def test_several_prompts_have_their_answers_in_order(client: openai.AsyncOpenAI, model: ScriptedModel) -> None:
    answer = await ask(client, prompt=["One", "Two"], n=2, seed=5, max_tokens=9, best_of=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    asked = sorted((bytes(request.prompt_ids), request.sampling.seed, request.max_tokens) for request in model.requests)
    assert asked == [(b"One", 5, 9), (b"One", 6, 9), (b"Two", 5, 9), (b"Two", 6, 9)]
    assert answer.usage.prompt_tokens == 2 * 5
    texts = {0: "", 1: ""}
    async for chunk in await ask(client, prompt=["One", "Two"], stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == {0: " upon a time", 1: " upon a time"}


@pytest.mark.parametrize(("prompt", "ids"), [([1, 2, 3], [[1, 2, 3]]), ([[1], [2, 3]], [[1], [2, 3]])])
async def test_token_ids_are_taken_as_they_are(
    client: openai.AsyncOpenAI, model: ScriptedModel, prompt: Any, ids: list[list[int]]
) -> None:
    await ask(client, prompt=prompt)
    assert [request.prompt_ids for request in model.requests] == ids


async def test_logprobs_have_the_old_form_with_offsets_into_the_text(
    client: openai.AsyncOpenAI, model: ScriptedModel
) -> None:
    emoji = [scored(bytes([byte])) for byte in "😀".encode()]
    model.script = [Text("Hi😀", [1, 2, 3, 4, 5], [scored(b"Hi"), *emoji]), Text("!", [6], [scored(b"!")]), finished()]
    whole = (await ask(client, logprobs=2)).choices[0].logprobs
    assert whole.tokens == ["Hi", *["\ufffd"] * 4, "!"]
    assert whole.text_offset == [0, 2, 2, 2, 2, 3]
    assert whole.token_logprobs == [-0.5] * 6
    assert whole.top_logprobs[0] == {"A": -0.25, "B": -1.5, "Hi": -0.5}
    pieces = [chunk.choices[0].logprobs async for chunk in await ask(client, logprobs=2, stream=True)]
    assert [offset for piece in pieces[:-1] for offset in piece.text_offset] == whole.text_offset
    assert [request.sampling.logprobs for request in model.requests] == [2, 2]
    assert (await ask(client, logprobs=0)).choices[0].logprobs.top_logprobs is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"echo": True}, "echo"),
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"logprobs": 6}, "logprobs"),
        ({"prompt": []}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": [[1], [0x110000]]}, "prompt"),
        ({"prompt": ["x"] * 33}, "prompt"),
        ({"prompt": ["x"] * 17, "n": 2}, "prompt"),
        ({"prompt": [True]}, "prompt[0]"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": "x" * 100}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
async def test_what_is_wrong_is_a_400_naming_the_parameter(url: str, fields: dict[str, Any], param: str) -> None:
    assert (await refusal(url, **fields))["param"] == param


async def test_a_prompt_that_the_model_refuses_is_named_too(url: str, model: ScriptedModel) -> None:
    model.script = [PromptError("The prompt holds a token id outside of 0..9.")]
    assert (await refusal(url, prompt=[11]))["param"] == "prompt"


async def test_a_stage_lost_mid_stream_raises(client: openai.AsyncOpenAI, model: ScriptedModel) -> None:
    model.script = [Text(" upon", [1]), Failed("stage_lost", "A PC left; send the request again.")]
    with pytest.raises(openai.APIError) as caught:
        async for _ in await ask(client, stream=True):
            pass
    assert caught.value.code == "stage_lost"


async def test_embeddings_are_a_clear_404(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.embeddings.create(model="small", input="Hello")
    assert caught.value.code == "no_embedding_model"
    assert "GET /v1/models" in caught.value.message
