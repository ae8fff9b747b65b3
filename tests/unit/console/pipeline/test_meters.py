from __future__ import annotations

import pytest

from agent.stage.types import Row, StageTiming, StreamId
from console.pipeline.flight import Deadlines, Flight
from console.pipeline.meters import RATE_WINDOW_S, RateMeter, StepMeter
from console.pipeline.plans import Step
from console.pipeline.types import StageInfo


def make_step(number: int, tokens: int = 1) -> Step:
    return Step(number, [Row(StreamId(1), 9, tokens)], [5] * tokens, [])


def make_info(number: int) -> StageInfo:
    return StageInfo(f"id-{number}", f"pc-{number}", 0, 1, "paged", True)


def test_overhead_is_what_is_not_compute_shared_by_the_stages() -> None:
    meter = StepMeter(2)
    for round_trip_s in (0.011, 0.012, 0.900):
        meter.add([StageTiming(4000, 500), StageTiming(6000, 500)], 4, round_trip_s, alone=True)
    assert meter.overhead_ms_per_hop == pytest.approx(1.0)
    first, second = meter.stages([make_info(0), make_info(1)])
    assert (first.ms_per_step, first.ms_per_token) == (4.0, 1.0)
    assert (second.ms_per_step, second.ms_per_token) == (6.0, 1.5)


def test_waiting_behind_another_step_is_no_overhead() -> None:
    meter = StepMeter(1)
    meter.add([StageTiming(4000, 5000)], 1, 0.010, alone=False)
    assert meter.overhead_ms_per_hop == pytest.approx(1.0)


def test_a_meter_without_steps_says_zero() -> None:
    meter = StepMeter(1)
    assert meter.overhead_ms_per_hop == 0
    assert meter.stages([make_info(0)])[0].ms_per_token == 0


def test_the_rate_counts_the_last_seconds_only() -> None:
    rate = RateMeter()
    assert rate.rate(0.0) == 0
    for tick in range(21):
        rate.add(tick * 0.1, 4)
    assert rate.rate(2.0) == pytest.approx(40.0)
    assert rate.rate(2.0 + RATE_WINDOW_S + 0.1) == 0


def test_a_step_is_alone_until_another_leaves() -> None:
    flight = Flight(Deadlines())
    flight.add(make_step(1), 0.0)
    flight.add(make_step(2), 0.1)
    first, second = flight.remove(1, 0.2), flight.remove(2, 0.3)
    assert first is not None
    assert second is not None
    assert not first.alone
    assert not second.alone
    flight.add(make_step(3), 0.4)
    third = flight.remove(3, 0.5)
    assert third is not None
    assert third.alone
    assert flight.remove(3, 0.6) is None


def test_the_deadline_counts_from_the_last_progress_and_grows_with_the_step() -> None:
    flight = Flight(Deadlines(step_s=10.0, token_s=0.5))
    flight.add(make_step(1, tokens=20), 100.0)
    flight.add(make_step(2), 101.0)
    assert flight.left_s(100.0) == pytest.approx(20.0)
    flight.remove(1, 115.0)
    assert flight.left_s(115.0) == pytest.approx(10.5)
    flight.clear()
    assert not flight


def test_where_a_missed_deadline_costs_little_the_steps_before_say_what_is_late() -> None:
    flight = Flight(Deadlines(step_s=30.0, token_s=0.0))
    flight.hasty = True
    flight.add(make_step(1), 0.0)
    assert flight.left_s(0.0) == 30.0, "nothing is known"
    flight.remove(1, 0.1)
    flight.add(make_step(2), 0.1)
    assert flight.left_s(0.1) == 3.0
    flight.missed()
    assert flight.left_s(0.1) == 6.0
    flight.remove(2, 1.1)
    flight.add(make_step(3), 1.1)
    assert flight.left_s(1.1) == 20.0
    flight.hasty = False
    assert flight.left_s(1.1) == 30.0


def test_without_progress_probes_follow_each_twice_as_long_after_the_one_before() -> None:
    flight = Flight(Deadlines(probe_s=0.5))
    flight.add(make_step(1), 100.0)
    due = []
    for number in range(3):
        due.append(flight.probe_in_s(100.0))
        flight.add(make_step(2 + number), 100.0 + due[-1])
        flight.probed()
    assert due == [0.5, 1.5, 3.5]
    assert flight.oldest == 1
    flight.remove(1, 104.0)
    assert flight.probe_in_s(104.0) == 0.5, "that was progress"
    assert flight.oldest == 2
