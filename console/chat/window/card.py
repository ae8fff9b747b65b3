"""Why there is no whole answer, and what can be done. GUI thread."""

from __future__ import annotations

import time

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QVBoxLayout

from agent.look.widgets import label
from console.chat.records import Facts

CARD_TITLES = {
    "unreachable": "The server does not answer",
    "key": "Your key is not taken",
    "busy": "The server is busy",
    "model": "The model is not there",
    "refused": "This cannot be answered",
    "incomplete": "The answer broke off",
    "broken": "Something went wrong",
}


class ErrorCard(QFrame):
    """Says why there is no whole answer and what can be done; counts down where the server named a time."""

    wants = Signal(str)

    def __init__(self, facts: Facts, retry_at_s: float) -> None:
        super().__init__()
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self._retry_at_s = retry_at_s
        title = label(CARD_TITLES.get(facts.problem_kind, "Something went wrong"), bold=True)
        title.setForegroundRole(QPalette.ColorRole.BrightText)
        text = label(facts.problem)
        self.retry = QPushButton("Try again")
        self.retry.clicked.connect(lambda: self.wants.emit("regenerate"))
        buttons = QHBoxLayout()
        buttons.addWidget(self.retry)
        if facts.problem_kind == "key":
            sign_in = QPushButton("Sign in")
            sign_in.clicked.connect(lambda: self.wants.emit("sign_in"))
            buttons.addWidget(sign_in)
        if facts.problem_kind == "model":
            pick = QPushButton("Choose another model")
            pick.clicked.connect(lambda: self.wants.emit("pick_model"))
            buttons.addWidget(pick)
        buttons.addStretch(1)
        rows = QVBoxLayout(self)
        rows.addWidget(title)
        rows.addWidget(text)
        rows.addLayout(buttons)
        self.setAccessibleName(f"{title.text()}. {facts.problem}")
        self._timer = QTimer(self)
        self._timer.setInterval(500)
        self._timer.timeout.connect(self._count)
        self._count()

    def _count(self) -> None:
        left_s = self._retry_at_s - time.monotonic()
        self.retry.setEnabled(left_s <= 0)
        self.retry.setText("Try again" if left_s <= 0 else f"Try again in {left_s:.0f} s")
        if left_s <= 0:
            self._timer.stop()
        elif not self._timer.isActive():
            self._timer.start()
