"""console.tallies: nothing that was counted is lost, and each value is within its bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from console.tallies import ROWS, STEP_S, WAIT_S, Tally

BOUNDS = st.sampled_from([STEP_S, WAIT_S, ROWS])
VALUES = st.lists(st.tuples(st.floats(0, 1000), st.integers(1, 5)), max_size=30)


@given(BOUNDS, VALUES)
def test_each_bound_counts_what_is_at_most_that_large(
    bounds: tuple[float, ...], values: list[tuple[float, int]]
) -> None:
    tally = Tally(bounds)
    for value, times in values:
        tally.add(value, times)
    for bound, count in tally.cumulative():
        assert count == sum(times for value, times in values if value <= bound)
    assert tally.count == sum(times for _, times in values)
    assert abs(tally.sum - sum(value * times for value, times in values)) < 1e-6 * (1 + tally.sum)


def test_a_value_on_a_bound_belongs_to_it() -> None:
    tally = Tally((1.0, 2.0))
    tally.add(2.0)
    assert list(tally.cumulative()) == [(1.0, 0), (2.0, 1), (float("inf"), 1)]
