from __future__ import annotations

import random
from itertools import permutations
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from console.planner.standbys import choose_standbys
from console.planner.types import EMBED, HEAD, AgentFacts, Plan, Rules, Standby
from tests.support.plans import MB, SCRATCH, changed, make_fleet, make_model, make_plan


def make_standbys(plan: Plan, fleet: list[AgentFacts], *, count: int = 2, **changes: Any) -> list[Standby]:
    return choose_standbys(plan, make_model(), fleet, count=count, scratch_bytes=SCRATCH, **changes)


def two_stages(fleet: list[AgentFacts]) -> Plan:
    return make_plan(make_model(), fleet[:2], stages=2)


def test_the_stage_most_likely_to_be_lost_gets_the_first_standby() -> None:
    fleet = changed(changed(make_fleet([300] * 4), 0, stay=0.9), 1, stay=0.6)
    plan = two_stages(fleet)
    weak = next(index for index, stage in enumerate(plan.stages) if stage.name == "pc-1")
    found = make_standbys(plan, fleet, count=1)
    assert [one.stage for one in found] == [weak]
    assert "40%" in found[0].reason


def test_every_stage_gets_one_before_any_gets_two() -> None:
    fleet = make_fleet([300] * 6)
    found = make_standbys(two_stages(fleet), fleet, count=4)
    assert sorted(one.stage for one in found[:2]) == [0, 1]
    assert sorted(one.stage for one in found) == [0, 0, 1, 1]
    assert len({one.device_id for one in found}) == 4


def test_a_standby_takes_the_range_of_its_stage() -> None:
    fleet = make_fleet([300] * 4)
    plan = two_stages(fleet)
    for one in make_standbys(plan, fleet):
        stage = plan.stages[one.stage]
        assert (one.first, one.last, one.memory_bytes) == (stage.first, stage.last, stage.memory_bytes)


def test_a_pc_that_holds_the_units_is_preferred() -> None:
    held = frozenset({EMBED, HEAD, *range(12)})
    fleet = changed(make_fleet([300] * 5), 4, held=held)
    found = make_standbys(two_stages(fleet), fleet, count=1)
    assert (found[0].name, found[0].fetch_bytes) == ("pc-4", 0)
    assert "holds all" in found[0].reason


def test_one_spare_pc_stands_by_warm_for_both_stages_but_hot_only_for_what_fits() -> None:
    fleet = make_fleet([300, 300, 300])
    assert sorted(one.stage for one in make_standbys(two_stages(fleet), fleet, count=4)) == [0, 1]
    assert len(make_standbys(two_stages(fleet), fleet, count=4, kind="hot")) == 1
    large = make_fleet([300, 300, 900])
    assert sorted(one.stage for one in make_standbys(two_stages(large), large, count=4, kind="hot")) == [0, 1]


def test_nobody_stands_by_from_another_site_or_against_the_administrators_word() -> None:
    fleet = changed(make_fleet([300] * 4), 2, site="oslo")
    plan = two_stages(fleet)
    assert {one.name for one in make_standbys(plan, fleet)} == {"pc-3"}
    assert not make_standbys(plan, fleet, rules=Rules(excluded=frozenset({"id-3"})))
    assert not make_standbys(plan, fleet, busy={"id-3"})


def test_a_pc_of_the_plan_that_is_gone_is_the_first_to_need_a_standby() -> None:
    fleet = make_fleet([300] * 4)
    plan = two_stages(fleet)
    lost = plan.stages[1].device_id
    found = make_standbys(plan, [agent for agent in fleet if agent.device_id != lost], count=1)
    assert [one.stage for one in found] == [1]


def test_the_order_of_the_pcs_changes_nothing() -> None:
    fleet = changed(make_fleet([300] * 5), 3, stay=0.7)
    plan = two_stages(fleet)
    expected = make_standbys(plan, fleet, count=3)
    for order in list(permutations(fleet))[::23]:
        assert make_standbys(plan, list(order), count=3) == expected


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 8), st.sampled_from(["warm", "hot"]))
def test_standbys_fit_and_are_never_part_of_the_plan(seed: int, count: int, kind: Any) -> None:
    chance = random.Random(seed)
    fleet = [
        msgspec.structs.replace(agent, stay=chance.random())
        for agent in make_fleet([300, 300, *(chance.randrange(100, 700) for _ in range(5))])
    ]
    plan = two_stages(fleet)
    found = make_standbys(plan, fleet, count=count, kind=kind)
    assert len(found) <= count
    assert not {one.device_id for one in found} & {stage.device_id for stage in plan.stages}
    assert len({(one.device_id, one.stage) for one in found}) == len(found)
    budgets = {agent.device_id: agent.memory_budget_bytes for agent in fleet}
    for device_id, budget in budgets.items():
        sizes = [one.memory_bytes for one in found if one.device_id == device_id]
        assert (sum(sizes) if kind == "hot" else max(sizes, default=0)) <= budget
    assert all(one.memory_bytes <= 700 * MB for one in found)
