"""The line at the bottom: what was done, and a way to take it back. GUI thread."""

from __future__ import annotations

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from agent.look.widgets import announce, label

UNDO_MS = 20_000


class SaidLine(QWidget):
    """What was last done, with a button that takes it back; it goes by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.text = label()
        self.undo = QPushButton("Undo")
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self.hide)
        row = QHBoxLayout(self)
        row.addWidget(self.text, 1)
        row.addWidget(self.undo)
        self.hide()

    def say(self, text: str, *, undoable: bool = False, bad: bool = False) -> None:
        """Show and speak it; what is bad stays."""
        palette = self.palette()
        self.text.setForegroundRole(palette.ColorRole.BrightText if bad else palette.ColorRole.WindowText)
        self.text.setText(text)
        self.undo.setVisible(undoable)
        self.show()
        announce(self.text, text)
        if bad:
            self._timer.stop()
        else:
            self._timer.start(UNDO_MS)
