"""Thoughts, text and calls out of pieces: the same parts wherever the pieces end."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.api.openai.speech import CallArguments, CallBegins, Content, Part, SpeechReader, Thought
from console.pipeline.dialects import THOUGHT_MARKS

TWO_CALLS = (
    'I look.\n<tool_call>\n{"name": "f", "arguments": {"a": "}</tool_cal\\""}}\n</tool_call>\n'
    '<tool_call>{"arguments": {"b": [1, {}]}, "name": "g"}</tool_call>\n'
)
CASES: list[tuple[str, Any, list[Part]]] = [
    ("Hello", None, [Content("Hello")]),
    ("", None, []),
    (" a < b ", None, [Content(" a < b ")]),
    ("<think>\nhm\n</think>\n\nHello", None, [Thought("hm"), Content("Hello")]),
    ("<thought>a</thought>b", "tagged", [Thought("a"), Content("b")]),
    ("<think></think>Hi", "bare", [Content("Hi")]),
    ("<think>never ends", None, [Thought("never ends")]),
    ("later <think>", None, [Content("later <think>")]),
    (
        TWO_CALLS,
        "tagged",
        [
            Content("I look."), CallBegins(0, "f"), CallArguments(0, '{"a": "}</tool_cal\\""}'), CallBegins(1, "g"),
            CallArguments(1, '{"b":[1,{}]}'),
        ],
    ),
    (TWO_CALLS, None, [Content(TWO_CALLS)]),
    (
        '<think>x</think>\n{"name": "f", "parameters": {}} ',
        "bare",
        [Thought("x"), CallBegins(0, "f"), CallArguments(0, "{}")],
    ),
    ('{"parameters": {"x": 1}, "name": "f"}', "bare", [CallBegins(0, "f"), CallArguments(0, '{"x":1}')]),
    ('{"a": 1}', "bare", [Content('{"a": 1}')]),
    ('so: {"name": "f", "parameters": {}}', "bare", [Content('so: {"name": "f", "parameters": {}}')]),
    ("<tool_call>no</tool_call> so", "tagged", [Content("<tool_call>no</tool_call> so")]),
    ("a <tool_cal", "tagged", [Content("a <tool_cal")]),
    ("<tool_call>torn", "tagged", [Content("<tool_call>torn")]),
    ('<tool_call>{"name":"f","arguments":{"a":1', "tagged", [CallBegins(0, "f"), CallArguments(0, '{"a":1')]),
    ('<tool_call>{"name":"f","arguments":{}}', "tagged", [CallBegins(0, "f"), CallArguments(0, "{}")]),
]  # fmt: skip


def joined(parts: list[Part]) -> list[Part]:
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, Content) and isinstance(last, Content):
            found[-1] = Content(last.text + part.text)
        elif isinstance(part, Thought) and isinstance(last, Thought):
            found[-1] = Thought(last.text + part.text)
        elif isinstance(part, CallArguments) and isinstance(last, CallArguments) and last.call == part.call:
            found[-1] = CallArguments(part.call, last.text + part.text)
        else:
            found.append(part)
    return found


def read(pieces: list[str], **options: Any) -> list[Part]:
    reader = SpeechReader(**options)
    return joined([*(part for piece in pieces for part in reader.push(piece)), *reader.flush()])


@pytest.mark.parametrize(("text", "calls", "parts"), CASES)
def test_an_answer_has_these_parts_even_letter_by_letter(text: str, calls: Any, parts: list[Part]) -> None:
    assert read([text], calls=calls) == parts
    assert read(list(text), calls=calls) == parts


@given(st.data(), st.sampled_from(CASES))
def test_parts_do_not_depend_on_where_pieces_end(data: st.DataObject, case: tuple[str, Any, list[Part]]) -> None:
    text, calls, parts = case
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))) | {0, len(text)})
    assert read([text[a:b] for a, b in pairwise(cuts)], calls=calls) == parts


@given(st.text(alphabet='<>/thinkol_ca{}"name:rgus ,\n'), st.sampled_from([None, "tagged", "bare"]))
def test_whatever_is_said_whole_and_in_letters_has_the_same_parts(text: str, calls: Any) -> None:
    assert read(list(text), calls=calls) == read([text], calls=calls)


def test_an_answer_may_begin_inside_of_thoughts() -> None:
    options: dict[str, Any] = {"thinks": THOUGHT_MARKS[0], "opened": True}
    assert read(["hm", "</thi", "nk>\n\nYes"], **options) == [Thought("hm"), Content("Yes")]
    assert read(["hm"], **options) == [Thought("hm")]


def test_arguments_leave_as_they_come() -> None:
    reader = SpeechReader("tagged")
    assert reader.push('<tool_call>{"name": "f", "argu') == []
    assert reader.push('ments": {"a"') == [CallBegins(0, "f"), CallArguments(0, '{"a"')]
    assert reader.push(": 1") == [CallArguments(0, ": 1")]
    assert reader.called == 1


@given(st.dictionaries(st.text(), st.text() | st.lists(st.integers() | st.text()) | st.none()))
def test_any_arguments_come_through(value: Any) -> None:
    arguments = json.dumps({"v": value})
    text = f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'
    assert read(list(text), calls="tagged") == [CallBegins(0, "f"), CallArguments(0, arguments)]
