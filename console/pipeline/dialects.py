"""How a model writes what is not plain text: calls of tools, and thoughts before an answer. Pure.

What a model does is seen in what its chat template makes of a conversation, not in its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal, NamedTuple

CallFormat = Literal["tagged", "bare"]
"""`tagged`: `<tool_call>{"name": .., "arguments": {..}}</tool_call>`, any number of them, text before (Hermes, Qwen).
`bare`: the whole answer is one `{"name": .., "parameters": {..}}` (Llama 3)."""

CALL_OPENS, CALL_CLOSES = "<tool_call>", "</tool_call>"
_OTHER_TAGGED = ("<function=", "<arg_key>")
"""Formats that share the tag but write something else than JSON in it."""
_BARE = '"parameters": dictionary'
_PROBE = "probe_of_tools"

Render = Callable[[list[dict[str, Any]], list[dict[str, Any]] | None], str]
"""Renders a conversation with tools. Raises ValueError where the template refuses."""


class Marks(NamedTuple):
    """What stands before and after thoughts."""

    opens: str
    closes: str


THOUGHT_MARKS = (Marks("<think>", "</think>"), Marks("<thought>", "</thought>"), Marks("<reasoning>", "</reasoning>"))


class Dialect(NamedTuple):
    """How one model writes.

    `takes_tools` says that its template shows it tools and their results; otherwise they are explained to it in plain
    text. `tokens` are the marks that are single tokens. `thinks` is how it marks thoughts (None: it is not known to
    have any), `opened` whether its prompts end inside of them already.
    """

    calls: CallFormat = "tagged"
    takes_tools: bool = False
    tokens: frozenset[str] = frozenset()
    thinks: Marks | None = None
    opened: bool = False


PLAIN = Dialect()


def dialect_of(render: Render, added: Collection[str]) -> Dialect:
    """See how a model writes: `render` is its template, `added` the texts of the tokens beside its vocabulary."""
    conversation = [{"role": "user", "content": "Hi"}]
    try:
        plain = render(conversation, None)
    except ValueError:
        return PLAIN
    calls = _native_calls(render, conversation)
    ending = plain.rstrip()
    opened = next((marks for marks in THOUGHT_MARKS if ending.endswith(marks.opens)), None)
    known = next((marks for marks in THOUGHT_MARKS if set(marks) <= set(added)), None)
    marks = {mark for pair in THOUGHT_MARKS for mark in pair} | {CALL_OPENS, CALL_CLOSES}
    return Dialect(
        calls=calls or "tagged",
        takes_tools=calls is not None,
        tokens=frozenset(marks & set(added)),
        thinks=opened or known,
        opened=opened is not None,
    )


def _native_calls(render: Render, conversation: list[dict[str, Any]]) -> CallFormat | None:
    """Return the format that the template itself asks for; None where it shows no tools or asks for another one."""
    parameters = {"type": "object", "properties": {}}
    tool = {"type": "function", "function": {"name": _PROBE, "description": "A probe.", "parameters": parameters}}
    try:
        shown = render(conversation, [tool])
    except ValueError:
        return None
    if _PROBE not in shown:
        return None
    if CALL_OPENS in shown and not any(mark in shown for mark in _OTHER_TAGGED):
        return "tagged"
    return "bare" if _BARE in shown else None
