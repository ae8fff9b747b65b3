"""The table of what is served: each pipeline, and how fast its model answered lately."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from console.api.admin import types as wire
from console.gui.overview.widgets import ms_text
from console.gui.rows import Heading, KeyedModel
from console.gui.times import age_text


@dataclass(frozen=True, slots=True)
class Served:
    """A pipeline; `measured` None: nobody asked its model in the last minutes."""

    pipeline: wire.PipelineView
    measured: wire.ModelPerformance | None


def served(pipelines: Iterable[wire.PipelineView], performances: wire.Performances | None) -> list[Served]:
    """Bring pipelines and what was measured together."""
    by_model = {one.model: one for one in performances.models} if performances else {}
    return [Served(pipeline, by_model.get(pipeline.model)) for pipeline in pipelines]


class ServedModel(KeyedModel[Served]):
    """Pipelines, known by their model and number."""

    headings = (
        Heading("Model", 26), Heading("State", 12), Heading("Last token", 18), Heading("Tokens/s", 12, number=True),
        Heading("First token p95", 18, number=True), Heading("Between p95", 16, number=True),
        Heading("Running", 11, number=True), Heading("Waiting", 11, number=True), Heading("Says", 40),
    )  # fmt: skip

    def key_of(self, item: Served) -> str:
        return f"{item.pipeline.number} {item.pipeline.model}"

    def text(self, item: Served, column: int) -> str:
        pipeline, measured, probe = item.pipeline, item.measured, item.pipeline.probe
        last = "never" if probe.age_s is None else f"{age_text(probe.age_s)} ago"
        return (
            pipeline.model,
            pipeline.state,
            last if probe.ok or probe.age_s is None else f"{last}, not fresh",
            f"{pipeline.tokens_per_second:.1f}",
            ms_text(measured.first_token_ms if measured else None),
            ms_text(measured.between_tokens_ms if measured else None),
            str(pipeline.running),
            str(pipeline.queued),
            pipeline.message or ("" if probe.ok else probe.message),
        )[column]
