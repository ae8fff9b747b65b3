"""Applying a plan, seeing how far it is, and going back to the one before. GUI thread."""

from __future__ import annotations

import time

from PySide6.QtCore import Signal
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout, QWidget

from agent.look.widgets import announce, label
from console.api.admin import types as wire
from console.gui.bridge import Bridge
from console.gui.models.follow import Rollouts
from console.gui.models.rollout import Rollout, at_work, headline

STEPS = 1000


class ApplyBar(QWidget):
    """Buttons and progress. It goes on while another page is in sight; leaving the window stops nothing."""

    said = Signal(str, bool)

    def __init__(self, bridge: Bridge) -> None:
        super().__init__()
        self._rollouts = Rollouts(bridge, self)
        self._rollouts.changed.connect(self._hear)
        self._rollouts.ended.connect(self._end)
        self.rollout: Rollout | None = None
        """The plan that was applied last, and how far it is."""
        self._before: wire.DeployRequest | None = None
        self._former: wire.DeployRequest | None = None
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
        return self.rollout is not None and self.rollout.goes_on

    def begin(self, request: wire.DeployRequest, before: wire.DeployRequest | None) -> None:
        """Apply a plan; `before` is what runs now and can be gone back to (None: nothing does)."""
        if self.is_running:
            return
        self._before = before
        self._rollouts.begin(request)

    def forget(self) -> None:
        """Look at another model: nothing is to be gone back to."""
        if not self.is_running:
            self.rollout = self._former = None
            self._show()

    def _go_back(self) -> None:
        if self._former is not None:
            self.begin(self._former, None if self.rollout is None else self.rollout.request)

    def _hear(self, model: str) -> None:
        self.rollout = self._rollouts.find(model)
        if self.rollout is not None and isinstance(self.rollout.end, wire.Ready):
            self._former = self._before
        self._show()

    def _end(self, text: str, failed: bool) -> None:
        announce(self.text, text)
        self.said.emit(text, failed)

    def _show(self) -> None:
        rollout, running = self.rollout, self.is_running
        self.bar.setVisible(running)
        self.text.setVisible(rollout is not None)
        self.back.setVisible(self._former is not None and not running)
        if rollout is None:
            return
        text, bad = headline(rollout, time.monotonic())
        self.bar.setValue(round(rollout.share * STEPS))
        self.text.setText(" ".join(filter(None, dict.fromkeys((*rollout.notes, text, at_work(rollout))))))
        self.text.setForegroundRole(QPalette.ColorRole.BrightText if bad else QPalette.ColorRole.WindowText)
