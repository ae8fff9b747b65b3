"""console.deployments.performance: what is said of the answers of the last quarter of an hour."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.deployments.performance import BUCKET_S, BUCKETS, Performance


def test_nothing_is_said_where_nobody_asked() -> None:
    view = Performance().view("small", 10_000.0)
    assert (view.answers, view.first_token_ms, view.between_tokens_ms) == (0, None, None)
    assert view.tokens_per_second == [0.0] * BUCKETS
    assert view.first_token_ms_then == [None] * BUCKETS


def test_first_tokens_and_those_that_follow_are_counted_apart() -> None:
    performance = Performance()
    for answer in range(10):
        performance.note_first(1000.0, 1, 0.2)
        performance.note_more(1001.0, 3, 0.3 if answer else 30.0)
    view = performance.view("small", 1000.0 + BUCKET_S)
    assert view.answers == 10
    assert view.first_token_ms == pytest.approx(200.0, rel=0.07)
    assert view.between_tokens_ms == pytest.approx(10_000.0, rel=0.07)
    assert view.tokens_per_second[-1] == 40 / BUCKET_S
    assert view.first_token_ms_then[-1] == view.first_token_ms


def test_one_slow_answer_of_a_hundred_is_no_percentile() -> None:
    performance = Performance()
    for number in range(100):
        performance.note_first(0.0, 1, 9.0 if number == 0 else 0.1)
    assert performance.view("small", 1.0).first_token_ms == pytest.approx(100.0, rel=0.07)


def test_what_is_not_over_yet_is_no_sample_and_old_ones_are_forgotten() -> None:
    performance = Performance()
    performance.note_first(0.0, 5, 0.1)
    assert performance.view("small", BUCKET_S / 2).tokens_per_second == [0.0] * BUCKETS
    assert performance.view("small", BUCKET_S).tokens_per_second[-1] == 1.0
    assert performance.view("small", BUCKETS * BUCKET_S).tokens_per_second[0] == 1.0
    assert not performance.is_over(BUCKETS * BUCKET_S)
    late_s = (BUCKETS + 1) * BUCKET_S
    assert performance.view("small", late_s).tokens_per_second == [0.0] * BUCKETS
    assert performance.is_over(late_s)


@given(st.lists(st.floats(min_value=1e-5, max_value=3600.0), min_size=1, max_size=60))
def test_a_percentile_is_off_by_no_more_than_half_a_bin(waits_s: list[float]) -> None:
    performance = Performance()
    for wait_s in waits_s:
        performance.note_first(0.0, 1, wait_s)
    said = performance.view("small", 1.0).first_token_ms
    true = sorted(waits_s)[max(0, -(-95 * len(waits_s) // 100) - 1)] * 1000
    assert said == pytest.approx(true, rel=0.065)
