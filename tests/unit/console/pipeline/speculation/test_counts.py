"""The number of drafts follows what is measured: acceptance, round times, the cost of drafts, and who shares a step."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.pipeline.speculation.counts import (
    LAST_PROBE_ROUNDS,
    MOST_DRAFTS,
    STREAM_MEMORY,
    Acceptance,
    Company,
    Probing,
    RoundTimes,
    best_count,
)


def make_times(*, hops_s: float = 0.0, first_row_s: float = 0.016, row_s: float = 0.002) -> RoundTimes:
    """Rounds of 1 to 8 rows, each row after the first costing `row_s`."""
    times = RoundTimes()
    for rows in [1, 2, 4, 8] * 10:
        compute_s = first_row_s + row_s * (rows - 1)
        times.add(rows, hops_s + compute_s, compute_s)
    return times


def test_a_line_through_the_rounds_is_found() -> None:
    times = make_times(hops_s=0.1)
    assert times.per_row == pytest.approx(0.002, rel=0.05)
    assert times.expected(6) == pytest.approx(0.126, rel=0.01)


def test_rows_that_never_varied_are_expected_to_cost_a_tenth_of_the_computing() -> None:
    times = RoundTimes()
    for _ in range(5):
        times.add(1, 0.416, 0.016)
    assert times.per_row == pytest.approx(0.0016)


def test_a_stall_is_no_trend() -> None:
    times = make_times()
    times.add(1, 60.0, 0.016)
    assert times.expected(1) < 0.025


def test_round_times_follow_a_link_that_became_slow() -> None:
    times = make_times()
    for _ in range(60):
        times.add(4, 0.5, 0.02)
    assert times.expected(4) == pytest.approx(0.5, rel=0.35)


def test_nothing_is_guessed_before_a_round_was_measured() -> None:
    assert best_count(1.0, RoundTimes(), most=8) == 0


def test_drafts_that_are_never_right_are_left_out() -> None:
    assert best_count(0.0, make_times(), most=8) == 0


def test_more_is_guessed_the_surer_the_drafts() -> None:
    counts = [best_count(share, make_times(), most=32) for share in (0.1, 0.5, 0.8, 0.95)]
    assert counts == sorted(counts)
    assert counts[0] <= 1
    assert counts[-1] > 2 * counts[1]


def test_more_is_guessed_the_slower_the_links() -> None:
    counts = [best_count(0.7, make_times(hops_s=hops_s), most=32) for hops_s in (0.0, 0.05, 0.2)]
    assert counts[0] < counts[1] < counts[2]


def test_less_is_guessed_the_dearer_the_drafts() -> None:
    counts = [best_count(0.7, make_times(), most=32, draft_s=draft_s) for draft_s in (0.0, 0.004, 0.03)]
    assert counts[0] > counts[1] > counts[2] == 0


def test_less_is_guessed_in_company() -> None:
    alone = best_count(0.6, make_times(), most=32)
    shared = best_count(0.6, make_times(), most=32, company=Company(rows=15.0, tokens=7.0))
    assert shared < alone


@given(st.floats(0, 1), st.integers(0, 40), st.floats(0, 0.5), st.floats(0, 0.05))
def test_the_count_is_within_its_bounds(share: float, most: int, hops_s: float, draft_s: float) -> None:
    count = best_count(share, make_times(hops_s=hops_s), most=most, draft_s=draft_s)
    assert 0 <= count <= min(most, MOST_DRAFTS)


def test_drafts_behind_the_first_wrong_one_are_not_judged() -> None:
    acceptance = Acceptance(1.0, 0.0)
    acceptance.add(8, 3)
    assert acceptance.share == pytest.approx(3 / 8)  # 3 of 4 judged, and 4 expected to be wrong
    assert Acceptance(1.0, 0.3).share == pytest.approx(0.3)


def test_acceptance_follows_a_change() -> None:
    acceptance = Acceptance(STREAM_MEMORY, 0.5)
    for _ in range(50):
        acceptance.add(4, 4)
    assert acceptance.share > 0.85
    for _ in range(40):
        acceptance.add(4, 0)
    assert acceptance.share < 0.1


def test_probes_become_rarer_until_one_pays() -> None:
    probing = Probing()
    due = [turn for turn in range(1000) if probing.due()]
    gaps = [after - before for before, after in itertools.pairwise(due)]
    assert (due[0], gaps[0], max(gaps)) == (7, 16, LAST_PROBE_ROUNDS)
    assert gaps == sorted(gaps)
    probing.paid()
    assert [probing.due() for _ in range(8)] == [False] * 7 + [True]
