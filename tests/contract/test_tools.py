"""Tools and thoughts with the real SDK, whole and streamed: calls by index, arguments in pieces, the right reason."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from console.pipeline.dialects import Dialect
from console.pipeline.types import Text
from tests.support.api import ScriptedModel, finished, says

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "now"}},
]
CALLS = [
    "I look. <tool", "_call>\n{\"name\": \"weather\", \"argu", "ments\": {\"city\": \"Ro", "me\"}}\n</tool_call>\n",
    "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
]  # fmt: skip
CALLED = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
HISTORY: Any = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Rome?"},
    {"role": "assistant", "content": None, "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "c1", "content": "Sunny"},
]


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(says(*CALLS), context_tokens=5000)


async def ask(client: openai.AsyncOpenAI, **fields: Any) -> Any:
    values = {"model": "small", "messages": [{"role": "user", "content": "Rome?"}]}
    return await client.chat.completions.create(**(values | fields))


async def test_a_whole_answer_has_its_calls_beside_its_text(client: openai.AsyncOpenAI) -> None:
    (choice,) = (await ask(client, tools=TOOLS)).choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look."
    first, second = choice.message.tool_calls
    assert (first.type, first.function.name, first.function.arguments) == ("function", "weather", '{"city": "Rome"}')
    assert (second.function.name, second.function.arguments) == ("now", "{}")
    assert first.id != second.id


async def test_a_stream_has_calls_by_index_and_arguments_in_pieces(client: openai.AsyncOpenAI) -> None:
    chunks = [chunk async for chunk in await ask(client, tools=TOOLS, stream=True)]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["tool_calls"]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "I look."
    deltas = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert [delta.index for delta in deltas] == [0, 0, 0, 1, 1]
    begun = [delta for delta in deltas if delta.id]
    assert [(delta.index, delta.type, delta.function.name, delta.function.arguments) for delta in begun] == [
        (0, "function", "weather", ""), (1, "function", "now", ""),
    ]  # fmt: skip
    pieces = [delta.function.arguments for delta in deltas if delta.index == 0]
    assert pieces == ["", '{"city": "Ro', 'me"}']


async def test_the_sdks_own_streaming_helper_puts_the_calls_together(client: openai.AsyncOpenAI) -> None:
    asked: Any = {"model": "small", "messages": [{"role": "user", "content": "Rome?"}], "tools": TOOLS}
    async with client.chat.completions.stream(**asked) as stream:
        completion = await stream.get_final_completion()
    calls = completion.choices[0].message.tool_calls or []
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        ("weather", {"city": "Rome"}), ("now", {}),
    ]  # fmt: skip


async def test_without_tools_or_with_choice_none_a_call_is_only_text(client: openai.AsyncOpenAI) -> None:
    for fields in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        (choice,) = (await ask(client, **fields)).choices
        assert (choice.finish_reason, choice.message.content) == ("stop", "".join(CALLS))
        assert choice.message.tool_calls is None


async def test_an_answer_cut_off_in_a_call_ends_as_length(client: openai.AsyncOpenAI, model: ScriptedModel) -> None:
    model.script = [Text(CALLS[0] + CALLS[1] + CALLS[2], [1]), finished(reason="length")]
    (choice,) = (await ask(client, tools=TOOLS)).choices
    assert choice.finish_reason == "length"
    assert choice.message.tool_calls[0].function.arguments == '{"city": "Ro'


async def test_a_model_without_a_format_has_tools_explained_and_is_kept_to_calls_that_can_be_read(
    client: openai.AsyncOpenAI, model: ScriptedModel
) -> None:
    await ask(client, tools=TOOLS, messages=HISTORY)
    assert model.tools is None
    system, _, called, result = model.messages
    assert system["content"].startswith("Be brief.\n\nYou can call tools.")
    assert '"name":"weather"' in system["content"]
    assert (called["role"], result["role"]) == ("assistant", "user")
    assert called["content"].startswith('<tool_call>\n{"name":"weather"')
    assert result["content"] == "<tool_response>\nSunny\n</tool_response>"
    assert "<tool_call>" in model.requests[0].sampling.grammar
    await ask(client, messages=HISTORY)
    assert model.messages[0]["content"] == "Be brief."
    assert not model.requests[1].sampling.grammar


async def test_a_model_with_a_format_is_shown_tools_and_calls_as_they_are(
    client: openai.AsyncOpenAI, model: ScriptedModel
) -> None:
    model.dialect = Dialect("bare", takes_tools=True)
    model.script = says('{"name": "weather", ', '"parameters": {"city": "Rome"}}')
    answer = await ask(client, tools=TOOLS, messages=HISTORY)
    assert answer.choices[0].message.content is None
    assert answer.choices[0].message.tool_calls[0].function.arguments == '{"city": "Rome"}'
    assert model.tools is not None
    assert [tool["function"]["name"] for tool in model.tools] == ["weather", "now"]
    assert model.messages[2]["tool_calls"][0]["function"]["arguments"] == {"city": "Rome"}
    assert not model.requests[0].sampling.grammar


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "now"}}])
async def test_calls_that_must_be_made_become_a_grammar(
    client: openai.AsyncOpenAI, model: ScriptedModel, choice: Any
) -> None:
    model.dialect = Dialect("tagged", takes_tools=True)
    await ask(client, tools=TOOLS, tool_choice=choice)
    grammar = model.requests[0].sampling.grammar
    assert "now" in grammar
    assert ("weather" in grammar) == (choice == "required")


async def test_too_many_tools_for_a_grammar_are_a_400(client: openai.AsyncOpenAI, model: ScriptedModel) -> None:
    model.dialect = Dialect("tagged", takes_tools=True)
    huge = [{"type": "function", "function": {"name": "f", "parameters": {"enum": ["x" * 40_000]}}}]
    await ask(client, tools=huge)
    with pytest.raises(openai.BadRequestError, match="bytes as a grammar") as caught:
        await ask(client, tools=huge, tool_choice="required")
    assert caught.value.param == "tools"


@pytest.mark.parametrize("stream", [False, True])
async def test_thoughts_are_kept_apart(client: openai.AsyncOpenAI, model: ScriptedModel, stream: bool) -> None:
    model.script = says("<th", "ink>\nFive", " or six", "\n</think>", "\n\nSix.")
    answer = await ask(client, stream=stream)
    if stream:
        deltas = [chunk.choices[0].delta async for chunk in answer]
        thoughts = "".join(getattr(delta, "reasoning_content", "") or "" for delta in deltas)
        content = "".join(delta.content or "" for delta in deltas)
    else:
        message = answer.choices[0].message
        thoughts, content = message.reasoning_content, message.content
    assert (thoughts, content) == ("Five or six", "Six.")


async def test_an_answer_without_thoughts_or_calls_has_no_fields_for_them(
    client: openai.AsyncOpenAI, model: ScriptedModel
) -> None:
    model.script = says("Hi")
    answer = await ask(client)
    assert answer.choices[0].message.model_dump(exclude_unset=True) == {
        "role": "assistant", "content": "Hi", "refusal": None,
    }  # fmt: skip
