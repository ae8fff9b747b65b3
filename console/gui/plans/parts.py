"""Small pieces of the page of plans. GUI thread."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QWheelEvent
from PySide6.QtWidgets import QComboBox, QToolButton


class ModelBox(QComboBox):
    """The wheel scrolls what is below it; it must not bring another model into sight on its way past."""

    def wheelEvent(self, event: QWheelEvent) -> None:  # noqa: N802 - Qt's name
        """Leave it to the page."""
        event.ignore()


def button(action: QAction) -> QToolButton:
    """Return a button for an action, which Tab comes to."""
    made = QToolButton()
    made.setDefaultAction(action)
    made.setFocusPolicy(Qt.FocusPolicy.TabFocus)
    return made
