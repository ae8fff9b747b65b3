"""console.bench.figures: what requests add up to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.bench.figures import Asked, Spread, figures_of, percentile, spread


def whole(asked_s: float, *pieces_s: float, tokens: int = 0, kind: str = "short", **fields: Any) -> Asked:
    return Asked(
        kind, asked_s, list(pieces_s), pieces_s[-1], answer_tokens=tokens or len(pieces_s), prompt_tokens=10, **fields
    )


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([3, 1, 2], 0.5, 2), ([1, 2], 0.5, 1), ([7], 0.95, 7), (range(1, 101), 0.95, 95), (range(1, 22), 0.95, 20)],
)
def test_percentiles_are_values_that_occurred(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


def test_rates_and_waits_of_two_users() -> None:
    asked = [whole(0.0, 1.0, 2.0, 3.0, tokens=6), whole(1.0, 1.5, 4.0, kind="long", cached_tokens=5)]
    found = figures_of(asked, 2, 0.0, 4.0)
    assert (found.answered, found.cut, found.failed) == (2, 0, 0)
    assert (found.answer_tokens, found.tokens_per_s, found.tokens_per_s_user) == (8, 2.0, 1.0)
    assert found.answering_tokens_per_s == pytest.approx(0.4)  # the lower one of (6 - 1) / 2 and (2 - 1) / 2.5
    assert found.first_token_ms == Spread(2, 500.0, 1000.0)
    assert found.inter_token_ms == Spread(3, 1000.0, 2500.0)
    assert (found.prompt_tokens, found.cached_tokens) == (20, 5)
    assert found.kinds["long"].first_token_ms == Spread(1, 500.0, 500.0)


def test_what_comes_outside_of_the_window_is_in_no_rate() -> None:
    asked = [whole(0.0, 1.0, 2.0, 3.0, 4.0, tokens=8)]
    found = figures_of(asked, 1, 0.0, 2.0)
    assert (found.answer_tokens, found.tokens_per_s) == (8, 2.0)


def test_a_cut_answer_counts_by_its_pieces_and_a_failed_one_only_as_failed() -> None:
    cut = Asked("short", 0.0, [1.0, 2.0])
    failed = Asked("short", 0.0, [0.1, 9.0], 9.0, error="stage_lost")
    found = figures_of([whole(0.0, 1.0, 2.0, tokens=6), cut, failed], 3, 0.0, 10.0)
    assert (found.answered, found.cut, found.errors) == (1, 1, {"stage_lost": 1})
    assert found.answer_tokens == 6 + 6 + 6
    assert found.first_token_ms == Spread(2, 1000.0, 1000.0)
    assert found.inter_token_ms.count == 2


def test_nothing_at_all_is_no_figure_and_no_division_by_zero() -> None:
    found = figures_of([], 4, 5.0, 5.0)
    assert (found.tokens_per_s, found.answering_tokens_per_s, found.first_token_ms) == (0.0, None, Spread(0))


def test_the_servers_own_times_are_spread_by_their_names() -> None:
    asked = [whole(0.0, 1.0, timings={"queue_ms": 1.0, "total_ms": 9.0}), whole(0.0, 1.0, timings={"queue_ms": 3.0})]
    found = figures_of(asked, 1, 0.0, 1.0).timings_ms
    assert found == {"queue_ms": Spread(2, 1.0, 3.0), "total_ms": Spread(1, 9.0, 9.0)}


TIMES = st.floats(0, 1000, allow_nan=False)


@given(st.lists(TIMES, min_size=1, max_size=50))
def test_a_spread_is_made_of_values_and_in_order(values: list[float]) -> None:
    found = spread(values)
    rounded = {round(value, 2) for value in values}
    assert found.p50 in rounded
    assert found.p95 in rounded
    assert found.p50 is not None
    assert found.p95 is not None
    assert found.p50 <= found.p95


@given(
    st.lists(st.tuples(TIMES, st.lists(TIMES, max_size=5), st.integers(0, 50), st.booleans()), max_size=20),
    st.integers(1, 8),
)
def test_every_request_is_answered_cut_or_failed_and_no_rate_is_more_than_all_tokens(
    given_requests: list[tuple[float, list[float], int, bool]], users: int
) -> None:
    asked = [
        Asked("short", asked_s, sorted(pieces), max(pieces, default=None), answer_tokens=tokens, error="x" * error)
        for asked_s, pieces, tokens, error in given_requests
    ]
    found = figures_of(asked, users, 0.0, 500.0)
    failed_or_cut = sum(bool(one.error) or one.ended_s is None for one in asked)
    assert found.answered + failed_or_cut == len(asked)
    assert found.tokens_per_s * 500 <= found.answer_tokens + 5 + 1e-6
