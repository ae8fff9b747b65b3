"""Applying a plan, seeing how far it is, and going back to the one before. GUI thread."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout, QWidget

from agent.look.loop import Job
from agent.look.widgets import announce, label
from console import calls
from console.api.admin import types as wire
from console.errors import ClientError
from console.gui.bridge import Bridge
from console.gui.plans.progress import Progress

STEPS = 1000


class ApplyBar(QWidget):
    """Buttons and progress. It goes on while another page is in sight; leaving the window stops nothing."""

    applied = Signal()
    """Another plan answers now."""
    said = Signal(str, bool)

    def __init__(self, bridge: Bridge) -> None:
        super().__init__()
        self._bridge = bridge
        self._job: Job | None = None
        self._asked: wire.DeployRequest | None = None
        self._before: wire.DeployRequest | None = None
        self._former: wire.DeployRequest | None = None
        self.progress = Progress()
        self.apply, self.discard, self.back = (
            QPushButton("&Apply"), QPushButton("&Discard the changes"), QPushButton("&Go back to the plan before")
        )  # fmt: skip
        self.apply.setToolTip("Deploy exactly this plan. What is served answers until the new one is ready.")
        self.back.clicked.connect(self._go_back)
        self.bar = QProgressBar()
        self.bar.setRange(0, STEPS)
        self.bar.setAccessibleName("How far the plan is applied")
        self.bar.setTextVisible(False)
        self.text = label()
        self.text.setObjectName("applying")
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        across = QHBoxLayout()
        across.addWidget(self.apply)
        across.addWidget(self.discard)
        across.addStretch(1)
        across.addWidget(self.back)
        rows.addLayout(across)
        rows.addWidget(self.bar)
        rows.addWidget(self.text)
        self._show()

    @property
    def is_running(self) -> bool:
        """Whether a plan is on its way."""
        return self._job is not None

    def begin(self, request: wire.DeployRequest, before: wire.DeployRequest | None) -> None:
        """Apply a plan; `before` is what runs now and can be gone back to (None: nothing does)."""
        if self._job is not None:
            return
        self._asked, self._before = request, before
        self.progress = Progress()
        self._job = self._bridge.follow(calls.deploy(request), self._hear, self._end)
        self.destroyed.connect(self._job.cancel)
        self._show()

    def forget(self) -> None:
        """Look at another model: nothing is to be gone back to."""
        if self._job is None:
            self.progress, self._asked, self._former = Progress(), None, None
            self._show()

    def _go_back(self) -> None:
        if self._former is not None:
            self.begin(self._former, self._asked)

    def _hear(self, event: wire.DeployEvent) -> None:
        self.progress = self.progress.heard(event)
        if isinstance(event, wire.Ready):
            self._former = self._before
        self._show()

    def _end(self, error: ClientError | None) -> None:
        self._job = None
        if error is not None:
            self.progress = Progress("failed", text=str(error))
        self._show()
        failed = self.progress.state != "ready"
        announce(self.text, self.progress.text)
        self.said.emit(self.progress.text, failed)
        if not failed:
            self.applied.emit()

    def _show(self) -> None:
        progress, running = self.progress, self._job is not None
        begun = running or progress.state != "running"
        self.bar.setVisible(running)
        self.bar.setValue(round(progress.share * STEPS))
        self.text.setVisible(begun)
        self.text.setText(" ".join(dict.fromkeys((*progress.notes, progress.text))))
        bad = progress.state == "failed"
        self.text.setForegroundRole(QPalette.ColorRole.BrightText if bad else QPalette.ColorRole.WindowText)
        self.back.setVisible(self._former is not None and not running)
