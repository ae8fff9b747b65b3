"""Where the stages of a plan are, and what is said of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from console.api.admin import types as wire
from console.gui.plans import words
from console.gui.plans.geometry import lay_out
from console.gui.plans.model import Edited, Place, Stage
from console.planner.given import CheckedPipeline, CheckedPlan, CheckedStage
from console.planner.types import PlannedStage

PLAN = Edited(wire.DeployRequest("toy"), 12, ((Stage("a", 0, 4), Stage("b", 4, 12)), (Stage("c", 0, 12),)))


def test_stages_and_borders_are_found_where_they_are_drawn() -> None:
    layout = lay_out(PLAN, PLAN, 1000.0, 16.0)
    first, second = layout.lanes[0].stages
    assert second.x == pytest.approx(first.x + first.width)
    assert layout.stage_at(second.x + 50, second.y + 5) == Place(0, 1)
    assert layout.border_at(second.x + 2, second.y + 5) == Place(0, 0)
    assert layout.border_at(second.x + second.width, second.y + 5) is None, "the last border stays"
    assert layout.border_near(second.x + layout.layer_width * 2.4) == 6
    alone = layout.lanes[1].stages[0]
    assert layout.stage_at(alone.x + 5, alone.y + 5) == Place(1, 0)
    assert layout.stage_at(alone.x + 5, layout.height + 1) is None
    assert layout.lanes[1].running
    assert layout.height > alone.y + alone.height


def test_layer_numbers_leave_room_between_them() -> None:
    many = Edited(wire.DeployRequest("toy"), 80, ((Stage("a", 0, 80),),))
    ticks = lay_out(many, None, 600.0, 16.0).lanes[0].ticks
    assert [layer for _, layer in ticks][:3] == [0, 8, 16]
    assert all(later - earlier >= 40 for (earlier, _), (later, _) in pairwise(ticks))


def test_a_stage_says_how_full_its_pc_is() -> None:
    full = CheckedStage(PlannedStage("a", "pc-a", "CPU", "auto", 3, 4, 1.5, 2_100_000_000), 2_000_000_000)
    assert words.memory(full) == "2.1 GB of 2.0 GB"
    assert words.filled(full) == pytest.approx(1.05)
    assert words.stage_sentence("pc-a", 0, 1, full, ["It is too small."]) == (
        "pc-a, pipeline 1, stage 2: layer 3, 2.1 GB of 2.0 GB, 1.5 ms a step and 0.0 ms on the way. It is too small."
    )
    assert words.filled(CheckedStage(full.stage, 0)) > 1


def found(moved: int, fetch_bytes: int, **more: Any) -> CheckedPlan:
    stages = [CheckedStage(PlannedStage("a", "pc-a", "CPU", "auto", 0, 4, 1.0, 1, fetch_bytes), 1, moved)]
    return CheckedPlan("toy", 4, [CheckedPipeline(stages, None)], [], [], [], **({"runs": True} | more))


@pytest.mark.parametrize(
    ("checked", "lines"),
    [
        (found(0, 0), ["Every layer stays where it runs now."]),
        (found(0, 5_000_000), ["Every layer stays where it runs now. 5 MB have to be fetched."]),
        (found(0, 0, leaves=["pc-b"]), ["No layer moves. Every PC has its layers on its disk.", "Leaves: pc-b."]),
        (found(1, 0, joins=["pc-a"]), ["1 layer moves. Every PC has its layers on its disk.", "Joins: pc-a."]),
        (found(4, 1_000_000), ["4 layers move. 1 MB have to be fetched."]),
        (found(0, 0, runs=False), ["Nothing of it runs now.", "Every PC has its layers on its disk."]),
    ],
)
def test_what_would_change_is_said(checked: CheckedPlan, lines: list[str]) -> None:
    assert words.difference(checked) == lines


def test_pipelines_that_wait_are_said_with_what_to_do() -> None:
    assert words.waits(PLAN) == ""
    assert "1 pipeline waits for PCs" in words.waits(msgspec.structs.replace(PLAN, waiting=1))
    assert "2 pipelines wait for PCs" in words.waits(msgspec.structs.replace(PLAN, waiting=2))
