"""The grammar of an answer: JSON of a schema, calls of tools, thoughts before them. Pure, but for the check."""

from __future__ import annotations

import asyncio
import json
from functools import lru_cache
from typing import Any

import msgspec

from agent.stage.grammar import problem_of
from console.api.http import ApiError
from console.api.openai.tools import CallPlan, Tool
from console.pipeline.dialects import CALL_CLOSES, CALL_OPENS, Dialect, Marks

WHITESPACE = r"[ \n\r\t]{1,24}"
"""Between the parts of JSON; without a bound a small model may go on with blanks until its tokens are used up."""
MAX_CALLS = 16
"""In one answer that must call; a small model may go on with calls until its tokens are used up, too."""
_ANY = r"/(.|\n)+/"
_problem_of = lru_cache(maxsize=256)(problem_of)
"""Clients ask with the same grammar again and again."""


def answer_grammar(schema: dict[str, Any] | None, calls: CallPlan, dialect: Dialect) -> str:
    """Return what the answer must be as the last stage reads it; empty: it may be anything.

    A model that is free to call nothing is left to its own way of calling, unless a tool is strict or its template
    knows no tools.
    """
    free = schema is None and not calls.must
    if free and not (calls.tools and (calls.is_strict or not dialect.takes_tools)):
        return ""
    rules: list[str] = []
    options: list[str] = []
    if schema is not None and not calls.must:
        options.append("value")
        rules.append(f"value: {json_rule(schema)}")
    if calls.tools:
        options.append("calls")
        rules += _call_rules(calls, dialect)
    if free:
        options, more = _among_text(dialect)
        rules += more
    start = "start: answer" if dialect.thinks is None else _thinking(dialect, dialect.thinks, rules)
    return "\n".join([start, f"answer: {' | '.join(options)}", *rules])


def json_rule(schema: dict[str, Any]) -> str:
    """Return the part of a grammar that stands for the values a schema allows."""
    bounded = {**schema, "x-guidance": {"whitespace_pattern": WHITESPACE}}
    return f"%json {msgspec.json.encode(bounded).decode()}"


async def check_grammar(grammar: str, param: str) -> None:
    """Refuse, off the event loop, what no answer can be kept to. Raises ApiError 400 naming `param`."""
    if grammar and (problem := await asyncio.to_thread(_problem_of, grammar)):
        message = f"The parameter {param!r} cannot be kept to: {problem}."
        raise ApiError(400, message, param=param, code="invalid_value", should_retry=False)


def _call_rules(calls: CallPlan, dialect: Dialect) -> list[str]:
    names = [f"call_{place}" for place in range(len(calls.tools))]
    bodies = [_body(name, tool, dialect) for name, tool in zip(names, calls.tools, strict=True)]
    choice = " | ".join(names)
    if dialect.calls == "bare":
        return [f"calls: {choice}", *bodies]
    opens, closes = _mark(CALL_OPENS, dialect), _mark(CALL_CLOSES, dialect)
    more = f' ("\\n" {opens} body){{0,{MAX_CALLS - 1}}}' if calls.several else ""
    return [f"calls: {opens} body{more}", f'body: "\\n" ({choice}) "\\n" {closes}', *bodies]


def _body(name: str, tool: Tool, dialect: Dialect) -> str:
    key = "parameters" if dialect.calls == "bare" else "arguments"
    head = f'{{"name": {json.dumps(tool.function.name)}, "{key}": '
    return f'{name}: {json.dumps(head)} {json_rule(tool.function.schema)} "}}"'


def _among_text(dialect: Dialect) -> tuple[list[str], list[str]]:
    """Say where calls may stand in an answer that may also be plain text."""
    if dialect.calls == "bare":
        # Text that does not begin like a call.
        return ["TEXT", "calls"], [r"TEXT: /[^{ \n](.|\n)*/"]
    if CALL_OPENS in dialect.tokens:
        return ["TEXT", "TEXT? calls"], [f"TEXT: {_ANY}"]
    # The tag is text as well: whatever holds it is a call.
    mark = CALL_OPENS.replace("/", r"\/")
    head = rf"head[lazy]: /(.|\n)*{mark}/"
    text = rf"TEXT: {_ANY} & ~/(.|\n)*{mark}(.|\n)*/"
    return ["TEXT", "head body more"], [head, text, f'more: ("\\n" {json.dumps(CALL_OPENS)} body){{0,{MAX_CALLS - 1}}}']


def _thinking(dialect: Dialect, marks: Marks, rules: list[str]) -> str:
    """Let thoughts stand before the answer; whoever is in the midst of them must end them."""
    if marks.closes in dialect.tokens:
        rules += [f"thoughts: THOUGHT? {marks.closes} BLANK?", f"THOUGHT: {_ANY}"]
    else:
        mark = marks.closes.replace("/", r"\/")
        rules += ["thoughts: thought BLANK?", rf"thought[lazy]: /(.|\n)*{mark}/"]
    rules.append(r"BLANK: /\n{1,2}/")
    return "start: thoughts answer" if dialect.opened else f"start: ({_mark(marks.opens, dialect)} thoughts)? answer"


def _mark(mark: str, dialect: Dialect) -> str:
    return mark if mark in dialect.tokens else json.dumps(mark)
