"""/v1/responses as the openai SDK asks for and reads it: text, its typed events, and refusals by name."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import openai
import pytest

from console.pipeline.parts import TimeParts
from console.pipeline.types import Details, Failed, Reading, Text, Waiting
from tests.conftest import ExpectLogs
from tests.support.api import CHAT_KEY, ScriptedModel, chat_app, finished, says, serving
from tests.support.patience import PATIENCE_S

ORDER = [
    "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
    "response.output_text.delta", "response.output_text.delta", "response.output_text.done",
    "response.content_part.done", "response.output_item.done",
]  # fmt: skip


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(says("Good", " day"))


@pytest.fixture
async def url(model: ScriptedModel) -> AsyncIterator[str]:
    async with serving(chat_app(model, unavailable=["loading"])) as url:
        yield url


async def ask(client: openai.AsyncOpenAI, **parameters: Any) -> Any:
    return await client.responses.create(**{"model": "small", "input": "Hello", **parameters})


async def test_a_whole_response_has_text_status_and_usage(client: openai.AsyncOpenAI, model: ScriptedModel) -> None:
    response = await ask(client, instructions="Be kind.", max_output_tokens=9, temperature=0.5, metadata={"a": "b"})
    assert (response.output_text, response.status, response.error) == ("Good day", "completed", None)
    assert (response.id[:5], response.output[0].id[:4]) == ("resp_", "msg_")
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (5, 2, 7)
    assert (response.instructions, response.metadata, response.temperature) == ("Be kind.", {"a": "b"}, 0.5)
    assert model.messages == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
    assert (model.requests[0].max_tokens, model.requests[0].sampling.temperature) == (9, 0.5)


async def test_a_conversation_goes_back_as_it_came(client: openai.AsyncOpenAI, model: ScriptedModel) -> None:
    first = await ask(client)
    said: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "He"}, {"type": "input_text", "text": "llo"}]},
        *[item.model_dump() for item in first.output],
        {"type": "message", "role": "user", "content": "And now?"},
    ]
    await ask(client, input=said)
    assert model.messages == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Good day"}, {"role": "user", "content": "And now?"},
    ]  # fmt: skip


async def test_a_stream_has_its_typed_events_in_order_and_numbered(client: openai.AsyncOpenAI) -> None:
    events = [event async for event in await ask(client, stream=True)]
    assert [event.type for event in events] == [*ORDER, "response.completed"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.delta for event in events if event.type == "response.output_text.delta"] == ["Good", " day"]
    assert events[0].response.status == "in_progress"
    last = events[-1].response
    assert (last.output_text, last.usage.output_tokens) == ("Good day", 2)
    assert len({event.response.id for event in events if hasattr(event, "response")}) == 1
    async with client.responses.stream(model="small", input="Hello") as stream:
        async for _ in stream:
            pass
        assert (await stream.get_final_response()).output_text == "Good day"


async def test_a_response_says_where_its_time_went_as_other_answers_do(
    client: openai.AsyncOpenAI, model: ScriptedModel
) -> None:
    chat: Any = await client.chat.completions.create(model="small", messages=[{"role": "user", "content": "Hello"}])
    timings = (await ask(client)).timings
    assert timings == chat.model_extra["timings"]
    assert (timings["total_ms"], set(timings["parts"])) == (20.0, set(TimeParts.__struct_fields__))
    events = [event async for event in await ask(client, stream=True)]
    assert events[-1].response.timings == timings
    told = [event.response.model_extra for event in events if hasattr(event, "response")]
    assert told[:-1] == [{}] * (len(told) - 1), "what has not ended has no times"
    assert "details" not in events[-1].response.model_extra, "nobody asked for them"


async def test_a_stream_tells_who_answered_if_it_is_asked(
    client: openai.AsyncOpenAI, model: ScriptedModel, url: str
) -> None:
    ended = finished()
    details = Details(["ann", "bob"], 3, 2, slowest="inference on ann")
    model.script = [Reading(256, 600), Text("Good", [1]), msgspec.structs.replace(ended, details=details)]
    asked = {"model": "small", "input": "Hi", "stream": True, "stream_options": {"include_details": True}}
    headers = {"Authorization": f"Bearer {CHAT_KEY}"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as http:
        events = (await http.post("/v1/responses", json=asked)).text.strip().split("\n\n")
        assert events[0] == ": reading, 256 of 600 tokens"
        last = json.loads(events[-1].partition("\ndata: ")[2])["response"]
        assert msgspec.convert(last["details"], Details) == details
        asked["stream_options"] = {"include_obfuscation": False}
        assert ": reading" not in (await http.post("/v1/responses", json=asked)).text


async def test_an_answer_that_met_its_limit_is_incomplete(client: openai.AsyncOpenAI, model: ScriptedModel) -> None:
    model.script = [Text("Good", [1]), finished(reason="length")]
    response = await ask(client, max_output_tokens=1)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    events = [event async for event in await ask(client, stream=True)]
    assert events[-1].type == "response.incomplete"


async def test_what_the_model_wrote_for_itself_is_not_in_the_text(
    client: openai.AsyncOpenAI, model: ScriptedModel
) -> None:
    model.script = says("<thi", "nk>Hm", "m</think>", "\n\nGood", " day")
    assert (await ask(client)).output_text == "Good day"
    events = [event async for event in await ask(client, stream=True)]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Good day"
    assert events[-1].response.output_text == "Good day"


async def test_an_answer_without_text_is_still_a_whole_stream(client: openai.AsyncOpenAI, model: ScriptedModel) -> None:
    model.script = [finished(completion=1)]
    events = [event.type async for event in await ask(client, stream=True)]
    assert events == [name for name in [*ORDER, "response.completed"] if not name.endswith("delta")]


async def test_a_stage_lost_mid_stream_raises_and_the_response_has_failed(
    client: openai.AsyncOpenAI, model: ScriptedModel, url: str
) -> None:
    model.script = [Waiting(1), Text("Good", [1]), Failed("stage_lost", "A PC left; send the request again.")]
    with pytest.raises(openai.APIError) as caught:
        async for _ in await ask(client, stream=True):
            pass
    assert caught.value.code == "stage_lost"
    headers = {"Authorization": f"Bearer {CHAT_KEY}"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_S) as http:
        body = {"model": "small", "input": "Hi", "stream": True}
        events = (await http.post("/v1/responses", json=body)).text.split("\n\n")
    assert events[0] == ": waiting, 1 ahead"
    kind, _, data = events[-2].partition("\n")
    assert kind == "event: response.failed"
    failed = json.loads(data.removeprefix("data: "))["response"]
    assert (failed["status"], failed["error"]["message"]) == ("failed", "A PC left; send the request again.")
    assert failed["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize("stream", [False, True])
async def test_errors_before_the_first_byte_are_as_everywhere(
    client: openai.AsyncOpenAI, model: ScriptedModel, stream: bool
) -> None:
    with pytest.raises(openai.NotFoundError):
        await ask(client, model="other", stream=stream)
    with pytest.raises(openai.InternalServerError) as caught:
        await ask(client, model="loading", stream=stream)
    assert caught.value.response.headers["retry-after"] == "7"
    with pytest.raises(openai.BadRequestError) as refused:
        await ask(client, input="x" * 100, stream=stream)
    assert (refused.value.param, refused.value.code) == ("input", "context_length_exceeded")
    model.script = [Failed("overloaded", "Too many ask at once; try again soon.")]
    with pytest.raises(openai.InternalServerError):
        await ask(client, stream=stream)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"background": True}, "background"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"text": {"format": {"type": "json_object"}}}, "text"),
        ({"reasoning": {"effort": "high"}}, "reasoning"),
        ({"truncation": "auto"}, "truncation"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options"),
        ({"stream_options": {"include_details": True}}, "stream_options"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream_options": {"include_details": "yes"}}, "stream_options.include_details"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"stop": "x"}, "stop"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"a_new_field": 1}, "a_new_field"),
        ({"temperature": 3}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": [{"type": "function_call_output", "call_id": "1", "output": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0]"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "input[0].role"),
    ],
)
async def test_everything_else_is_refused_by_name(
    client: openai.AsyncOpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(client, extra_body=fields)
    assert caught.value.param == param


async def test_what_asks_for_nothing_is_fine(client: openai.AsyncOpenAI, expected_logs: ExpectLogs) -> None:
    expected_logs("console.api.openai.parameters", "'parallel_tool_calls', 'user'")
    nothing = {
        "tools": [], "tool_choice": "auto", "store": True, "truncation": "disabled", "user": "me", "include": [],
        "text": {"format": {"type": "text"}}, "background": False, "parallel_tool_calls": True,
    }  # fmt: skip
    response = await ask(client, extra_body=nothing)
    assert response.output_text == "Good day"
    assert response.tools == []
