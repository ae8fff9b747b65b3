"""The benchmarks' own arithmetic."""

from __future__ import annotations

import pytest

from console.bench.texts import EDIT_PROMPTS, long_prompt
from tests.bench.prompts import edits, questions
from tests.bench.served import Heard, decode_rate, latencies


def test_gaps_lie_between_pieces_and_the_first_one_is_no_gap() -> None:
    heard = Heard(10.0, [10.5, 10.6, 10.9], {}, [])
    found = latencies([heard])
    assert found["first_token_ms"] == {"p50": 500.0, "p95": 500.0}
    assert found["inter_token_ms"] == {"p50": pytest.approx(100.0), "p95": pytest.approx(300.0)}


def test_a_rate_counts_only_while_all_answers_run() -> None:
    """The second prompt is read until 4.0, which the first answer waits for; the second goes on after 8.0."""
    first = Heard(0.0, [1.0, 4.0, 5.0, 6.0, 7.0, 8.0], {"completion_tokens": 6}, [])
    second = Heard(0.0, [4.0, 6.0, 8.0, 9.0, 9.1], {"completion_tokens": 10}, [])
    assert decode_rate([first, second]) == pytest.approx((4 + 2 * 2) / 4)
    assert decode_rate([first]) == pytest.approx(5 / 7)


def test_answers_that_never_ran_at_once_have_no_rate() -> None:
    usage = {"completion_tokens": 2}
    with pytest.raises(ValueError, match="more tokens"):
        decode_rate([Heard(0.0, [1.0, 2.0], usage, []), Heard(0.0, [2.0, 3.0], usage, [])])


def test_prompts_are_distinct_at_every_offset() -> None:
    for offset in range(20):
        assert len(set(questions(16, offset))) == 16
        assert len(set(edits(8, offset))) == 8
    assert all("teh" in prompt for prompt in EDIT_PROMPTS)


def test_a_long_prompt_has_the_tokens_it_should_and_every_seed_another_text() -> None:
    texts = [long_prompt(2000, seed, lambda text: len(text.split()) + 7) for seed in range(4)]
    assert [len(text.split()) for text in texts] == [1993] * 4
    assert len(set(texts)) == 4
