"""Every endpoint that answers with text, before the real model on a fleet of processes: they agree with one another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from console.api.admin import types as wire
from installer.loopback import AgentSettings, LoopbackFleet
from tests.support.patience import PATIENCE_S

QUESTION = "What is the capital of France? Answer in one short sentence, please."
ASKED: Any = [{"role": "user", "content": QUESTION}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "country": {"enum": ["France", "Spain"]}},
    "required": ["city", "country"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "capital", "schema": SCHEMA}}
TOOL: Any = {"type": "function", "function": {"name": "find_city", "description": "Finds one.", "parameters": SCHEMA}}
TOKENS = 24

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, smollm2_library: Path) -> Iterator[LoopbackFleet]:
    """Two agents that serve the model in `exact`."""
    folder = tmp_path_factory.mktemp("fleet")
    with LoopbackFleet(folder, [AgentSettings("first", 1), AgentSettings("second", 1)]) as running:
        model = running.admin.add_library(smollm2_library).model_id
        running.deploy(wire.DeployRequest(model=model, stages=2, numerics="exact", context=512))
        yield running


@pytest.fixture(scope="module")
def client(fleet: LoopbackFleet) -> Iterator[openai.OpenAI]:
    http = httpx2.Client(trust_env=False)
    with openai.OpenAI(
        base_url=f"{fleet.api_url}/v1", api_key=fleet.chat_key, max_retries=0, timeout=4 * PATIENCE_S, http_client=http
    ) as client:
        yield client


@pytest.fixture(scope="module")
def asked(fleet: LoopbackFleet) -> dict[str, Any]:
    return {"model": fleet.model, "temperature": 0}


@pytest.fixture(scope="module")
def alone(client: openai.OpenAI, asked: dict[str, Any]) -> Any:
    """The plain answer to the question."""
    return client.chat.completions.create(messages=ASKED, max_tokens=TOKENS, **asked)


def post(fleet: LoopbackFleet, path: str, **fields: Any) -> Any:
    headers = {"Authorization": f"Bearer {fleet.chat_key}"}
    body = {"model": fleet.model} | fields
    return httpx2.post(f"{fleet.api_url}{path}", json=body, headers=headers, timeout=PATIENCE_S, trust_env=False).json()


def text_of(stream: Any) -> str:
    return "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)


def test_the_model_knows_the_answer_streamed_and_whole(
    client: openai.OpenAI, asked: dict[str, Any], alone: Any
) -> None:
    text = alone.choices[0].message.content
    assert "Paris" in text
    create: Any = client.chat.completions.create
    assert text_of(create(messages=ASKED, max_tokens=TOKENS, stream=True, **asked)) == text


def test_several_answers_are_the_answer_several_times(client: openai.OpenAI, asked: dict[str, Any], alone: Any) -> None:
    several: Any = client.chat.completions.create(messages=ASKED, max_tokens=TOKENS, n=3, **asked)
    assert [choice.message.content for choice in several.choices] == [alone.choices[0].message.content] * 3
    assert several.usage.prompt_tokens == alone.usage.prompt_tokens
    assert several.usage.completion_tokens == 3 * alone.usage.completion_tokens


def test_a_response_is_the_answer(client: openai.OpenAI, asked: dict[str, Any], alone: Any) -> None:
    text = alone.choices[0].message.content
    assert client.responses.create(input=QUESTION, max_output_tokens=TOKENS, **asked).output_text == text
    events: Any = client.responses.create(input=QUESTION, max_output_tokens=TOKENS, stream=True, **asked)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == text


def test_tokens_go_back_and_forth_and_are_completed_like_the_chat(
    fleet: LoopbackFleet, client: openai.OpenAI, asked: dict[str, Any], alone: Any
) -> None:
    tokens = post(fleet, "/tokenize", messages=ASKED)
    assert tokens["count"] == len(tokens["tokens"]) == alone.usage.prompt_tokens
    completed: Any = client.completions.create(prompt=tokens["tokens"], max_tokens=TOKENS, **asked)
    text = completed.choices[0].text
    assert text == alone.choices[0].message.content
    assert post(fleet, "/detokenize", tokens=post(fleet, "/tokenize", prompt=text)["tokens"])["prompt"] == text


def test_log_probabilities_spell_the_answer_and_none_is_likelier(
    client: openai.OpenAI, asked: dict[str, Any], alone: Any
) -> None:
    answer: Any = client.chat.completions.create(
        messages=ASKED, max_tokens=TOKENS, logprobs=True, top_logprobs=3, **asked
    )
    choice = answer.choices[0]
    assert choice.message.content == alone.choices[0].message.content
    assert b"".join(bytes(entry.bytes) for entry in choice.logprobs.content).decode() == choice.message.content
    for entry in choice.logprobs.content:
        assert len(entry.top_logprobs) == 3
        assert entry.logprob == max(other.logprob for other in entry.top_logprobs)
    completed: Any = client.completions.create(prompt="Paris is the", max_tokens=4, logprobs=2, **asked)
    found = completed.choices[0].logprobs
    assert "".join(found.tokens) == completed.choices[0].text
    assert all(
        max(top.values()) == chosen for top, chosen in zip(found.top_logprobs, found.token_logprobs, strict=True)
    )


def test_a_schema_is_kept_to_streamed_and_whole(client: openai.OpenAI, asked: dict[str, Any]) -> None:
    create: Any = client.chat.completions.create
    whole = create(messages=ASKED, max_tokens=100, response_format=FORMAT, **asked).choices[0]
    assert whole.finish_reason == "stop"
    value = json.loads(whole.message.content)
    assert value.keys() == {"city", "country"}
    assert value["country"] in {"France", "Spain"}
    streamed = text_of(create(messages=ASKED, max_tokens=100, response_format=FORMAT, stream=True, **asked))
    assert streamed == whole.message.content


def test_a_tool_is_called_streamed_and_whole_and_its_result_is_taken(
    client: openai.OpenAI, asked: dict[str, Any]
) -> None:
    create: Any = client.chat.completions.create
    fields = asked | {"messages": ASKED, "max_tokens": 100, "tools": [TOOL], "tool_choice": "required"}
    fields["parallel_tool_calls"] = False
    whole = create(**fields).choices[0]
    assert whole.finish_reason == "tool_calls"
    (call,) = whole.message.tool_calls
    assert call.function.name == "find_city"
    assert json.loads(call.function.arguments).keys() == {"city", "country"}
    pieces = [
        piece for chunk in create(stream=True, **fields) for choice in chunk.choices
        for piece in choice.delta.tool_calls or []
    ]  # fmt: skip
    assert "".join(piece.function.arguments or "" for piece in pieces) == call.function.arguments
    said = whole.message.model_dump(exclude_none=True)
    result = {"role": "tool", "tool_call_id": call.id, "content": "Paris, France"}
    after = create(messages=[*ASKED, said, result], max_tokens=TOKENS, tools=[TOOL], tool_choice="none", **asked)
    assert after.choices[0].finish_reason in {"stop", "length"}
    assert after.choices[0].message.content


def test_an_answer_is_taken_back_by_its_id(client: openai.OpenAI, asked: dict[str, Any]) -> None:
    create: Any = client.chat.completions.create
    stream = create(messages=ASKED, stream=True, max_tokens=400, extra_body={"ignore_eos": True}, **asked)
    client.post(f"/requests/{next(stream).id}/cancel", cast_to=object)
    with pytest.raises(openai.APIError, match="cancelled by its id"):
        list(stream)


def test_embeddings_are_said_not_to_be_there(client: openai.OpenAI, asked: dict[str, Any]) -> None:
    with pytest.raises(openai.NotFoundError, match="No model for embeddings"):
        client.embeddings.create(input="Paris", model=asked["model"])
