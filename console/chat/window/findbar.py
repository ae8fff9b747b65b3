"""The bar that finds words in the open chat. GUI thread."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QToolButton, QWidget

from console.chat.window.parts import quiet_line


class FindBar(QWidget):
    """Emits the words, and steps to the match before or after."""

    searched = Signal(str)
    stepped = Signal(int)
    closed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.field = QLineEdit()
        self.field.setPlaceholderText("Find in this chat")
        self.field.setAccessibleName("Find in this chat")
        self.field.textChanged.connect(lambda text: self.searched.emit(text.strip()))
        self.field.installEventFilter(self)
        self.count = quiet_line()
        row = QHBoxLayout(self)
        row.addWidget(self.field, 1)
        row.addWidget(self.count)
        for text, name, step in (("▲", "Previous match", -1), ("▼", "Next match", 1)):
            button = QToolButton()
            button.setText(text)
            button.setAutoRaise(True)
            button.setAccessibleName(name)
            button.setToolTip(name)
            button.clicked.connect(lambda _=False, step=step: self.stepped.emit(step))
            row.addWidget(button)
        close = QToolButton()
        close.setText("Close")
        close.setAutoRaise(True)
        close.clicked.connect(self.close_bar)
        row.addWidget(close)
        self.hide()

    def open_bar(self) -> None:
        """Show the bar, ready to type."""
        self.show()
        self.field.setFocus()
        self.field.selectAll()

    def close_bar(self) -> None:
        """Hide the bar; nothing is marked any more."""
        self.hide()
        self.searched.emit("")
        self.closed.emit()

    def show_count(self, place: int, count: int) -> None:
        """Say at which of the matches one is."""
        self.count.setText(f"{place} of {count}" if count else ("Nothing found" if self.field.text().strip() else ""))

    def eventFilter(self, watched: object, event: QEvent) -> bool:  # noqa: N802 - Qt's name
        """Enter goes on, Shift+Enter back, Escape closes."""
        if event.type() == QEvent.Type.ShortcutOverride and event.key() == Qt.Key.Key_Escape:  # type: ignore[attr-defined]
            event.accept()
            return True
        if event.type() == QEvent.Type.KeyPress:
            key, shift = event.key(), event.modifiers() & Qt.KeyboardModifier.ShiftModifier  # type: ignore[attr-defined]
            if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self.stepped.emit(-1 if shift else 1)
                return True
            if key == Qt.Key.Key_Escape:
                self.close_bar()
                return True
        return super().eventFilter(watched, event)  # type: ignore[arg-type]
