"""The build wizard: pick a model, options, what it will take, and the run, which closing the window does not stop."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QFormLayout,
    QLineEdit,
    QSpinBox,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from agent.look.loop import Job
from agent.look.widgets import heading, label
from console import calls
from console.api.admin import types as wire
from console.api.admin.build_types import Build, BuildEstimate, BuildRequest
from console.errors import ClientError
from console.gui.alive import alive
from console.gui.models.browsing import FolderView
from console.gui.models.parts import Bars, Dialog, Facts, across, button, field, say
from console.gui.models.running import BuildView
from console.gui.models.texts import STORED
from console.gui.page import Desk
from console.gui.times import age_text, size_text
from shard_export.library.counts import counted

PICK, OPTIONS, ESTIMATE, RUN = range(4)
STEPS = ("Pick a model", "Options", "What it will take", "Build")
LIBRARIES = "fallow-libraries"


class OptionsView(QWidget):
    """How to build: what is left alone is chosen by the exporter."""

    def __init__(self, libraries: list[wire.Library]) -> None:
        super().__init__()
        self.out = QLineEdit()
        self.layers = QComboBox()
        for mode, text in STORED.items():
            self.layers.addItem(text, mode)
        self.group = QComboBox()
        for text, size in (("Chosen for each matrix", None), ("32", 32), ("64", 64), ("128", 128)):
            self.group.addItem(text, size)
        self.ratio = QDoubleSpinBox()
        self.ratio.setRange(0.0, 100.0)
        self.ratio.setDecimals(0)
        self.ratio.setSuffix(" %")
        self.context = QSpinBox()
        self.context.setRange(0, 1 << 24)
        self.context.setSpecialValueText("The model's own")
        self.context.setSuffix(" tokens")
        self.draft_for = QComboBox()
        self.draft_for.addItem("No, it answers itself", "")
        for library in libraries:
            if library.role == "target" and not library.problem:
                self.draft_for.addItem(f"Yes, for {library.model_id}", library.model_id)
        self.replace = QCheckBox("Replace a library that is already there")
        self.evaluate = QCheckBox("Measure it against the original at the end (reads the whole model)")
        self.publish = QCheckBox("Add it to the models that can be deployed when it is done")
        self.publish.setChecked(True)
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        for text, widget in (
            ("Folder of the library", self.out),
            ("Weights", self.layers),
            ("Columns for each scale", self.group),
            ("Share kept in 8 bits", self.ratio),
            ("Context", self.context),
            ("Does it guess ahead for another model?", self.draft_for),
        ):
            field(form, text, widget)
        for box in (self.replace, self.evaluate, self.publish):
            form.addRow(box)

    def request(self, source: str) -> BuildRequest:
        """Return what is asked for."""
        return BuildRequest(
            source=source,
            out=self.out.text().strip() or "/",
            layers=self.layers.currentData(),
            group_size=self.group.currentData(),
            int8_ratio=self.ratio.value() / 100,
            context=self.context.value(),
            draft_for=self.draft_for.currentData(),
            replace=self.replace.isChecked(),
            evaluate=self.evaluate.isChecked(),
            publish=self.publish.isChecked(),
        )


class EstimateView(QWidget):
    """What a build needs beside what there is."""

    def __init__(self) -> None:
        super().__init__()
        self.facts = Facts()
        self.bars = Bars()
        self.problems = label()
        self.problems.setObjectName("problems")
        self.notes = label(quiet=True)
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        for widget in (self.facts, self.bars, self.problems, self.notes):
            rows.addWidget(widget)
        rows.addStretch(1)

    def wait(self) -> None:
        """Say that it is asked for."""
        say(self.problems, "Reading the model's headers…")
        say(self.notes, "")

    def show_estimate(self, found: BuildEstimate) -> None:
        """Show what it will take."""
        layers = counted(found.layer_count, "layer")
        self.facts.show_facts(
            [
                ("Model", f"{found.model_id} ({found.family or 'unknown family'}), {layers}"),
                ("Size now", size_text(found.source_bytes)),
                ("Time", f"about {age_text(found.seconds)}, measured anew while it runs"),
            ]
        )
        lacking_bytes = found.library_bytes - found.kept_bytes
        self.bars.show_bars(
            [
                _need("Memory at most", found.memory_bytes, found.memory_free_bytes),
                _need("Disk", lacking_bytes, found.disk_free_bytes),
            ]
        )
        say(self.problems, "\n".join(found.problems), bad=True)
        say(self.notes, "\n".join(found.notes))

    def show_refusal(self, text: str) -> None:
        """Say why it cannot be built."""
        self.bars.show_bars([])
        say(self.problems, text, bad=True)
        say(self.notes, "")


def _need(name: str, needed: int, free: int) -> tuple[str, float, str]:
    return name, min(1.0, needed / max(1, free)), f"{size_text(needed)} of {size_text(free)} free"


class BuildWizard(Dialog):
    """Four steps, or only the last one on a build that is there already (`build_id`)."""

    said = Signal(str, bool)
    begun = Signal()
    deploy = Signal(str)

    def __init__(self, desk: Desk, parent: QWidget, build_id: str = "") -> None:
        super().__init__(parent, "Build a layer library", columns=110, lines=38)
        self._desk = desk
        self._source = self._suggested = ""
        self._asking: Job | None = None
        self.step = heading("")
        self.pick = FolderView(desk.bridge, frozenset({"checkpoint", "gguf"}))
        self.pick.chosen.connect(self._take_source)
        self.options = OptionsView(desk.libraries.latest or [])
        self.estimate = EstimateView()
        self.stack = QStackedWidget()
        for page in (self.pick, self.options, self.estimate):
            self.stack.addWidget(page)
        self.back = button("&Back", lambda: self._go(self.stack.currentIndex() - 1))
        self.next = button("&Next", self._go_on)
        self.next.setDefault(True)
        self.close_button = button("Close", self.close)
        self.rows.addWidget(self.step)
        self.rows.addWidget(self.stack, 1)
        self.rows.addLayout(across(self.back, self.next, self.close_button, ends=True))
        if build_id:
            self._show_build(build_id)
        else:
            self._go(PICK)
            self.pick.open()

    def _show_build(self, build_id: str) -> None:
        """Show a build as it runs."""
        self.run = BuildView(self._desk, build_id)
        self.run.said.connect(self.said)
        self.run.deploy.connect(self.deploy)
        self.stack.addWidget(self.run)
        self._go(RUN)

    def _go(self, place: int) -> None:
        if self._asking is not None:  # what it was asked for may be changed now
            self._asking.cancel()
            self._asking = None
        self.stack.setCurrentIndex(place)
        self.step.setText(f"Step {place + 1} of {len(STEPS)}: {STEPS[place]}")
        self.step.setVisible(place != RUN)
        self.back.setVisible(OPTIONS <= place <= ESTIMATE)
        self.back.setEnabled(True)
        self.next.setVisible(place != RUN)
        self.next.setText("&Start the build" if place == ESTIMATE else "&Next")
        self.next.setEnabled(place == OPTIONS or (place == PICK and bool(self._source)))

    def _take_source(self, path: str) -> None:
        self._source = path
        if self.stack.currentIndex() == PICK:
            self.next.setEnabled(bool(path))

    def _go_on(self) -> None:
        place = self.stack.currentIndex()
        if place == PICK:
            self._suggest_folder()
            self._go(OPTIONS)
        elif place == OPTIONS:
            self._go(ESTIMATE)
            self._ask_estimate()
        else:
            self.next.setEnabled(False)
            self.back.setEnabled(False)
            begin = calls.begin_build(self._request())
            self._desk.bridge.ask(begin, alive(self, self._take_build), alive(self, self._refuse))

    def _request(self) -> BuildRequest:
        return self.options.request(self._source)

    def _suggest_folder(self) -> None:
        """Suggest where the library could be, once for each source: it may have been changed since."""
        if self._suggested == self._source:
            return
        self._suggested = self._source
        root = self.pick.folder.root if self.pick.folder is not None else ""
        separator = "\\" if "\\" in root and "/" not in root else "/"
        name = self._source.rsplit(separator, maxsplit=1)[-1].removesuffix(".gguf")
        self.options.out.setText(separator.join((root.rstrip(separator), LIBRARIES, name)))

    def _ask_estimate(self) -> None:
        self.estimate.wait()
        take, refuse = alive(self, self._take_estimate), alive(self, self._refuse)
        self._asking = self._desk.bridge.ask(calls.estimate_build(self._request()), take, refuse)

    def _take_estimate(self, found: BuildEstimate) -> None:
        self.estimate.show_estimate(found)
        self.next.setEnabled(not found.problems)

    def _refuse(self, error: ClientError) -> None:
        self.estimate.show_refusal(str(error))
        self.back.setEnabled(True)

    def _take_build(self, build: Build) -> None:
        self.begun.emit()
        self._show_build(build.build_id)
