"""The deploy dialog: what is asked for beside what the planner would do, then the rollout, which goes on by itself."""

from __future__ import annotations

import time

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import (
    QSplitter,
    QStackedWidget,
    QStyle,
    QVBoxLayout,
    QWidget,
)

from agent.look.loop import Job
from agent.look.widgets import Table, heading, label, scrolled
from console import calls
from console.api.admin import types as wire
from console.api.admin.plan_types import PlanRequest, Plans
from console.errors import ClientError
from console.gui.alive import alive
from console.gui.models.deployform import DeployForm
from console.gui.models.follow import Rollouts
from console.gui.models.parts import Bars, Dialog, across, button, say
from console.gui.models.rollout import Rollout, headline
from console.gui.models.texts import former_text
from console.gui.page import Desk
from console.gui.times import size_text

SETTLE_MS = 400
TICK_MS = 1000


class PlanPreview(QWidget):
    """What the planner would do now, and why."""

    def __init__(self) -> None:
        super().__init__()
        self.said = label("Asking the planner…")
        self.said.setObjectName("plan")
        self.table = Table("Planned stages", ["Layers", "PC", "Device", "Memory", "To fetch", "ms a step"], stretch=1)
        self.reasons = label(quiet=True)
        self.reasons.setAlignment(Qt.AlignmentFlag.AlignTop)
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.addWidget(heading("What the planner would do"))
        rows.addWidget(self.said)
        rows.addWidget(self.table, 2)
        rows.addWidget(scrolled(self.reasons), 1)

    def show_plans(self, found: Plans) -> None:
        """Show what would be deployed."""
        rows = [
            (
                f"{stage.first}-{stage.last - 1}", stage.name, stage.device, size_text(stage.memory_bytes),
                size_text(stage.fetch_bytes), f"{stage.ms:.1f}",
            )
            for pipeline in found.pipelines
            for stage in pipeline.plan.stages
        ]  # fmt: skip
        self.table.show_rows(rows, right=(3, 4, 5))
        if found.pipelines:
            plans = [pipeline.plan for pipeline in found.pipelines]
            text = (
                f"About {plans[0].tokens_per_second:.1f} tokens/s for one answer and "
                f"{sum(plan.full_tokens_per_second for plan in plans):.1f} over all."
            )
            say(self.said, f"{text} {found.missing}".strip(), bad=bool(found.missing))
        else:
            say(self.said, found.missing or "The planner found nothing.", bad=True)
        standbys = [
            f"{one.name} stands by for layers {one.first}-{one.last - 1}: {one.reason}"
            for pipeline in found.pipelines
            for one in pipeline.standbys
        ]
        reasons = [reason for pipeline in found.pipelines for reason in pipeline.plan.reasons]
        say(self.reasons, "\n".join(dict.fromkeys([*found.reasons, *reasons, *standbys])))

    def show_nothing(self, why: str) -> None:
        """Say why there is no plan."""
        self.table.show_rows([])
        say(self.said, why, bad=True)
        say(self.reasons, "")


class RolloutView(QWidget):
    """A deployment as it comes up."""

    def __init__(self) -> None:
        super().__init__()
        self.headline = heading("")
        self.bars = Bars()
        self.notes = label(quiet=True)
        self.notes.setAlignment(Qt.AlignmentFlag.AlignTop)
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.addWidget(self.headline)
        rows.addWidget(self.bars)
        rows.addWidget(scrolled(self.notes), 1)

    def show_rollout(self, rollout: Rollout) -> None:
        """Show how far it is."""
        text, bad = headline(rollout, time.monotonic())
        say(self.headline, f"{rollout.request.model}: {text}", bad=bad)
        bars = [
            (f"Layers {stage.first}-{stage.last - 1} on {stage.device_name}", stage.share, stage.said)
            for stage in rollout.stages
        ]
        failed = isinstance(rollout.end, wire.Broken)
        self.bars.show_bars([(name, 0.0 if failed and share is None else share, said) for name, share, said in bars])
        say(self.notes, "\n".join([*rollout.notes, *rollout.reasons]))


