"""Every edit leaves a plan in which each pipeline holds every layer once and no PC has two stages."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.api.admin import types as wire
from console.api.admin.plan_types import PlannedPipeline, Plans
from console.gui.plans import model
from console.gui.plans.model import Edited, Place, Stage, covers
from console.pipeline.types import StageStatus
from console.planner.types import Plan, PlannedStage

SETTINGS = wire.DeployRequest("small", context=256, streams=2)
FIRST = Place(0, 0)


def plan(*lanes: str, layers: int = 12) -> Edited:
    """Read lanes like "a4 b8": PCs with so many layers each."""
    made = []
    for lane in lanes:
        stages, reached = [], 0
        for word in lane.split():
            stages.append(Stage(word[0], reached, reached + int(word[1:])))
            reached += int(word[1:])
        made.append(tuple(stages))
    return Edited(SETTINGS, layers, tuple(made))


def shown(edited: Edited) -> list[str]:
    return [" ".join(f"{one.device_id}{one.last - one.first}" for one in lane) for lane in edited.lanes]


def test_a_border_moves_as_far_as_both_stages_keep_a_layer() -> None:
    assert shown(model.move_border(plan("a4 b8"), FIRST, 6)) == ["a6 b6"]
    assert shown(model.move_border(plan("a4 b8"), FIRST, -5)) == ["a1 b11"]
    assert shown(model.move_border(plan("a4 b4 c4"), Place(0, 1), 99)) == ["a4 b7 c1"]
    unchanged = plan("a4 b8")
    assert model.move_border(unchanged, Place(0, 1), 3) is unchanged
    assert model.move_border(unchanged, FIRST, 4) is unchanged


def test_a_stage_goes_to_another_pc_and_two_change_places() -> None:
    assert shown(model.give(plan("a4 b8"), FIRST, "c")) == ["c4 b8"]
    assert shown(model.give(plan("a4 b8"), FIRST, "b")) == ["b4 a8"]
    assert shown(model.give(plan("a4 b8", "c12"), Place(1, 0), "a")) == ["c4 b8", "a12"]
    unchanged = plan("a12")
    assert model.give(unchanged, FIRST, "a") is unchanged


def test_a_stage_is_split_with_a_free_pc_and_merged_again() -> None:
    assert shown(model.split(plan("a12"), FIRST, "b")) == ["a6 b6"]
    assert shown(model.split(plan("a3 b9"), FIRST, "c")) == ["a2 c1 b9"]
    assert shown(model.merge(plan("a4 b4 c4"), FIRST)) == ["a8 c4"]
    assert shown(model.merge(plan("a4 b4 c4"), Place(0, 2))) == ["a4 c8"]
    unchanged = plan("a1 b11")
    assert model.split(unchanged, FIRST, "c") is unchanged, "one layer"
    assert model.split(unchanged, Place(0, 1), "a") is unchanged, "it has a stage"
    alone = plan("a12")
    assert model.merge(alone, FIRST) is alone


def test_pipelines_come_and_go_but_the_last_one_stays() -> None:
    assert shown(model.add_pipeline(plan("a12"), "b")) == ["a12", "b12"]
    assert shown(model.remove_pipeline(plan("a12", "b12"), 0)) == ["b12"]
    alone = plan("a12")
    assert model.remove_pipeline(alone, 0) is alone
    assert model.add_pipeline(alone, "a") is alone


def test_a_pc_is_pinned_or_left_out_but_never_both() -> None:
    pinned = model.pin(plan("a12"), "a", True)
    assert pinned.pinned == {"a"}
    out = model.leave_out(pinned, "a", True)
    assert not out.pinned
    assert out.excluded == {"a"}
    again = model.pin(out, "a", True)
    assert again.pinned == {"a"}
    assert not again.excluded
    assert model.pin(again, "a", True) is again
    assert model.pin(again, "a", False) == plan("a12")
    assert model.leave_out(out, "a", False) == plan("a12")


def test_what_is_asked_for_says_the_plan_and_all_the_rest() -> None:
    asked = model.promise(plan("a4 b8", "c12"), context=512, streams=4).request()
    assert (asked.context, asked.streams, asked.replicas, asked.stages) == (512, 4, 2, None)
    assert asked.plan[0] == [wire.GivenStage("a", 0, 4), wire.GivenStage("b", 4, 12)]
    assert plan().request().plan == []
    assert asked.devices == []
    among = msgspec.structs.replace(plan("a4 b8"), settings=msgspec.structs.replace(SETTINGS, devices=["b", "c"]))
    assert among.request().devices == ["b", "c", "a"]


def view(number: int, stages: list[Stage], request: wire.DeployRequest = SETTINGS) -> wire.PipelineView:
    shown_stages = [
        StageStatus(one.device_id, one.device_id, one.first, one.last, "paged", True, 1, 1) for one in stages
    ]
    return wire.PipelineView("small", "ready", "", 1, wire.Probe(), request, number=number, stages=shown_stages)


def test_what_runs_is_read_from_the_status_in_the_order_of_its_pipelines() -> None:
    views = [view(1, [Stage("c", 0, 12)]), view(0, [Stage("a", 0, 4), Stage("b", 4, 12)])]
    assert model.running(views, 12) == plan("a4 b8", "c12")
    assert model.running([], 12) is None
    other = model.running([view(0, [Stage("a", 0, 4)])], 12)
    assert other == waiting(plan(), 1), "another export of the model"


def waiting(edited: Edited, count: int) -> Edited:
    return msgspec.structs.replace(edited, waiting=count)


def test_pipelines_that_wait_for_pcs_stay_asked_for() -> None:
    asked = msgspec.structs.replace(SETTINGS, replicas=3)
    runs = model.running([view(0, [], asked), view(1, [Stage("a", 0, 12)], asked)], 12)
    assert runs == waiting(plan("a12"), 2), "one of them was not even tried yet"
    again = runs.again()
    assert (again.replicas, again.plan) == (3, []), "who gets them the planner says"
    assert plan("a12").again() == plan("a12").request()
    added = model.add_pipeline(runs, "b")
    assert added == waiting(plan("a12", "b12"), 1)
    assert model.add_pipeline(added, "c").waiting == 0
    assert model.add_pipeline(plan("a12"), "b").waiting == 0


def test_what_the_planner_finds_no_pcs_for_still_waits() -> None:
    stages = [PlannedStage("x", "x", "CPU", "auto", 0, 12, 1.0, 1)]
    made = PlannedPipeline(Plan("small", 256, 2, stages, 1.0, 1.0, []), [])
    assert model.with_plans(waiting(plan("a12"), 1), Plans("small", [made], [])) == waiting(plan("x12"), 1)
    both = Plans("small", [made, made], [])
    assert model.with_plans(waiting(plan("a12"), 1), both).waiting == 0


def test_what_is_down_for_now_is_shown_as_it_was_asked_for() -> None:
    asked = wire.DeployRequest("small", context=256, streams=2, plan=[[wire.GivenStage("a", 0, 12)]])
    assert model.running([view(0, [], asked)], 12) == plan("a12")


def test_the_planners_stages_take_the_place_of_all() -> None:
    stages = [PlannedStage("x", "x", "CPU", "auto", 0, 5, 1.0, 1), PlannedStage("y", "y", "CPU", "auto", 5, 12, 1.0, 1)]
    made = Plans("small", [PlannedPipeline(Plan("small", 256, 2, stages, 1.0, 1.0, []), [])], [])
    assert shown(model.with_plans(plan("a12"), made)) == ["x5 y7"]
    other = plan("a12", layers=11)
    assert model.with_plans(other, made) is other


PCS = st.sampled_from("abcdef")
PLACES = st.builds(Place, st.integers(-1, 3), st.integers(-1, 4))
EDITS: st.SearchStrategy[Callable[[Edited], Edited]] = st.one_of(
    st.builds(lambda at, border: lambda one: model.move_border(one, at, border), PLACES, st.integers(-3, 15)),
    st.builds(lambda at, pc: lambda one: model.give(one, at, pc), PLACES, PCS),
    st.builds(lambda at, pc: lambda one: model.split(one, at, pc), PLACES, PCS),
    st.builds(lambda at: lambda one: model.merge(one, at), PLACES),
    st.builds(lambda pc: lambda one: model.add_pipeline(one, pc), PCS),
    st.builds(lambda number: lambda one: model.remove_pipeline(one, number), st.integers(-1, 3)),
    st.builds(lambda pc, on: lambda one: model.pin(one, pc, on), PCS, st.booleans()),
    st.builds(lambda pc, on: lambda one: model.leave_out(one, pc, on), PCS, st.booleans()),
)


@settings(max_examples=150)
@given(start=st.sampled_from(["a12", "a4 b8", "a1 b1 c10"]), edits=st.lists(EDITS, max_size=12))
def test_whatever_is_done_every_layer_is_there_once_and_no_pc_twice(
    start: str, edits: list[Callable[[Edited], Edited]]
) -> None:
    edited = plan(start)
    for edit in edits:
        edited = edit(edited)
        assert edited.lanes
        assert all(covers(lane, 12) for lane in edited.lanes)
        everyone = [stage.device_id for lane in edited.lanes for stage in lane]
        assert len(everyone) == len(set(everyone))
        assert not edited.pinned & edited.excluded


@pytest.mark.parametrize(
    "stages", [[], [Stage("a", 0, 11)], [Stage("a", 1, 12)], [Stage("a", 0, 6), Stage("b", 5, 12)]]
)
def test_gaps_and_doubles_do_not_cover(stages: list[Stage]) -> None:
    assert not covers(stages, 12)
