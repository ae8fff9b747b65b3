"""Changes the text of a message in its place. GUI thread."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QPushButton, QVBoxLayout


class Editor(QFrame):
    """Edits a message in its place. Escape gives up, Ctrl+Enter takes over."""

    done = Signal(str)
    """The new text, or empty."""

    def __init__(self, text: str, *, asks: bool) -> None:
        super().__init__()
        self.text = QPlainTextEdit(text)
        self.text.setAccessibleName("The message's text")
        self.text.setTabChangesFocus(True)
        self.save = QPushButton("Save and ask" if asks else "Save as new version")
        cancel = QPushButton("Cancel")
        self.save.clicked.connect(lambda: self.done.emit(self.text.toPlainText().strip()))
        cancel.clicked.connect(lambda: self.done.emit(""))
        self.text.installEventFilter(self)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(cancel)
        row.addWidget(self.save)
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.addWidget(self.text)
        rows.addLayout(row)

    def fit(self) -> int:
        """Return how high it is: as many lines as the text has, within reason."""
        line = self.text.fontMetrics().lineSpacing()
        lines = min(20, max(4, self.text.document().blockCount() + 2))
        return lines * line + self.save.sizeHint().height() + line

    def eventFilter(self, watched: object, event: QEvent) -> bool:  # noqa: N802 - Qt's name
        """Take the two keys."""
        if event.type() == QEvent.Type.ShortcutOverride and event.key() == Qt.Key.Key_Escape:  # type: ignore[attr-defined]
            event.accept()
            return True
        if event.type() == QEvent.Type.KeyPress:
            key, control = event.key(), event.modifiers() & Qt.KeyboardModifier.ControlModifier  # type: ignore[attr-defined]
            if key == Qt.Key.Key_Escape:
                self.done.emit("")
                return True
            if control and key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self.save.click()
                return True
        return super().eventFilter(watched, event)  # type: ignore[arg-type]
