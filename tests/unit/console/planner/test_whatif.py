from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from console.planner.costs import Costs
from console.planner.types import AgentFacts, Demand, ModelFacts, PlanImpossible
from console.planner.whatif import MOST_PIPELINES, Answer, Moment, at, pipelines_likely, what_if
from tests.support.plans import MB, SCRATCH, make_fleet, make_model, make_plan

TUESDAY_NINE_S = (
    86_400.0 * 4 + 86_400.0 + 9 * 3600
)  # 1 January 1970 was a Thursday: the first Tuesday came after 5 days
BLOCK = 8 + 3  # the fourth three hours of Tuesday


def resting(percent: int, *, block: int = BLOCK) -> tuple[int, ...]:
    return tuple(percent if place == block else 0 for place in range(56))


def make_fleet_at_rest(percents: list[int], *, memory_mb: int = 500) -> list[AgentFacts]:
    return [
        AgentFacts(f"id-{i:02}", f"pc-{i}", memory_mb * MB, 0.1, rests=resting(percent))
        for i, percent in enumerate(percents)
    ]


def ask(fleet: list[AgentFacts], *, model: ModelFacts | None = None, **changes: Any) -> Answer:
    demand = Demand(model=model or make_model(), agents=fleet, context_tokens=1000, streams=2)
    (answer,) = what_if([demand], Moment(unix_s=TUESDAY_NINE_S, **changes), scratch_bytes=SCRATCH)
    return answer


def test_the_chance_of_one_pc_is_its_own() -> None:
    answer = ask(make_fleet_at_rest([70]))
    assert answer.chance == pytest.approx(0.7)
    assert answer.pipelines == 0
    assert "70% certainty, and 95%" in answer.reasons[1]


def test_enough_unsure_pcs_make_a_sure_fleet() -> None:
    answer = ask(make_fleet_at_rest([70] * 12))
    assert answer.chance == pytest.approx(1 - 0.3**12, abs=1e-6)
    assert answer.pipelines >= 2
    assert answer.tokens_per_second > 0


def test_other_hours_of_the_week_are_other_answers() -> None:
    fleet = make_fleet_at_rest([100])
    assert ask(fleet).pipelines == 1
    demand = Demand(model=make_model(), agents=fleet, context_tokens=1000, streams=2)
    (later,) = what_if([demand], Moment(unix_s=TUESDAY_NINE_S + 3 * 3600), scratch_bytes=SCRATCH)
    assert (later.chance, later.pipelines, later.tokens_per_second) == (0.0, 0, 0.0)


def test_local_time_is_the_pcs_own() -> None:
    east = [AgentFacts("id", "pc", 500 * MB, 0.1, rests=resting(100), utc_offset_s=3 * 3600)]
    assert at(east, Moment(unix_s=TUESDAY_NINE_S - 3 * 3600))[0].stay == 1.0
    assert at(east, Moment(unix_s=TUESDAY_NINE_S))[0].stay == 0.0


def test_a_pc_that_does_not_tell_counts_as_it_is_told_to() -> None:
    fleet = make_fleet([500])
    assert ask(fleet).chance == 0.0
    assert "is not counted" in ask(fleet).reasons[-1]
    assert ask(fleet, unknown=0.6).chance == pytest.approx(0.6)


def test_the_largest_model_that_runs_surely_comes_first() -> None:
    fleet = make_fleet_at_rest([100] * 3)
    sizes = {"tiny": 2, "middle": 8, "huge": 200}
    demands = [
        Demand(
            model=ModelFacts(name, [20 * MB] * layers, [1000] * layers, MB, 1000, MB),
            agents=fleet,
            context_tokens=1000,
            streams=2,
        )
        for name, layers in sizes.items()
    ]
    answers = what_if(demands, Moment(unix_s=TUESDAY_NINE_S), scratch_bytes=SCRATCH)
    assert [answer.model_id for answer in answers] == ["middle", "tiny", "huge"]
    assert answers[-1].pipelines == 0


def test_the_chance_is_never_higher_than_how_often_a_plan_is_found() -> None:
    chance = random.Random(3)
    percents = [20, 50, 80, 50, 80]
    fleet = make_fleet_at_rest(percents, memory_mb=290)
    draws = 60
    found = sum(
        possible([agent for agent, percent in zip(fleet, percents, strict=True) if chance.random() < percent / 100])
        for _ in range(draws)
    )
    assert 0.2 < ask(fleet).chance <= found / draws + 0.15


def possible(fleet: list[AgentFacts]) -> bool:
    try:
        make_plan(make_model(), fleet)
    except PlanImpossible:
        return False
    return True


def test_two_places_of_many_pipelines_are_counted_together() -> None:
    fleet = [
        msgspec.structs.replace(agent, site=["oslo", "bern"][place % 2])
        for place, agent in enumerate(make_fleet_at_rest([100] * 140, memory_mb=1000))
    ]
    assert ask(fleet[::2]).pipelines == ask(fleet[1::2]).pipelines >= MOST_PIPELINES / 2 + 1
    answer = ask(fleet)
    assert (answer.chance, answer.pipelines) == (1.0, MOST_PIPELINES)


def test_chances_add_up_to_one() -> None:
    fleet = at(make_fleet_at_rest([30, 60, 90, 50, 80]), Moment(unix_s=TUESDAY_NINE_S))
    costs = Costs(make_model(), fleet, context_tokens=1000, streams=2, scratch_bytes=SCRATCH)
    assert pipelines_likely(costs, fleet).sum() == pytest.approx(1.0)
