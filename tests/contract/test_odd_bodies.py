"""Bodies with something odd in any place: never a 500, and what is accepted and answered is as the document says.

Every place of a good body gets every odd value, one at a time; /openapi.json is asked about each.
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest
from jsonschema import Draft202012Validator

from console.pipeline.types import ScoredToken, Text, TokenLogprobs
from tests.support.api import CHAT_KEY, ScriptedModel, chat_app, finished, serving
from tests.support.patience import PATIENCE_S

SCORED = TokenLogprobs(ScoredToken(9, b"Hi", -0.5), [ScoredToken(1, b"A", -0.25)])
MODEL = "small"
FUNCTION = {"name": "f", "description": "It does.", "strict": True, "parameters": {"type": "object", "properties": {}}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SCHEMA = {"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": ["a"], "additionalProperties": False}
SAMPLED: dict[str, Any] = {
    "model": MODEL, "n": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 3, "stop": ["x", "y"],
    "presence_penalty": 0.1, "frequency_penalty": 0.1, "repetition_penalty": 1.1, "logit_bias": {"5": 1},
    "ignore_eos": False, "max_tokens": 5,
}  # fmt: skip
GOOD: list[tuple[str, dict[str, Any]]] = [
    (
        "/v1/chat/completions",
        SAMPLED | {
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "content": "x", "tool_call_id": "1"},
            ],
            "tools": [{"type": "function", "function": FUNCTION}], "parallel_tool_calls": True,
            "tool_choice": {"type": "function", "function": {"name": "f"}}, "max_completion_tokens": 5,
            "logprobs": True, "top_logprobs": 1,
        },
    ),
    (
        "/v1/chat/completions",
        {
            "model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": True, "stop": "x", "user": "me",
            "stream_options": {"include_usage": True, "include_details": True}, "metadata": {"a": "b"},
            "response_format": {"type": "json_schema", "json_schema": {"name": "it", "strict": True, "schema": SCHEMA}},
        },
    ),
    ("/v1/completions", SAMPLED | {"prompt": ["Once", "Twice"], "logprobs": 1, "best_of": 2, "echo": False}),
    ("/v1/completions", {"model": MODEL, "prompt": [[72, 105]], "stream": True}),
    (
        "/v1/responses",
        {
            "model": MODEL, "instructions": "Be kind.", "max_output_tokens": 5, "temperature": 0.5, "top_p": 0.9,
            "metadata": {"a": "b"}, "store": False, "tools": [], "include": [], "text": {"format": {"type": "text"}},
            "input": [
                {"role": "user", "content": "Hi"},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                {
                    "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
                    "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
                },
            ],
        },
    ),
    ("/v1/responses", {"model": MODEL, "input": "Hi", "stream": True, "stream_options": {"include_details": True}}),
    ("/tokenize", {"model": MODEL, "prompt": "Hi", "return_token_strs": True}),
    ("/tokenize", {"model": MODEL, "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}),
    ("/detokenize", {"model": MODEL, "tokens": [72, 105]}),
]  # fmt: skip
ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, 1 << 70, -(1 << 70), 1e300, "", "x", "\0\u2028\U0001f600", [], {}, [[]], [{}],
    [None, 1, "x"], {"type": {}}, {"type": []}, {"": {"": [0]}}, [{"type": ["text"]}], ["x"] * 40,
]  # fmt: skip
MISSING = object()


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the way to everything in a body."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(inner, (*path, key))


def with_odd(body: dict[str, Any], path: tuple[str | int, ...], odd: Any) -> dict[str, Any]:
    changed = copy.deepcopy(body)
    at: Any = changed
    for key in path[:-1]:
        at = at[key]
    if odd is MISSING:
        del at[path[-1]]
    else:
        at[path[-1]] = odd
    return changed


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"Authorization": f"Bearer {CHAT_KEY}", "Content-Type": "application/json"}
    model = ScriptedModel([Text("Hi", [1], [SCORED]), finished()], model_id=MODEL, context_tokens=4000)
    async with (
        serving(chat_app(model)) as url,
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as http,
    ):
        yield http


class Document:
    """What /openapi.json says of requests and answers."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def _validator(self, schema: dict[str, Any]) -> Draft202012Validator:
        return Draft202012Validator(schema | {"components": self._document["components"]})

    def request(self, path: str) -> Draft202012Validator:
        operation = self._document["paths"][path]["post"]
        return self._validator(operation["requestBody"]["content"]["application/json"]["schema"])

    def answer(self, path: str, status: str) -> Draft202012Validator:
        operation = self._document["paths"][path]["post"]
        return self._validator(operation["responses"][status]["content"]["application/json"]["schema"])


@pytest.mark.expected_logs("console.api.openai.parameters", "Ignored request fields")
@pytest.mark.parametrize(("path", "good"), GOOD, ids=[f"{path} {number}" for number, (path, _) in enumerate(GOOD)])
async def test_whatever_stands_in_whatever_place_is_answered_as_the_document_says(
    http: httpx2.AsyncClient, path: str, good: dict[str, Any]
) -> None:
    document = Document((await http.get("/openapi.json")).json())
    valid, answers, errors = document.request(path), document.answer(path, "200"), document.answer(path, "default")
    assert (await http.post(path, json=good)).status_code == 200
    assert valid.is_valid(good)
    for place in places(good):
        for odd in (*ODD, MISSING):
            body = with_odd(good, place, odd)
            answer = await http.post(path, content=json.dumps(body))
            said = f"{place}: {odd!r} got {answer.status_code}: {answer.text[:300]}"
            assert answer.status_code < 500, said
            if answer.status_code != 200:
                errors.validate(answer.json())
                continue
            assert valid.is_valid(body), said
            if answer.headers["content-type"] == "application/json":
                answers.validate(answer.json())
            else:
                assert ("[DONE]" in answer.text) != ("response.completed" in answer.text), said
