"""The overview: the fleet in numbers, and how each model is."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from agent.look.widgets import Table, heading, label
from console.api.admin import types as wire
from console.gui.overview.totals import Totals, count
from console.gui.page import Desk, Page
from console.gui.states import States
from console.gui.times import age_text, size_text


class OverviewPage(Page):
    """What somebody wants to know first."""

    name = "overview"
    heading = "Overview"
    icon = "overview"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk, desk.status, desk.agents)
        self.strip = TotalsStrip()
        self.models = Table("Models", ["Model", "State", "Last probe", "Tokens/s", "Running", "Waiting"])
        self.states = States(self.models)
        self.rows.addWidget(self.strip)
        self.rows.addWidget(heading("Models"))
        self.rows.addWidget(self.states, 1)
        self.states.follow(desk.status)
        desk.status.came.connect(self._show)
        desk.agents.came.connect(self._show)

    def _show(self) -> None:
        status, agents = self.desk.status.latest, self.desk.agents.latest
        if status is None or not self.isVisible():
            return
        self.strip.show_totals(count(agents or [], status.pipelines))
        self.models.show_rows([_row(pipeline) for pipeline in status.pipelines], right=(3, 4, 5))
        if status.pipelines:
            self.states.show_content()
        else:
            self.states.show_empty("No model is served yet.")


def _row(pipeline: wire.PipelineView) -> Sequence[str]:
    probe = pipeline.probe
    said = "never" if probe.age_s is None else f"{'ok' if probe.ok else 'failed'}, {age_text(probe.age_s)} ago"
    speed = f"{pipeline.tokens_per_second:.1f}"
    return [pipeline.model, pipeline.state, said, speed, str(pipeline.running), str(pipeline.queued)]


class TotalsStrip(QFrame):
    """Numbers beside each other, each with what it counts."""

    NAMES = ("PCs connected", "available", "serving", "held", "memory free", "models ready", "tokens/s", "waiting")

    def __init__(self) -> None:
        super().__init__()
        across = QHBoxLayout(self)
        across.setContentsMargins(0, 0, 0, 0)
        self.values = {}
        for name in self.NAMES:
            value = label("-", bold=True, scale=1.6)
            value.setAccessibleName(name)
            value.setWordWrap(False)
            box = QWidget()
            rows = QVBoxLayout(box)
            rows.setContentsMargins(0, 0, 0, 0)
            rows.setSpacing(0)
            rows.addWidget(value)
            rows.addWidget(label(name, quiet=True))
            across.addWidget(box)
            self.values[name] = value

    def show_totals(self, totals: Totals) -> None:
        """Show other numbers."""
        texts = (
            f"{totals.connected} / {totals.known}", str(totals.available), str(totals.serving), str(totals.held),
            size_text(totals.memory_free_bytes), f"{totals.models_ready} / {totals.models}",
            f"{totals.tokens_per_second:.1f}", str(totals.queued),
        )  # fmt: skip
        for name, text in zip(self.NAMES, texts, strict=True):
            self.values[name].setText(text)
