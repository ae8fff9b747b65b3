"""The page for plans made by hand: which model, its lanes, the PCs, what the service says, and applying it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QSpinBox, QSplitter, QVBoxLayout, QWidget

from agent.look.widgets import label
from console.api.admin import types as wire
from console.gui.page import Desk, Page
from console.gui.plans import model
from console.gui.plans.applying import ApplyBar
from console.gui.plans.commands import Commands
from console.gui.plans.editor import PlanEditor
from console.gui.plans.lanes import LanesView
from console.gui.plans.model import Edited
from console.gui.plans.parts import ModelBox, button
from console.gui.plans.pcs import pc_rows
from console.gui.plans.table import PcsModel, PcsTable
from console.gui.plans.verdict import Verdict
from console.gui.states import States

EMPTY = "No model can be planned yet: build or add one first."
NOT_YET = "{} is not deployed. Let the planner plan, or select a PC and add a pipeline."
WAITS = "{} waits for PCs. Let the planner plan, or select a PC and add a pipeline."


class PlansPage(Page):
    """Edits the plan of one model at a time. What runs is never touched before somebody applies the plan."""

    name = "plans"
    heading = "Plans"
    icon = "plans"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk, desk.status, desk.agents, desk.libraries)
        self.editor = PlanEditor(desk.bridge, self)
        self.lanes = LanesView(self.editor)
        self.pcs = PcsModel()
        self.table = PcsTable(self.pcs)
        self.verdict = Verdict(self.editor)
        self.applying = ApplyBar(desk.bridge)
        self.commands = Commands(self, self.editor, self.lanes, self.table)
        self.model, self.finder = ModelBox(), QLineEdit()
        self.context, self.streams = QSpinBox(), QSpinBox()
        self._wanted = ""
        self._fleet: Sequence[tuple[str, str, str]] = ()
        self.editor.show(in_sight=False)
        self._lay_out()
        self._connect()
        self.states.follow(desk.libraries)

    def select(self, what: str) -> None:
        """Show a model's plan, or the stage of a PC."""
        plan = self.editor.plan
        if plan is not None and what in plan.used:
            self.lanes.select(plan.used[what])
            return
        self._wanted = what
        self._fill_models()

    def search(self) -> None:
        """Look for a PC."""
        self.finder.setFocus()
        self.finder.selectAll()

    def showEvent(self, event: QShowEvent) -> None:  # noqa: N802 - Qt's name
        """Have the plan checked, if anything changed meanwhile."""
        super().showEvent(event)
        if not event.spontaneous():
            self._meet(self.desk.agents.latest or [])
            self.editor.show(in_sight=True)

    def hideEvent(self, event: QHideEvent) -> None:  # noqa: N802 - Qt's name
        """Ask nothing of a plan that nobody sees."""
        super().hideEvent(event)
        if not event.spontaneous():
            self.editor.show(in_sight=False)

    def refresh(self) -> None:
        """Ask for everything, and have the plan checked again."""
        super().refresh()
        self.editor.check()

    # Making

    def _lay_out(self) -> None:
        self.model.setAccessibleName("Model")
        self.finder.setPlaceholderText("Search PCs")
        self.finder.setAccessibleName("Search PCs")
        self.finder.setClearButtonEnabled(True)
        self.finder.setMinimumWidth(self.fontMetrics().averageCharWidth() * 24)
        for box, name, low, high, tip in (
            (self.context, "Tokens of context", 16, 1 << 20, "The longest conversation the plan has memory for"),
            (self.streams, "Answers at once", 1, 256, "How many answers at once it has memory for"),
        ):
            box.setRange(low, high)
            box.setAccessibleName(name)
            box.setToolTip(tip)
            box.setKeyboardTracking(False)
        self.rows.addLayout(self._head())
        self.empty = label(quiet=True)
        self.empty.setObjectName("empty")
        left = QWidget()
        rows = QVBoxLayout(left)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.addWidget(self.empty)
        rows.addWidget(self.lanes, 1)
        self.across = QSplitter(Qt.Orientation.Horizontal)
        self.across.addWidget(left)
        self.across.addWidget(self.verdict)
        self.across.setStretchFactor(0, 3)
        self.across.setStretchFactor(1, 1)
        content = QSplitter(Qt.Orientation.Vertical)
        content.addWidget(self.across)
        content.addWidget(self._below())
        content.setStretchFactor(0, 3)
        content.setStretchFactor(1, 2)
        for splitter in (self.across, content):
            splitter.setChildrenCollapsible(False)
        self.states = States(content)
        self.rows.addWidget(self.states, 1)
        self.rows.addWidget(self.applying)

    def _head(self) -> QHBoxLayout:
        line = QHBoxLayout()
        line.addWidget(self.model, 1)
        for text, box in (("&Context", self.context), ("A&nswers at once", self.streams)):
            said = label(text)
            said.setTextFormat(Qt.TextFormat.AutoText)  # for the letter to press
            said.setWordWrap(False)
            said.setBuddy(box)
            line.addWidget(said)
            line.addWidget(box)
        commands = self.commands
        for action in (commands.undo, commands.redo, commands.narrower, commands.wider, commands.plan):
            line.addWidget(button(action))
        return line

    def _below(self) -> QWidget:
        below = QWidget()
        rows = QVBoxLayout(below)
        rows.setContentsMargins(0, 0, 0, 0)
        line = QHBoxLayout()
        line.addWidget(self.finder, 1)
        commands = self.commands
        for action in (
            commands.plan_with, commands.give, commands.split, commands.add, commands.merge, commands.remove,
            commands.pin, commands.leave_out,
        ):  # fmt: skip
            line.addWidget(button(action))
        rows.addLayout(line)
        rows.addWidget(self.table, 1)
        return below

    def _connect(self) -> None:
        desk, editor = self.desk, self.editor
        desk.libraries.came.connect(self._fill_models)
        desk.status.came.connect(self._follow)
        desk.agents.came.connect(self._meet)
        self.model.activated.connect(self._turn)
        self.context.valueChanged.connect(self._promise)
        self.streams.valueChanged.connect(self._promise)
        self.finder.textChanged.connect(self.table.search)
        self.pcs.given.connect(self._drop)
        self.lanes.menu.connect(self.commands.open_menu)
        self.lanes.opened.connect(lambda device_id: self.wants.emit("devices", device_id))
        self.table.opened.connect(lambda device_id: self.wants.emit("devices", device_id))
        for signal in (editor.changed, editor.looked):
            signal.connect(self._show)
        editor.said.connect(self.said)
        self.applying.apply.clicked.connect(self._apply)
        self.applying.back.clicked.connect(self._show)
        self.applying.discard.clicked.connect(editor.discard)
        self.applying.said.connect(self._after)
        self.destroyed.connect(editor.questions.end)

    # What the service says

    def _fill_models(self, _libraries: object = None) -> None:
        libraries: Sequence[wire.Library] = self.desk.libraries.latest or []
        names = list(dict.fromkeys(one.model_id for one in libraries if not one.problem and one.role == "target"))
        if [self.model.itemText(row) for row in range(self.model.count())] != names:
            former = self.model.currentText()
            self.model.clear()
            self.model.addItems(names)
            self.model.setCurrentIndex(max(0, self.model.findText(former)))
        if self._wanted in names and not self.applying.is_running:
            self.model.setCurrentText(self._wanted)
            self._wanted = ""
        if not names and self.desk.libraries.latest is not None:
            self.states.show_empty(EMPTY)
        elif names:
            self._turn()

    def _turn(self, _row: object = None) -> None:
        """Look at the chosen model, unless it is looked at already."""
        status = self.desk.status.latest
        library = self._library()
        if status is None or library is None or self.applying.is_running:
            return
        if not self.states.is_content:
            self.states.show_content()
        if self.editor.plan is None or self.editor.plan.model != library.model_id:
            self.lanes.select(None)
            self.applying.forget()
            self._open(library, self._running(library))

    def _open(self, library: wire.Library, live: Edited | None) -> None:
        asked = wire.DeployRequest(library.model_id, context=min(2048, max(16, library.context_tokens)))
        self.editor.turn(live or Edited(asked, library.layer_count), live)

    def _follow(self, status: wire.Status) -> None:
        """Keep up with what runs: a plan that nobody changed follows it, another one is compared with it."""
        for pipeline in status.pipelines:
            self.editor.names.update((stage.device_id, stage.device_name) for stage in pipeline.stages)
        self._turn()
        library, editor = self._library(), self.editor
        if editor.problem:
            editor.check()  # whatever was in the way may be gone: the service answers
        if library is None or editor.plan is None or self.applying.is_running:
            return
        live = self._running(library)
        if live == editor.live:
            return
        if not editor.is_changed and editor.stack.count() == 0:
            editor.open(live or editor.plan, live)
        else:
            editor.live = live
            editor.show_plan(editor.plan)

    def _meet(self, agents: Sequence[wire.Agent]) -> None:
        """Know PCs by their names; when one comes or goes the plan is checked again. Waits until somebody looks."""
        if not self.isVisible():
            return
        self.editor.names.update((agent.device_id, agent.name) for agent in agents)
        fleet = [(agent.device_id, agent.link, agent.volunteering) for agent in agents]
        if fleet != self._fleet:
            self._fleet = fleet
            self.editor.check()
        self._show_pcs()

    def _running(self, library: wire.Library) -> Edited | None:
        status: wire.Status = self.desk.status.latest
        views = [one for one in status.pipelines if one.model == library.model_id and one.state != "failed"]
        return model.running(views, library.layer_count)

    def _library(self) -> wire.Library | None:
        libraries: Sequence[wire.Library] = self.desk.libraries.latest or []
        named = [one for one in libraries if one.model_id == self.model.currentText() and not one.problem]
        return max(named, key=lambda one: one.added_s, default=None)

    # What somebody does

    def _promise(self) -> None:
        plan = self.editor.plan
        if plan is not None:
            promised = model.promise(plan, context=self.context.value(), streams=self.streams.value())
            self.editor.do("Change the promise", promised, "promise")

    def _drop(self, of: str, to: str) -> None:
        place = None if self.editor.plan is None else self.editor.plan.used.get(of)
        if place is not None:
            self.lanes.give(place, to)

    def _apply(self) -> None:
        editor = self.editor
        if editor.may_apply and editor.plan is not None:
            before = None if editor.live is None else editor.live.again()
            self.applying.begin(editor.plan.request(), before)
            self._show()

    def _after(self, text: str, failed: bool) -> None:
        self.said.emit(text, failed)
        self.desk.status.now()
        self._fill_models()
        self._show()

    # What is shown

    def _show(self) -> None:
        plan = self.editor.plan
        if plan is not None:
            for box, value in ((self.context, plan.settings.context), (self.streams, plan.settings.streams)):
                if box.value() != value:  # else somebody may be in the middle of typing another one
                    box.blockSignals(True)
                    box.setValue(value)
                    box.blockSignals(False)
            self.empty.setText("" if plan.lanes else (WAITS if plan.waiting else NOT_YET).format(plan.model))
            self.empty.setVisible(not plan.lanes)
        may, busy = self.desk.may("operate"), self.applying.is_running
        self.applying.apply.setEnabled(may and not busy and self.editor.may_apply)
        self.applying.discard.setEnabled(not busy and self.editor.is_changed)
        self.model.setEnabled(not busy)
        self._show_pcs()

    def _show_pcs(self) -> None:
        self.pcs.take(pc_rows(self.editor.plan, self.editor.found, self.desk.agents.latest or []))
