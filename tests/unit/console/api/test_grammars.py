"""Grammars of answers against the library that reads them: what may be said, and where it may end."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer
from tokenizers import AddedToken

from agent.stage.grammar import problem_of
from console.api.openai.grammars import MAX_CALLS, answer_grammar
from console.api.openai.tools import CallPlan, Function, Named, NamedTool, Tool, plan_calls
from console.pipeline.dialects import CALL_CLOSES, CALL_OPENS, PLAIN, THOUGHT_MARKS, Dialect
from tests.support.byte_tokens import EOS, byte_tokenizer

THINK = THOUGHT_MARKS[0]
TAGGED = Dialect("tagged", takes_tools=True)
TOKENS = Dialect("tagged", True, frozenset({CALL_OPENS, CALL_CLOSES, *THINK}), THINK)
BARE = Dialect("bare", takes_tools=True)
OPENED = Dialect(thinks=THINK, opened=True)
PLACE = {"type": "object", "properties": {"city": {"$ref": "#/$defs/name"}}, "required": ["city"],
         "$defs": {"name": {"type": "string"}}}  # fmt: skip
LOOK, COUNT = Tool("function", Function("look", parameters=PLACE)), Tool("function", Function("count"))
ROME = '{"name": "look", "arguments": {"city": "Rome"}}'
ANY_OBJECT = {"type": "object"}


@cache
def reader(*, with_tokens: bool) -> LLTokenizer:
    tokenizer = byte_tokenizer()
    if with_tokens:
        tokenizer.add_tokens([AddedToken(mark) for mark in (CALL_OPENS, CALL_CLOSES, *THINK)])
    return LLTokenizer(tokenizer.to_str(), eos_token=[EOS])


def may_be(grammar: str, text: str, *, with_tokens: bool = False) -> str:
    """Say whether the grammar takes a text, and whether it may end there: `no`, `begin` or `whole`."""
    tokenizer = byte_tokenizer()
    if with_tokens:
        tokenizer.add_tokens([AddedToken(mark) for mark in (CALL_OPENS, CALL_CLOSES, *THINK)])
    assert not problem_of(grammar)
    matcher = LLMatcher(reader(with_tokens=with_tokens), LLMatcher.grammar_from_lark(grammar), log_level=0)
    ids = tokenizer.encode(text).ids
    if matcher.try_consume_tokens(ids) != len(ids):
        return "no"
    return "whole" if matcher.is_accepting() else "begin"


def call(*bodies: str) -> str:
    return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)


def grammar_of(choice: Any = None, *, dialect: Dialect = TAGGED, several: bool = True, schema: Any = None) -> str:
    return answer_grammar(schema, plan_calls([LOOK, COUNT], choice, several=several), dialect)


@pytest.mark.parametrize("dialect", [TAGGED, TOKENS])
def test_required_calls_are_of_tools_that_exist_with_arguments_of_their_schema(dialect: Dialect) -> None:
    tokens = dialect is TOKENS
    grammar = grammar_of("required", dialect=dialect)
    assert may_be(grammar, call(ROME), with_tokens=tokens) == "whole"
    assert may_be(grammar, call(ROME, '{"name": "count", "arguments": {"x": [1]}}'), with_tokens=tokens) == "whole"
    assert may_be(grammar, call(ROME).removesuffix(CALL_CLOSES), with_tokens=tokens) == "begin"
    assert may_be(grammar, call(*[ROME] * MAX_CALLS), with_tokens=tokens) == "whole"
    assert may_be(grammar, call(*[ROME] * MAX_CALLS, ROME), with_tokens=tokens) == "no"
    for text in ("Hi", call('{"name": "other", "arguments": {}}'), call(ROME.replace('"Rome"', "5")), call(ROME) + "x"):
        assert may_be(grammar, text, with_tokens=tokens) == "no"


def test_one_named_tool_is_called_once() -> None:
    grammar = grammar_of(NamedTool("function", Named("look")))
    assert may_be(grammar, call(ROME)) == "whole"
    assert may_be(grammar, call(ROME, ROME)) == "no"
    assert may_be(grammar, call('{"name": "count", "arguments": {}}')) == "no"
    assert may_be(grammar_of("required", several=False), call(ROME, ROME)) == "no"


def test_a_bare_call_is_the_whole_answer() -> None:
    grammar = grammar_of("required", dialect=BARE)
    assert may_be(grammar, ROME.replace("arguments", "parameters")) == "whole"
    assert may_be(grammar, call(ROME)) == "no"


def test_a_model_free_to_call_nothing_is_left_to_its_own_way() -> None:
    assert grammar_of("auto") == grammar_of(None, dialect=BARE) == grammar_of("none") == ""
    assert answer_grammar(None, CallPlan(), TOKENS) == ""


@pytest.mark.parametrize("dialect", [PLAIN, TAGGED, TOKENS])
def test_where_tools_are_explained_or_strict_text_is_free_until_a_call_begins(dialect: Dialect) -> None:
    tokens = dialect is TOKENS
    strict = Tool("function", Function("look", parameters=PLACE, strict=True))
    grammar = answer_grammar(None, plan_calls([strict], None, several=True), dialect)
    for text in ("Hi <b>there</b>", "I look. " + call(ROME), call(ROME, ROME)):
        assert may_be(grammar, text, with_tokens=tokens) == "whole"
    assert may_be(grammar, "I look. <tool_call>\n{", with_tokens=tokens) == "begin"
    for text in ("<tool_call>no", call('{"name": "count", "arguments": {}}'), call(ROME) + "\nand"):
        assert may_be(grammar, text, with_tokens=tokens) == "no"


def test_a_format_holds_unless_a_tool_is_called() -> None:
    grammar = grammar_of(schema=ANY_OBJECT)
    assert may_be(grammar, '{"a": 1}') == "whole"
    assert may_be(grammar, call(ROME)) == "whole"
    assert may_be(grammar, "Hi") == "no"
    assert may_be(grammar_of("required", schema=ANY_OBJECT), '{"a": 1}') == "no"
    assert may_be(grammar_of("none", schema=ANY_OBJECT), call(ROME)) == "no"


def test_thoughts_may_stand_before_what_was_asked_for() -> None:
    grammar = answer_grammar(ANY_OBJECT, CallPlan(), TOKENS)
    for text in ("{}", "<think>a < b</think>\n\n{}", "<think></think>{}"):
        assert may_be(grammar, text, with_tokens=True) == "whole"
    assert may_be(grammar, "<think>a", with_tokens=True) == "begin"
    assert may_be(grammar, "<think>a</think>b", with_tokens=True) == "no"


def test_thoughts_that_the_prompt_began_end_first() -> None:
    grammar = answer_grammar(ANY_OBJECT, CallPlan(), OPENED)
    assert may_be(grammar, "{}") == "begin"
    assert may_be(grammar, "hm</think>\n{}") == "whole"
    assert may_be(grammar, "hm</think>x") == "no"


def test_blanks_in_json_have_a_bound() -> None:
    grammar = answer_grammar(ANY_OBJECT, CallPlan(), PLAIN)
    assert may_be(grammar, "{" + " " * 24) == "begin"
    assert may_be(grammar, "{" + " " * 25) == "no"
