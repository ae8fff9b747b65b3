"""What is said of a plan and its check, in words. No Qt."""

from __future__ import annotations

from collections.abc import Sequence

from console.gui.plans.model import Edited
from console.gui.times import ZERO, size_text
from console.planner.given import CheckedPipeline, CheckedPlan, CheckedStage
from shard_export.library.counts import counted


def layers(first: int, last: int) -> str:
    """Name the layers `first <= i < last`."""
    return f"layer {first}" if last - first == 1 else f"layers {first}\N{EN DASH}{last - 1}"


def memory(stage: CheckedStage) -> str:
    """Say how much of its PC's memory a stage takes."""
    return f"{size_text(stage.stage.memory_bytes, ZERO)} of {size_text(stage.budget_bytes, ZERO)}"


def filled(stage: CheckedStage) -> float:
    """Return how full its PC's memory is: 1 is full, more does not fit."""
    needed = stage.stage.memory_bytes
    return needed / stage.budget_bytes if stage.budget_bytes else (2.0 if needed else 0.0)


def headline(found: CheckedPlan) -> str:
    """Say how fast the plan answers."""
    plans = [one.plan for one in found.pipelines]
    known = [plan for plan in plans if plan is not None]
    if not known or len(known) < len(plans):
        return "How fast it is cannot be said yet."
    full = sum(plan.full_tokens_per_second for plan in known)
    slowest = min(plan.tokens_per_second for plan in known)
    streams = sum(plan.streams for plan in known)
    one = f"{slowest:.1f} tokens/s for one answer ({1000 / slowest:.0f} ms a token)"
    return f"{one}, {full:.1f} tokens/s over all of up to {streams}."


def lane_rate(pipeline: CheckedPipeline) -> str:
    """Say how fast one pipeline is; empty where that cannot be said."""
    plan = pipeline.plan
    return (
        "" if plan is None else f"{plan.tokens_per_second:.1f} tokens/s, {1000 / plan.tokens_per_second:.0f} ms a token"
    )


def difference(found: CheckedPlan) -> list[str]:
    """Say what would change against what runs, over all pipelines."""
    stages = [one for pipeline in found.pipelines for one in pipeline.stages]
    fetched = sum(one.stage.fetch_bytes for one in stages)
    fetch = f"{size_text(fetched)} have to be fetched." if fetched else "Every PC has its layers on its disk."
    if not found.runs:
        return ["Nothing of it runs now.", fetch]
    moved = sum(one.moved_layers for one in stages)
    if not moved and not found.joins and not found.leaves:
        stays = "Every layer stays where it runs now."
        return [f"{stays} {fetch}" if fetched else stays]
    moves = counted(moved, "layer moves.", "layers move.") if moved else "No layer moves."
    lines = [f"{moves} {fetch}"]
    lines += [f"Joins: {', '.join(found.joins)}."] if found.joins else []
    return lines + ([f"Leaves: {', '.join(found.leaves)}."] if found.leaves else [])


def waits(plan: Edited) -> str:
    """Say that pipelines have no PCs, and what to do; empty where none waits."""
    if not plan.waiting:
        return ""
    one = plan.waiting == 1
    return (
        f"{plan.waiting} {'pipeline waits' if one else 'pipelines wait'} for PCs, and this plan would end "
        f"{'it' if one else 'them'}: add {'it' if one else 'them'}, or let the planner plan. With fewer pipelines, "
        "deploy the model anew on the page of models."
    )


def faults_at(found: CheckedPlan | None, pipeline: int, stage: int) -> list[str]:
    """Return what is wrong with one stage."""
    faults = () if found is None else found.faults
    return [fault.text for fault in faults if (fault.pipeline, fault.stage) == (pipeline, stage)]


def stage_sentence(name: str, number: int, index: int, checked: CheckedStage | None, faults: Sequence[str]) -> str:
    """Say everything of a stage, for screen readers and for where there is no room."""
    text = f"{name}, pipeline {number + 1}, stage {index + 1}"
    if checked is not None:
        stage = checked.stage
        text += f": {layers(stage.first, stage.last)}"
        if stage.memory_bytes:
            text += f", {memory(checked)}, {stage.ms:.1f} ms a step and {stage.hop_ms:.1f} ms on the way"
    return f"{text}. {' '.join(faults)}".strip()
