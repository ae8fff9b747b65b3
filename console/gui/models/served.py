"""One library in detail: what it is, where it is served, and what can be done with it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from agent.look.widgets import Table, heading, label, scrolled, title
from console.api.admin import types as wire
from console.gui.handing import begin_chat, copy_base_url, copy_curl
from console.gui.models import texts
from console.gui.models.parts import Facts, across, button, say
from console.gui.page import Desk
from console.gui.times import moment_text, size_text
from shard_export.library.counts import counted


class PipelineView(QFrame):
    """One pipeline: the proof that it answers, its stages, who stands by, how it guesses ahead."""

    wants_pc = Signal(str)
    """Somebody wants to see a PC: its id."""

    def __init__(self) -> None:
        super().__init__()
        self.pipeline: wire.PipelineView | None = None
        self.state = label()
        self.message = label()
        self.stages = Table("Stages", ["Layers", "PC", "Engine", "Way", "ms a step"], stretch=1)
        self.stages.cellActivated.connect(lambda row, _: self._want(row))
        self.stages.setToolTip("Double-click a stage, or press Enter, to see its PC")
        self.more = label(quiet=True)
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        for widget in (self.state, self.message, self.stages, self.more):
            rows.addWidget(widget)

    def show_pipeline(self, pipeline: wire.PipelineView, number_of: int) -> None:
        """Show how a pipeline is now."""
        self.pipeline = pipeline
        bad = pipeline.state == "failed" or (pipeline.probe.age_s is not None and not pipeline.probe.ok)
        say(self.state, texts.pipeline_text(pipeline, number_of), bad=bad)
        say(self.message, pipeline.message, bad=pipeline.state == "failed")
        self.stages.show_rows(texts.stage_rows(pipeline), right=(4,))
        self.stages.setVisible(bool(pipeline.stages))
        rows = self.stages.verticalHeader().minimumSectionSize() * len(pipeline.stages)
        frame = 2 * self.stages.frameWidth()
        self.stages.setFixedHeight(rows + self.stages.horizontalHeader().sizeHint().height() + frame)
        busy = f"{pipeline.tokens_per_second:.1f} tokens/s, {pipeline.running} running, {pipeline.queued} waiting."
        say(self.more, "\n".join([busy, texts.standbys_text(pipeline), texts.speculation_text(pipeline)]))

    def _want(self, row: int) -> None:
        if self.pipeline is not None and row < len(self.pipeline.stages):
            self.wants_pc.emit(self.pipeline.stages[row].device_id)


class LibraryView(QWidget):
    """The library that is selected, and its pipelines."""

    wants = Signal(str, str)
    said = Signal(str, bool)
    deploy = Signal()
    undeploy = Signal()
    deliver = Signal()
    remove = Signal()

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk
        self.library: wire.Library | None = None
        self.pipelines: list[PipelineView] = []
        self.name = title()
        self.problem = label()
        self.problem.setObjectName("problem")
        self.facts = Facts()
        self.deploy_now = button("&Deploy…", self.deploy.emit)
        self.take_down = button("&Take down…", self.undeploy.emit)
        self.bring = button("Bring to &PCs…", self.deliver.emit)
        self.forget = button("&Remove…", self.remove.emit)
        self.curl = button("Copy c&url", self._copy_curl)
        self.url = button("Copy base UR&L", lambda: copy_base_url(desk.bridge.access, self.said.emit))
        self.open_chat = button("Open &chat", lambda: begin_chat(self.said.emit))
        self.served = heading("Served by")
        inside = QWidget()
        self._rows = QVBoxLayout(inside)
        self._rows.setContentsMargins(self.fontMetrics().height() // 2, 0, self.fontMetrics().height() // 2, 0)
        for widget in (self.name, self.problem, self.facts):
            self._rows.addWidget(widget)
        self._rows.addLayout(across(self.deploy_now, self.take_down, self.bring, self.forget))
        self._rows.addWidget(self.served)
        self._rows.addLayout(across(self.open_chat, self.curl, self.url))
        self._cards = QVBoxLayout()
        self._rows.addLayout(self._cards)
        self._rows.addStretch(1)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scrolled(inside))

    def show_library(self, library: wire.Library, pipelines: Sequence[wire.PipelineView]) -> None:
        """Show a library and who serves it now."""
        self.library = library
        self.name.setText(library.model_id)
        say(self.problem, f"{library.problem} Then add it again." if library.problem else "", bad=True)
        self.facts.show_facts(
            [
                ("Family", library.family or "-"),
                ("Size", size_text(library.size_bytes)),
                ("Layers", str(library.layer_count or "-")),
                ("Context", counted(library.context_tokens, "token") if library.context_tokens else "-"),
                ("Weights", texts.stored_text(library)),
                ("Quality", texts.quality_text(library)),
                ("Folder", library.folder),
                ("Added", moment_text(library.added_s)),
            ]
        )
        mine = sorted((one for one in pipelines if one.model == library.model_id), key=lambda one: one.number)
        self._show_pipelines(mine)
        may, is_served = self._desk.may("operate"), bool(mine)
        target = library.role == "target" and not library.problem
        self.deploy_now.setVisible(may and target)
        self.deploy_now.setText("&Deploy anew…" if is_served else "&Deploy…")
        self.take_down.setVisible(may and is_served)
        self.bring.setVisible(may and not library.problem)
        self.forget.setVisible(may)
        self.forget.setEnabled(not is_served)
        self.forget.setToolTip("It is served; take it down first." if is_served else "")
        for widget in (self.served, self.open_chat, self.curl, self.url):
            widget.setVisible(is_served)

    def _show_pipelines(self, pipelines: Sequence[wire.PipelineView]) -> None:
        while len(self.pipelines) < len(pipelines):
            card = PipelineView()
            card.wants_pc.connect(lambda device: self.wants.emit("devices", device))
            self.pipelines.append(card)
            self._cards.addWidget(card)
        for place, card in enumerate(self.pipelines):
            card.setVisible(place < len(pipelines))
            if place < len(pipelines):
                card.show_pipeline(pipelines[place], len(pipelines))

    def _copy_curl(self) -> None:
        if self.library is not None:
            copy_curl(self._desk.bridge.access, self.library.model_id, self.said.emit)
