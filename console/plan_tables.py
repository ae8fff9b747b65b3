"""How the command line shows plans that nobody carries out."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from console.api.admin.plan_types import Answers, PlannedPipeline, Plans, Question
from console.planner.given import CheckedPlan
from console.planner.types import Plan
from console.tables import gigabytes, moment, table


def plans(found: Plans) -> Iterator[Table | str]:
    """Yield each pipeline with its stages, memory and speed, then what is missing."""
    for number, pipeline in enumerate(found.pipelines, 1):
        yield from _pipeline(found.model, number, pipeline)
    yield from found.reasons
    if found.missing:
        yield found.missing


def _pipeline(model: str, number: int, pipeline: PlannedPipeline) -> Iterator[Table | str]:
    plan = pipeline.plan
    yield f"{model}, pipeline {number}:"
    yield table(
        ("layers", "PC", "device", "memory", "to fetch", "ms/step", "ms/hop"),
        [
            (
                f"{stage.first}-{stage.last - 1}",
                stage.name,
                stage.device,
                gigabytes(stage.memory_bytes),
                gigabytes(stage.fetch_bytes),
                f"{stage.ms:.2f}",
                f"{stage.hop_ms:.2f}",
            )
            for stage in plan.stages
        ],
    )
    yield _predicted(plan)
    yield from plan.reasons
    if pipeline.standbys:
        yield table(
            ("stands by for", "PC", "kind", "to fetch", "note"),
            [
                (f"{one.first}-{one.last - 1}", one.name, one.kind, gigabytes(one.fetch_bytes), one.reason)
                for one in pipeline.standbys
            ],
        )


def checked(found: CheckedPlan) -> Iterator[Table | str]:
    """Yield each pipeline of a plan made by hand, what is good to know, then what is wrong with it."""
    for number, pipeline in enumerate(found.pipelines, 1):
        yield f"{found.model_id}, pipeline {number}:"
        yield table(
            ("layers", "PC", "memory", "of", "to fetch", "new layers", "ms/step", "ms/hop"),
            [
                (
                    f"{one.stage.first}-{one.stage.last - 1}",
                    one.stage.name,
                    gigabytes(one.stage.memory_bytes),
                    gigabytes(one.budget_bytes),
                    gigabytes(one.stage.fetch_bytes),
                    one.moved_layers,
                    f"{one.stage.ms:.2f}",
                    f"{one.stage.hop_ms:.2f}",
                )
                for one in pipeline.stages
            ],
        )
        if pipeline.plan is not None:
            yield _predicted(pipeline.plan)
    for text, names in (("Joins", found.joins), ("Leaves", found.leaves)):
        if names:
            yield f"{text}: {', '.join(names)}."
    yield from found.notes
    yield from (f"Wrong: {fault.text}" for fault in found.faults)
    yield "It cannot be deployed like this." if found.faults else "It can be deployed."


def answers(found: Answers, question: Question) -> Iterator[Table | str]:
    """Yield a line for each model, then why."""
    yield (
        f"From {moment(question.at_s)} on for {question.for_s / 3600:g} h, with {question.certainty_percent:g}%"
        " certainty:"
    )
    if not found.answers:
        yield "There is no model; add one with: fallow-console models --add FOLDER"
        return
    yield table(
        ("model", "certainty", "pipelines", "stages", "tokens/s"),
        [
            (
                one.model_id,
                f"{100 * one.chance:.1f} %",
                one.pipelines,
                one.stages or "",
                f"{one.tokens_per_second:.1f}" if one.stages else "",
            )
            for one in found.answers
        ],
    )
    for one in found.answers:
        yield f"{one.model_id}: {' '.join(one.reasons)}"


def _predicted(plan: Plan) -> str:
    return (
        f"Predicted: {plan.tokens_per_second:.1f} tokens/s for one answer, {plan.full_tokens_per_second:.1f} over all"
        f" of up to {plan.streams}."
    )
