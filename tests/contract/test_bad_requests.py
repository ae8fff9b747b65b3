"""What a client may get wrong: each gives the right status, the OpenAI error object, and the parameter's name."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from console.api.http import MAX_BODY_BYTES
from tests.conftest import ExpectLogs
from tests.support.api import ADMIN_KEY, CHAT_KEY, ScriptedModel, chat_app, says, serving
from tests.support.patience import PATIENCE_S

PATH = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"Authorization": f"Bearer {CHAT_KEY}"}
    async with (
        serving(chat_app(ScriptedModel(says("ok")))) as url,
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as client,
    ):
        yield client


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def made_call(arguments: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [CALL | {"function": {"name": "f", "arguments": arguments}}]}


def tool(name: str, **parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}


def error_of(response: httpx2.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].endswith(".")
    assert response.headers["x-request-id"]
    return dict(error)


async def test_parameters_that_would_change_the_answer_are_refused_by_name(client: httpx2.AsyncClient) -> None:
    asked: dict[str, Any] = {
        "functions": [{}],
        "audio": {"voice": "x"}, "modalities": ["audio"],
        "prediction": {"type": "content"}, "best_of": 3, "guided_json": {}, "min_tokens": 4, "suffix": "x",
        "web_search_options": {},
    }  # fmt: skip
    asked["guided_json"] = {"type": "object"}
    for name, value in asked.items():
        error = error_of(await client.post(PATH, json=BODY | {name: value}), 400)
        assert (error["param"], error["code"]) == (name, "unsupported_parameter")


async def test_values_that_ask_for_nothing_are_fine(client: httpx2.AsyncClient, expected_logs: ExpectLogs) -> None:
    expected_logs("console.api.openai.parameters", "'metadata', 'user'")
    nothing = {
        "n": 1, "tools": [], "tool_choice": "none", "logprobs": False, "top_logprobs": 0, "frequency_penalty": 0,
        "presence_penalty": 0.0, "logit_bias": {}, "repetition_penalty": 1,
        "response_format": {"type": "text"}, "modalities": ["text"],
        "audio": None, "stop": None, "max_tokens": None, "temperature": None, "stream": None, "user": "me",
        "metadata": {"a": "b"}, "seed": None,
    }  # fmt: skip
    assert (await client.post(PATH, json=BODY | nothing)).status_code == 200


async def test_fields_nobody_knows_are_accepted_and_named_in_the_log_once(
    client: httpx2.AsyncClient, expected_logs: ExpectLogs, caplog: pytest.LogCaptureFixture
) -> None:
    expected_logs("console.api.openai.parameters", "named once")
    for field in ("a_new_field", "a_new_field", "x" * 100, "another"):
        assert (await client.post(PATH, json=BODY | {field: 1})).status_code == 200
    assert caplog.text.count("a_new_field") == caplog.text.count("another") == 1
    assert "x" * 64 not in caplog.text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ({"n": 0}, "n"),
        ({"n": 33}, "n"),
        ({"n": 1.5}, "n"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": ""}, "stop"),
        ({"seed": "x"}, "seed"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": "much"}, "frequency_penalty"),
        ({"logit_bias": [5]}, "logit_bias"),
        ({"logit_bias": {"word": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logit_bias": {"5": True}}, "logit_bias"),
        ({"logit_bias": {"5": 1, "05": 2}}, "logit_bias"),
        ({"logit_bias": {str(token): 1 for token in range(1025)}}, "logit_bias"),
        ({"logprobs": 5}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages[0]"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "function", "content": "x", "name": "f"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": [CALL]}]}, "messages[0].tool_calls"),
        ({"messages": [made_call("[1]")]}, "messages[0].tool_calls[0].function.arguments"),
        ({"messages": [made_call("{")]}, "messages[0].tool_calls[0].function.arguments"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "custom", "function": {"name": "f"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [tool("f"), tool("f")]}, "tools"),
        ({"tools": [tool("f", type="string")]}, "tools[0].function.parameters"),
        ({"tools": [tool("f", **{"not": {}})], "tool_choice": "required"}, "tools"),
        ({"tools": [tool("f")] * 129}, "tools"),
        ({"tools": [tool("f")], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tools": [tool("f")], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [tool("f")], "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [tool("f")], "ignore_eos": True}, "ignore_eos"),
        ({"model": 5}, "model"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.name"),
        ({"response_format": schema_format({"type": "banana"})}, "response_format"),
        ({"response_format": schema_format({"enum": ["x" * 40_000]})}, "response_format"),
        ({"response_format": {"type": "json_object"}, "ignore_eos": True}, "ignore_eos"),
    ],
)
async def test_a_wrong_value_is_a_400_naming_the_parameter(
    client: httpx2.AsyncClient, fields: dict[str, Any], param: str | None
) -> None:
    assert error_of(await client.post(PATH, json=BODY | fields), 400)["param"] == param


@pytest.mark.parametrize("missing", ["model", "messages"])
async def test_a_missing_parameter_is_named(client: httpx2.AsyncClient, missing: str) -> None:
    body = {name: value for name, value in BODY.items() if name != missing}
    assert error_of(await client.post(PATH, json=body), 400)["param"] == missing


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"model": NaN}', b"\xff\xfe", b"[" * 100_000, b'{"model":"small"} x'],
    ids=["empty", "cut", "list", "null", "nan", "not utf-8", "deep", "trailing"],
)
async def test_a_body_that_is_no_json_object_is_a_400(client: httpx2.AsyncClient, body: Any) -> None:
    assert error_of(await client.post(PATH, content=body), 400)["code"] == "invalid_json"


async def test_the_mark_that_windows_editors_put_before_a_text_is_no_part_of_it(client: httpx2.AsyncClient) -> None:
    body = b"\xef\xbb\xbf" + json.dumps(BODY).encode()
    assert (await client.post(PATH, content=body)).status_code == 200


@pytest.mark.parametrize("encoding", ["gzip", "br", "gzip, identity"])
async def test_a_compressed_body_is_refused_as_what_it_is(client: httpx2.AsyncClient, encoding: str) -> None:
    body = gzip.compress(json.dumps(BODY).encode())
    answer = await client.post(PATH, content=body, headers={"Content-Encoding": encoding})
    assert error_of(answer, 415)["code"] == "unsupported_encoding"
    plain = {"Content-Encoding": "identity"}
    assert (await client.post(PATH, content=json.dumps(BODY), headers=plain)).status_code == 200


async def test_half_a_surrogate_pair_is_a_400(client: httpx2.AsyncClient) -> None:
    body = b'{"model":"small","messages":[{"role":"user","content":"\\ud83d"}]}'
    error_of(await client.post(PATH, content=body), 400)


async def test_a_body_over_the_limit_is_a_413_before_it_is_read(client: httpx2.AsyncClient) -> None:
    body = json.dumps(BODY | {"user": "x" * MAX_BODY_BYTES}).encode()
    assert error_of(await client.post(PATH, content=body), 413)["code"] == "request_too_large"


async def test_a_body_of_unknown_length_is_cut_off_at_the_limit(client: httpx2.AsyncClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 65536 + 2):
            yield b" " * 65536

    error_of(await client.post(PATH, content=endless()), 413)


async def test_a_body_that_does_not_come_in_time_is_a_408_and_the_end_of_the_connection(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.api.http.BODY_TIMEOUT_S", 0.05)
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {CHAT_KEY}\r\nContent-Length: 50\r\n\r\n"
    writer.write(head.encode() + b'{"model":')
    answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"timeout"' in answer


async def test_a_conversation_the_template_refuses_is_a_400(client: httpx2.AsyncClient) -> None:
    body = BODY | {"messages": [{"role": "user", "content": "\x00"}]}
    assert error_of(await client.post(PATH, json=body), 400)["code"] == "invalid_prompt"


async def test_a_path_nobody_serves_is_a_404_in_the_same_shape(client: httpx2.AsyncClient) -> None:
    assert error_of(await client.get("/v1/nothing"), 404)["code"] == "not_found"
    assert error_of(await client.get("/"), 404)["code"] == "not_found"


async def test_a_wrong_method_is_a_405_in_the_same_shape(client: httpx2.AsyncClient) -> None:
    response = await client.get(PATH)
    error_of(response, 405)
    assert response.headers["allow"] == "POST"


async def test_the_client_s_own_request_id_comes_back_when_it_is_sane(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/v1/models", headers={"x-request-id": "mine-1"})).headers["x-request-id"] == "mine-1"
    odd = (await client.get("/v1/models", headers={"x-request-id": "a b\t<script>"})).headers["x-request-id"]
    assert odd.startswith("req_")


async def test_an_admin_key_may_chat_too(client: httpx2.AsyncClient) -> None:
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    assert (await client.post(PATH, json=BODY, headers=headers)).status_code == 200


async def test_cors_is_off(client: httpx2.AsyncClient) -> None:
    response = await client.options(PATH, headers={"Origin": "http://x", "Access-Control-Request-Method": "POST"})
    assert "access-control-allow-origin" not in response.headers
