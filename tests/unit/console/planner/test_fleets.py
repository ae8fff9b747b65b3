from __future__ import annotations

import random
from itertools import permutations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from console.planner.fleets import plan_fleet
from console.planner.types import AgentFacts, Demand, FleetPlan, ModelFacts
from tests.support.plans import MB, SCRATCH, make_fleet, make_model


def make_demand(fleet: list[AgentFacts], *, model: ModelFacts | None = None, **changes: Any) -> Demand:
    values: dict[str, Any] = {
        "model": model or make_model(),
        "agents": fleet,
        "context_tokens": 1000,
        "streams": 2,
    } | changes
    return Demand(**values)


def named(name: str, **sizes: Any) -> ModelFacts:
    model = make_model(**sizes)
    return ModelFacts(name, model.layer_bytes, model.kv_token_bytes, model.embed_bytes, 1000, model.head_bytes)


def pcs(found: FleetPlan, model_id: str = "toy") -> list[set[str]]:
    return [{stage.name for stage in plan.stages} for plan in found.plans[model_id]]


def test_pipelines_of_one_model_have_pcs_of_their_own() -> None:
    found = plan_fleet([make_demand(make_fleet([300] * 6), pipelines=3)], scratch_bytes=SCRATCH)
    groups = pcs(found)
    assert len(groups) == 3
    assert len(set().union(*groups)) == sum(len(group) for group in groups) == 6
    assert not found.missing


def test_what_does_not_fit_is_said_and_the_rest_is_planned() -> None:
    found = plan_fleet([make_demand(make_fleet([300] * 5), pipelines=3)], scratch_bytes=SCRATCH)
    assert len(pcs(found)) == 2
    assert "missing" in found.missing["toy"]
    assert any("2 pipelines" in reason for reason in found.reasons)


def test_each_model_gets_one_pipeline_before_any_gets_two() -> None:
    fleet = make_fleet([600] * 3)
    demands = [make_demand(fleet, model=named(name), pipelines=2) for name in ("one", "two")]
    found = plan_fleet(demands, scratch_bytes=SCRATCH)
    assert {name: len(plans) >= 1 for name, plans in found.plans.items()} == {"one": True, "two": True}


def test_models_share_pcs_only_where_none_are_free_and_memory_allows_it() -> None:
    fleet = make_fleet([1000, 1000])
    small = [make_demand(fleet, model=named(name)) for name in ("one", "two")]
    apart = plan_fleet(small, scratch_bytes=SCRATCH)
    assert pcs(apart, "one") != pcs(apart, "two")
    assert not apart.reasons
    shared = plan_fleet([*small, make_demand(fleet, model=named("three"))], scratch_bytes=SCRATCH)
    assert all(len(plans) == 1 for plans in shared.plans.values())
    assert any("shares PCs" in reason for reason in shared.reasons)


def test_a_higher_priority_is_served_first() -> None:
    fleet = make_fleet([450])
    demands = [
        make_demand(fleet, model=named("large", layers=13)),
        make_demand(fleet, model=named("small"), priority=1),
    ]
    found = plan_fleet(demands, scratch_bytes=SCRATCH)
    assert len(found.plans["small"]) == 1
    assert "large" in found.missing


def test_the_largest_pcs_are_not_wasted_where_that_makes_room_for_another_pipeline() -> None:
    fleet = make_fleet([330, 330, 210, 210, 210, 210])
    found = plan_fleet([make_demand(fleet, pipelines=3)], scratch_bytes=SCRATCH)
    assert len(found.plans["toy"]) >= 2


def test_a_pc_that_serves_now_is_left_to_its_pipeline() -> None:
    fleet = make_fleet([1000] * 3)
    first = plan_fleet([make_demand(fleet, pipelines=2)], scratch_bytes=SCRATCH).plans["toy"]
    again = plan_fleet([make_demand(fleet, pipelines=3, current=tuple(reversed(first)))], scratch_bytes=SCRATCH)
    assert [plan.stages[0].name for plan in again.plans["toy"]] == ["pc-1", "pc-0", "pc-2"]


def test_the_order_of_models_and_pcs_changes_nothing() -> None:
    fleet = make_fleet([300, 400, 500, 350, 320])
    demands = [make_demand(fleet, model=named(name), pipelines=2) for name in ("one", "two")]
    expected = plan_fleet(demands, scratch_bytes=SCRATCH)
    for order in list(permutations(fleet))[::40]:
        turned = [make_demand(list(order), model=one.model, pipelines=2) for one in reversed(demands)]
        assert plan_fleet(turned, scratch_bytes=SCRATCH).plans == expected.plans


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_no_pc_is_given_more_than_it_has(seed: int, pipelines: int) -> None:
    chance = random.Random(seed)
    fleet = make_fleet([chance.randrange(120, 900) for _ in range(6)])
    demands = [make_demand(fleet, model=named(name), pipelines=pipelines) for name in ("one", "two")]
    found = plan_fleet(demands, scratch_bytes=SCRATCH)
    for agent in fleet:
        taken = [
            stage.memory_bytes
            for plans in found.plans.values()
            for plan in plans
            for stage in plan.stages
            if stage.device_id == agent.device_id
        ]
        assert sum(taken) <= agent.memory_budget_bytes
    for plans in found.plans.values():
        used = [stage.device_id for plan in plans for stage in plan.stages]
        assert len(used) == len(set(used))
        assert all(plan.stages[-1].last == 12 for plan in plans)
    assert all((name in found.missing) == (len(plans) < pipelines) for name, plans in found.plans.items())
    assert all(stage.memory_bytes >= MB for plans in found.plans.values() for plan in plans for stage in plan.stages)
