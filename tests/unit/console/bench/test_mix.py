"""console.bench.mix: which prompt comes when, and that each fits."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.bench.mix import DEFAULT_SHARES, LONG_TOKENS, Mix, built_in, listed, parse_shares
from console.errors import UsageWrong


def words(text: str) -> int:
    return len(text.split())


def mixed(shares: dict[str, int] | None = None, *, context: int = 4096, answer: int = 128) -> Mix:
    shares = shares or DEFAULT_SHARES
    return built_in(shares, context_tokens=context, answer_tokens=answer, count=words, mark="ab12")


def text_of(mix: Mix, number: int) -> str:
    return str(mix.prompt(number).messages[0]["content"])


def test_kinds_come_by_their_shares_and_no_text_comes_twice() -> None:
    mix = mixed()
    asked = [mix.prompt(number) for number in range(400)]
    assert Counter(prompt.kind for prompt in asked) == {"short": 200, "long": 100, "edit": 100}
    assert len({prompt.messages[0]["content"] for prompt in asked}) == 400
    assert text_of(mix, 7).startswith("(ab12-7) ")
    assert mix.said == "short=2,long=1,edit=1"


def test_long_prompts_are_long_and_edits_have_their_mistake() -> None:
    assert LONG_TOKENS - 1 <= words(text_of(mixed({"long": 1}), 0)) <= LONG_TOKENS + 1
    assert "teh " in text_of(mixed({"edit": 1}), 0)


@given(st.integers(88 + 16, 4000), st.sampled_from(["short", "long", "edit"]), st.integers(0, 40))
def test_every_prompt_fits_into_the_context_beside_its_answer(context: int, kind: str, number: int) -> None:
    mix = built_in({kind: 1}, context_tokens=context, answer_tokens=16, count=len, mark="ab12")
    assert len(text_of(mix, number)) + 16 <= context


def test_a_context_without_room_is_a_sentence() -> None:
    with pytest.raises(UsageWrong, match="--max-tokens"):
        mixed(context=128, answer=128)


@pytest.mark.parametrize(
    ("text", "shares"), [("short", {"short": 1}), ("edit=3, long", {"edit": 3, "long": 1}), ("long=100", {"long": 100})]
)
def test_shares_are_read(text: str, shares: dict[str, int]) -> None:
    assert parse_shares(text) == shares


@pytest.mark.parametrize("text", ["", "tall", "short=0", "short=101", "short=x", "short,short", "short=-1"])
def test_shares_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageWrong, match="no part of a mix"):
        parse_shares(text)


def test_a_file_has_texts_prompts_and_conversations() -> None:
    conversation = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    lines = ["One?", {"prompt": "Two?", "max_tokens": 5}, {"messages": conversation}]
    mix = listed("\n\n".join(json.dumps(line) for line in lines).encode())
    assert [text_of(mix, number) for number in range(4)] == ["One?", "Two?", "Be brief.", "One?"]
    assert [mix.prompt(number).max_tokens for number in range(3)] == [0, 5, 0]
    assert mix.prompt(2).messages == conversation
    assert "3 prompts" in mix.said
    assert "One" not in mix.said


@pytest.mark.parametrize(
    "line", ["plain", '{"text": 1}', "{}", '""', '{"prompt": "a", "messages": [{}]}', "[1]", "\xff"]
)
def test_a_line_that_is_no_prompt_is_named(line: str) -> None:
    with pytest.raises(UsageWrong, match="Line 2"):
        listed(b'"fine"\n' + line.encode("latin-1"))


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(UsageWrong, match="no prompts"):
        listed(b"\n \n")
