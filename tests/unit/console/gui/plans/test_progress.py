"""How far a plan is that is being applied, where things are, and what is said of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from console.api.admin import types as wire
from console.gui.plans import words
from console.gui.plans.geometry import lay_out
from console.gui.plans.model import Edited, Place, Stage
from console.gui.plans.progress import Progress
from console.planner.given import CheckedStage
from console.planner.types import PlannedStage

STAGES = [wire.PlannedStage(0, "a", "pc-a", 0, 4), wire.PlannedStage(1, "b", "pc-b", 4, 12)]
PLAN = Edited(wire.DeployRequest("toy"), 12, ((Stage("a", 0, 4), Stage("b", 4, 12)), (Stage("c", 0, 12),)))


def after(*events: wire.DeployEvent) -> Progress:
    progress = Progress()
    for event in events:
        progress = progress.heard(event)
    return progress


def test_each_stage_counts_alike_and_nothing_goes_back() -> None:
    begun = after(wire.Planned(STAGES, [], 1), wire.Loading(0, "pc-a", "fetch", 1_000_000, 2_000_000))
    assert begun.share == pytest.approx(0.2)
    assert begun.text == "pc-a fetches its layers: 1 MB of 2 MB."
    loading = begun.heard(wire.Loading(0, "pc-a", "load", 0, 1)).heard(wire.Loading(0, "pc-a", "fetch", 0, 2))
    assert loading.share == pytest.approx(0.4)
    up = loading.heard(wire.StageUp(0, "pc-a", "paged", True, 1.0, 1)).heard(wire.Note("It makes room."))
    assert up.share == pytest.approx(0.5)
    assert up.notes == ("It makes room.",)


def test_the_end_says_how_it_came_out() -> None:
    ready = after(wire.Planned(STAGES, [], 1), wire.Ready("toy", 12.3))
    assert (ready.state, ready.share) == ("ready", 1.0)
    failed = after(wire.Broken("refused", "pc-a is away."))
    assert (failed.state, failed.share) == ("failed", 0.0)
    assert failed.text == "pc-a is away. What was served before stays."


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