class DeployDialog(Dialog):
    """Asks, shows the plan, deploys and follows."""

    def __init__(self, desk: Desk, rollouts: Rollouts, parent: QWidget) -> None:
        super().__init__(parent, "Deploy a model", columns=150, lines=38)
        self._desk, self._rollouts = desk, rollouts
        self._asking: Job | None = None
        self._missing = ""
        """The model to deploy, while it is not among those that are known."""
        self.form = DeployForm(desk.libraries.latest or [])
        self.preview = PlanPreview()
        self.view = RolloutView()
        split = QSplitter()
        split.setChildrenCollapsible(False)
        asked = scrolled(self.form)
        split.addWidget(asked)
        split.addWidget(self.preview)
        split.setStretchFactor(1, 1)
        bar = self.style().pixelMetric(QStyle.PixelMetric.PM_ScrollBarExtent)
        asked.setMinimumWidth(self.form.sizeHint().width() + 2 * bar)
        self.stack = QStackedWidget()
        self.stack.addWidget(split)
        self.stack.addWidget(self.view)
        self.kept = label()
        self.kept.setObjectName("kept")
        self.hint = label(quiet=True)
        self.again = button("Change and try &again", lambda: self._turn(0))
        self.go = button("&Deploy", self._deploy)
        self.go.setDefault(True)
        self.close_button = button("Close", self.close)
        self.rows.addWidget(self.stack, 1)
        self.rows.addWidget(self.kept)
        self.rows.addWidget(self.hint)
        self.rows.addLayout(across(self.go, self.again, self.close_button, ends=True))
        self._settling = QTimer(self)
        self._settling.setSingleShot(True)
        self._settling.setInterval(SETTLE_MS)
        self._settling.timeout.connect(self._ask_plan)
        self.form.changed.connect(self._change)
        self._ticking = QTimer(self)
        self._ticking.setInterval(TICK_MS)
        self._ticking.timeout.connect(self._follow)
        rollouts.changed.connect(self._follow)
        desk.libraries.came.connect(self._offer)
        self._turn(0)

    def begin_with(self, model: str, request: wire.DeployRequest | None = None) -> None:
        """Ask about a model; if its deployment is under way here, follow that."""
        if request is not None:
            self.form.begin_with(request)
        self._missing = "" if self.form.choose(model) else model
        if self._missing:
            self._desk.libraries.now()  # it was built a moment ago
        running = self._rollouts.find(model)
        if running is not None and running.goes_on:
            self._turn(1)
            self._follow()
        else:
            self._ask_plan()

    def _offer(self, libraries: list[wire.Library]) -> None:
        self.form.offer(libraries)
        # Nobody chose another one meanwhile.
        if self._missing and self.form.model.currentIndex() < 0 and self.form.choose(self._missing):
            self._missing = ""

    def _turn(self, place: int) -> None:
        self.stack.setCurrentIndex(place)
        self.go.setVisible(place == 0)
        self.again.setVisible(False)
        self.kept.setVisible(place == 0 and bool(self.kept.text()))
        self.hint.setText("Closing this window does not stop the deployment." if place else "")
        self.hint.setVisible(bool(place))
        if place:
            self._ticking.start()
        else:
            self._ticking.stop()

    def _change(self) -> None:
        self._settling.start()
        if self.form.model.currentIndex() < 0:
            self.go.setEnabled(False)

    def _ask_plan(self) -> None:
        self._settling.stop()
        if self._asking is not None:
            self._asking.cancel()
        say(self.kept, former_text(self.form.former))
        if self.form.model.currentIndex() < 0:
            self.go.setEnabled(False)
            self.preview.show_nothing(self._why_none())
            return
        say(self.preview.said, "Asking the planner…")
        request = self.form.request()
        asked = PlanRequest(request, request.replicas, request.standbys, request.standby)
        take, refuse = alive(self, self._take_plan), alive(self, self._refuse_plan)
        self._asking = self._desk.bridge.ask(calls.plan(asked), take, refuse)

    def _why_none(self) -> str:
        """Say why no model is chosen."""
        if self._missing:
            return f"{self._missing} is not among the models yet; the service is asked again."
        if self.form.model.count():
            return "Choose a model."
        return "There is no library to deploy; build or add one first."

    def _take_plan(self, found: Plans) -> None:
        self.preview.show_plans(found)
        self.go.setEnabled(bool(found.pipelines))

    def _refuse_plan(self, error: ClientError) -> None:
        self.preview.show_nothing(str(error))
        self.go.setEnabled(False)

    def _deploy(self) -> None:
        self._rollouts.begin(self.form.request())
        self._turn(1)
        self._follow()

    def _follow(self, _model: str = "") -> None:
        rollout = self._rollouts.find(self.form.model.currentData() or "")
        if rollout is not None and self.stack.currentIndex() == 1:
            self.view.show_rollout(rollout)
            self.again.setVisible(not rollout.goes_on and not isinstance(rollout.end, wire.Ready))
            self.hint.setVisible(rollout.goes_on)
