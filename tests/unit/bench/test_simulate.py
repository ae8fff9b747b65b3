"""The simulated week's own arithmetic, and that it would notice what must never be."""

from __future__ import annotations

import random

import pytest

from console.planner.types import AgentFacts, ModelFacts
from tests.bench.simulate import simulate
from tests.bench.simulated_console import LOAD_S, WARM_S, Pc, SimulatedConsole, Wanted
from tests.bench.simulated_office import Day, Weeks, cut, holds, learnt, make_weeks, played_days, share_offered
from tests.support.office import DAY_S, HOUR_S

MB = 1_000_000
MODEL = ModelFacts("model", [100 * MB] * 10, [1000] * 10, 50 * MB, 1000, 50 * MB, 1000)
OFFICE = [[Day([(0, 8.7 * HOUR_S), (12 * HOUR_S, 12.5 * HOUR_S), (18 * HOUR_S, DAY_S)], [(8.7 * HOUR_S, 12 * HOUR_S)])]]


def make_pc(number: int, *, present: bool = False, memory_mb: int = 900) -> Pc:
    weeks = Weeks([(0.0, DAY_S)], [(0.0, DAY_S)] if present else [])
    return Pc(AgentFacts(f"pc-{number}", f"pc-{number}", memory_mb * MB, 0.05), weeks)


def make_console(pcs: int, *, standbys: int = 0, present: bool = False) -> SimulatedConsole:
    wanted = Wanted(MODEL, 1, 1000, 2, standbys)
    console = SimulatedConsole([make_pc(number, present=present) for number in range(pcs)], [wanted])
    for number in range(pcs):
        console.came(f"pc-{number}", 10.0)
    return console


def test_spans_are_cut_and_looked_into() -> None:
    spans = [(0.0, 5.0), (8.0, 12.0)]
    assert cut(spans, 4.0, 9.0) == [(0.0, 1.0), (4.0, 5.0)]
    assert [holds(spans, at_s) for at_s in (0.0, 4.9, 5.0, 8.0, 12.0)] == [True, True, False, True, False]


def test_nobody_is_offered_while_somebody_is_there() -> None:
    chance = random.Random(5)
    for _ in range(20):
        weeks = make_weeks(OFFICE, 2, chance)
        assert all(begin < end for begin, end in weeks.offered)
        assert all(first[1] < later[0] for first, later in zip(weeks.offered, weeks.offered[1:], strict=False))
        assert not any(begin < until and since < end for begin, end in weeks.offered for since, until in weeks.present)


def test_a_fleet_rests_as_much_as_an_office_does() -> None:
    chance = random.Random(5)
    fleet = [make_weeks(OFFICE, 1, chance) for _ in range(200)]
    assert 0.5 < share_offered(fleet, range(5), 22 * HOUR_S, 29 * HOUR_S) < 0.8
    assert share_offered(fleet, range(5), 9.5 * HOUR_S, 11 * HOUR_S) < 0.3


def test_habits_are_learnt_by_the_agents_own_arithmetic() -> None:
    nights = [(day * DAY_S + 18 * HOUR_S, day * DAY_S + 24 * HOUR_S) for day in range(7)]
    blocks = learnt(Weeks(nights, []), 7 * DAY_S)
    assert len(blocks) == 56
    assert min(blocks[6::8]) >= 70
    assert max(blocks[3::8]) <= 30


def test_a_pipeline_is_up_after_it_was_fetched_and_loaded() -> None:
    (pipeline,) = make_console(2).pipelines
    assert pipeline.plan is not None
    assert not pipeline.is_up(10.0 + LOAD_S)
    assert pipeline.is_up(10.0 + LOAD_S + 12.0)


def test_a_standby_takes_over_faster_than_a_new_plan() -> None:
    console = make_console(5, standbys=2)
    (pipeline,) = console.pipelines
    assert pipeline.plan is not None
    lost = pipeline.plan.stages[0].device_id
    assert console.left(lost, 1000.0) == [pipeline]
    assert pipeline.is_up(1000.0 + WARM_S)
    assert lost not in pipeline.pcs()
    assert console.counts.takeovers == 1


def test_without_enough_pcs_nothing_is_up_until_one_comes() -> None:
    console = make_console(2)
    (pipeline,) = console.pipelines
    console.left("pc-0", 1000.0)
    assert pipeline.plan is None
    assert not console.could_run(pipeline.wanted, 1000.0)
    console.came("pc-0", 2000.0)
    assert pipeline.is_up(2000.0 + LOAD_S)


def test_work_for_a_pc_at_which_somebody_is_would_be_noticed() -> None:
    assert make_console(2).counts.present_violations == 0
    assert make_console(2, present=True).counts.present_violations > 0


def test_a_night_of_a_small_fleet_is_served() -> None:
    found = simulate(20, OFFICE, lambda _: None, last_day=0.2)
    assert found["present_violations"] == 0
    assert found["requests"] > 100
    assert found["served_share"] >= 0.99
    assert 0 < found["covered_share"] <= 1
    assert found["moves"] >= found["takeovers"]


@pytest.mark.slow
def test_a_week_of_played_days_is_served() -> None:
    found = simulate(60, list(played_days(2, 2, 7)), lambda _: None)
    assert found["present_violations"] == 0
    assert found["served_share"] >= 0.99
