from __future__ import annotations

import pytest

from console.planner.types import Pin, Plan, Rules
from tests.support.plans import MB, changed, make_fleet, make_model, make_plan


@pytest.fixture
def running() -> Plan:
    return make_plan(make_model(), make_fleet([300, 300]))


def places(found: Plan) -> list[tuple[str, int, int]]:
    return [(stage.name, stage.first, stage.last) for stage in found.stages]


def test_a_running_plan_makes_no_room_for_one_that_is_a_little_better(running: Plan) -> None:
    better = make_fleet([300, 300, 300, 300], [0.1, 0.1, 0.085, 0.085])
    found = make_plan(make_model(), better, current=running)
    assert places(found) == places(running)
    assert "1.25" in found.reasons[0]
    assert found.moved_layers == 0


def test_a_running_plan_makes_room_for_one_that_is_a_quarter_better(running: Plan) -> None:
    better = make_fleet([300, 300, 300, 300], [0.1, 0.1, 0.05, 0.05])
    found = make_plan(make_model(), better, current=running)
    assert {stage.name for stage in found.stages} == {"pc-2", "pc-3"}
    assert found.moved_layers == 12


def test_a_running_plan_makes_room_where_its_pcs_are_about_to_leave(running: Plan) -> None:
    fleet = changed(make_fleet([300] * 4), 0, stay=0.3)
    assert "pc-0" not in {stage.name for stage in make_plan(make_model(), fleet, current=running).stages}


def test_a_pc_that_is_gone_is_replaced_and_the_others_keep_their_layers(running: Plan) -> None:
    fleet = make_fleet([300, 300, 300, 300])
    found = make_plan(make_model(), fleet[1:], current=running)
    kept = next(stage for stage in running.stages if stage.name == "pc-1")
    assert ("pc-1", kept.first, kept.last) in places(found)
    assert found.moved_layers == 12 - (kept.last - kept.first)


@pytest.mark.parametrize("pcs", [5, 20])
def test_only_the_gap_of_a_lost_pc_is_filled_even_where_other_borders_are_a_little_better(pcs: int) -> None:
    fleet = make_fleet([260] * pcs, [0.1 + 0.004 * (place % 5) for place in range(pcs)])
    running = make_plan(make_model(), fleet[:3], stages=3)
    lost = running.stages[1]
    found = make_plan(make_model(), [agent for agent in fleet if agent.device_id != lost.device_id], current=running)
    assert {(stage.name, stage.first, stage.last) for stage in running.stages if stage is not lost} <= set(
        places(found)
    )
    assert found.moved_layers == lost.last - lost.first
    assert "only the gap is filled" in found.reasons[0]


@pytest.mark.parametrize("layers", [8, 16])
def test_a_plan_for_another_export_of_the_model_is_not_repaired(layers: int) -> None:
    fleet = make_fleet([260] * 5)
    running = make_plan(make_model(), fleet[:3], stages=3)
    left = [agent for agent in fleet if agent.device_id != running.stages[0].device_id]
    found = make_plan(make_model(layers=layers), left, current=running)
    assert found.stages[-1].last == layers
    assert "gap" not in found.reasons[0]


def test_those_that_are_left_move_where_filling_the_gap_costs_too_much() -> None:
    fleet = make_fleet([300, 300, 300, 300], [0.1, 0.1, 0.02, 0.02])
    running = make_plan(make_model(), fleet[:2])
    found = make_plan(make_model(), fleet[1:], current=running)
    assert {stage.name for stage in found.stages} == {"pc-2", "pc-3"}


@pytest.mark.parametrize(
    "change",
    [
        {"rules": Rules(excluded=frozenset({"id-0"}))},
        {"rules": Rules(pins=(Pin("id-2"),))},
        {"stages": 3},
        {"streams": 40},
    ],
)
def test_a_running_plan_that_may_not_be_any_more_does_not_stay(running: Plan, change: dict[str, object]) -> None:
    found = make_plan(make_model(), make_fleet([300, 300, 300, 900]), current=running, **change)
    assert places(found) != places(running)
    assert not any("stays" in reason for reason in found.reasons)


def test_a_running_plan_that_misses_the_wanted_rate_makes_room() -> None:
    fleet = make_fleet([1000] * 4)
    alone = make_plan(make_model(), fleet)
    rules = Rules(target_tokens_per_second=1.2 * alone.full_tokens_per_second)
    assert len(make_plan(make_model(), fleet, current=alone, rules=rules).stages) == 2


def test_the_plan_of_another_model_says_nothing() -> None:
    other = make_plan(make_model(layers=6, layer_mb=40), make_fleet([300, 300]))
    found = make_plan(make_model(), make_fleet([300, 300]), current=other)
    assert found.stages[-1].last == 12
    assert sum(stage.memory_bytes for stage in found.stages) > 300 * MB
