"""console.pipeline.trips: the parts of a trip are all of it, whatever stages and links say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.stage.types import StageTiming
from console.pipeline.flight import Sent
from console.pipeline.plans import Step
from console.pipeline.trips import Trip

STEP = Step(1, [], [], [])
TIMES = st.integers(0, 3_000_000)
TIMINGS = st.lists(st.builds(StageTiming, TIMES, TIMES, TIMES), min_size=1, max_size=6)
PASSES = st.lists(st.tuples(st.integers(-1, 7), st.floats(-1, 6)), max_size=8)


def sent(at_s: float, *passes: tuple[int, float]) -> Sent:
    return Sent(STEP, at_s, alone=True, passes=list(passes))


@given(TIMINGS, PASSES, st.floats(0, 2), st.floats(0, 5))
def test_the_parts_of_a_trip_add_up_to_it(
    timings: list[StageTiming], passes: list[tuple[int, float]], at_s: float, took_s: float
) -> None:
    trip = Trip.of(sent(at_s, *passes), timings, at_s + took_s, [])
    assert len(trip.stages) == len(timings)
    assert sum(part.total_s for part in trip.stages) == pytest.approx(trip.took_s, abs=1e-9)
    assert all(value >= 0 for part in trip.stages for value in part)


def test_each_relayed_stage_has_its_own_link() -> None:
    timings = [StageTiming(10_000, 1_000), StageTiming(20_000, 2_000, 5_000)]
    trip = Trip.of(sent(1.0, (1, 1.020)), timings, 1.050, [])
    head, tail = trip.stages
    assert head == pytest.approx((0.010, 0.0, 0.001, 0.009))
    assert tail == pytest.approx((0.015, 0.005, 0.002, 0.008))


def test_stages_that_are_linked_directly_share_what_nobody_saw() -> None:
    trip = Trip.of(sent(0.0), [StageTiming(10_000, 0), StageTiming(20_000, 0)], 0.040, [])
    assert [part.link_s for part in trip.stages] == pytest.approx([0.005, 0.005])


def test_a_stage_that_says_more_than_passed_is_made_to_fit() -> None:
    trip = Trip.of(sent(0.0, (1, 0.010)), [StageTiming(15_000, 5_000), StageTiming(1_000, 0)], 0.020, [])
    assert trip.stages[0] == pytest.approx((0.0075, 0.0, 0.0025, 0.0))
    assert trip.stages[1] == pytest.approx((0.001, 0.0, 0.0, 0.009))
