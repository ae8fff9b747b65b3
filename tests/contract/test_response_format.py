"""`response_format` with the real SDK: the schema becomes the grammar that the last stage keeps the answer to."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from console.pipeline.errors import GrammarRefused
from console.pipeline.types import Failed, Text
from tests.support.api import ScriptedModel, says

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(says('{"city":', ' "Rome"}'))


async def ask(client: openai.AsyncOpenAI, **fields: Any) -> Any:
    return await client.chat.completions.create(model="small", messages=[{"role": "user", "content": "Hi"}], **fields)


def grammar_of(model: ScriptedModel) -> Any:
    rules, _, schema = model.requests[-1].sampling.grammar.partition("%json ")
    assert rules == "start: answer\nanswer: value\nvalue: "
    return json.loads(schema)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_schema_travels_with_the_request(
    client: openai.AsyncOpenAI, model: ScriptedModel, stream: bool
) -> None:
    answer = await ask(client, response_format=FORMAT, stream=stream)
    if stream:
        chunks = [chunk async for chunk in answer]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == '{"city": "Rome"}'
    else:
        assert answer.choices[0].message.content == '{"city": "Rome"}'
    asked = grammar_of(model)
    assert asked.pop("x-guidance").keys() == {"whitespace_pattern"}
    assert asked == SCHEMA


@pytest.mark.parametrize("begun", [False, True])
async def test_a_schema_that_turns_out_to_be_too_much_is_the_client_s_and_not_tried_again(
    client: openai.AsyncOpenAI, model: ScriptedModel, begun: bool
) -> None:
    said = "The answer cannot be kept to its grammar (too many items); ask for something simpler."
    refused = Failed("grammar_refused", said, retryable=False, param="response_format")
    model.script = [*([Text("{", [1])] if begun else []), refused]
    if begun:
        with pytest.raises(openai.APIError, match="too many items") as broken:
            async for _ in await ask(client, response_format=FORMAT, stream=True):
                pass
        assert (broken.value.code, broken.value.param) == ("grammar_refused", "response_format")
    for stream in (False, True) if not begun else (False,):
        with pytest.raises(openai.BadRequestError, match="too many items") as caught:
            await ask(client, response_format=FORMAT, stream=stream)
        error = caught.value
        assert (error.code, error.param, error.type) == ("grammar_refused", "response_format", "invalid_request_error")
        assert error.response.headers["x-should-retry"] == "false"


async def test_any_object_and_any_text_can_be_asked_for(client: openai.AsyncOpenAI, model: ScriptedModel) -> None:
    await ask(client, response_format={"type": "json_object"}, temperature=0)
    assert grammar_of(model)["type"] == "object"
    await ask(client, response_format={"type": "text"})
    assert not model.requests[-1].sampling.grammar


async def test_a_schema_that_cannot_be_kept_to_is_refused_before_anything_runs(
    client: openai.AsyncOpenAI, model: ScriptedModel
) -> None:
    bad = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#/nowhere"}}}
    with pytest.raises(openai.BadRequestError, match="nowhere") as caught:
        await ask(client, response_format=bad)
    assert caught.value.param == "response_format"
    assert not model.requests


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_whose_tail_knows_no_grammars_is_a_400(
    client: openai.AsyncOpenAI, model: ScriptedModel, stream: bool
) -> None:
    model.script = [GrammarRefused("response_format")]
    with pytest.raises(openai.BadRequestError, match="update its agent") as caught:
        await ask(client, response_format=FORMAT, stream=stream)
    assert caught.value.code == "unsupported_parameter"
    assert caught.value.param == "response_format"
