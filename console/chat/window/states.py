"""What is shown where there are no messages: nothing yet, nothing at all, or a server that is away. GUI thread."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from agent.look.widgets import label, title

HINT = "The answer is computed by resting PCs of your organisation. It may be wrong: check what matters."


class Banner(QWidget):
    """Says that the server is away, while it is; chats can be read meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.text = label()
        self.retry = QPushButton("Try again")
        row = QHBoxLayout(self)
        row.addWidget(self.text, 1)
        row.addWidget(self.retry)
        self.hide()


class EmptyPage(QWidget):
    """What is there before the first message."""

    def __init__(self) -> None:
        super().__init__()
        self.title = title("What would you like to know?")
        self.more = label(HINT, quiet=True)
        rows = QVBoxLayout(self)
        rows.addStretch(1)
        for line in (self.title, self.more):
            line.setAlignment(Qt.AlignmentFlag.AlignHCenter)
            rows.addWidget(line)
        rows.addStretch(2)

    def show_state(self, *, reading: bool, broken: str) -> None:
        """Show that there is nothing, or nothing yet, or why the chats cannot be read."""
        begin = "Opening the chat…" if reading else "What would you like to know?"
        self.title.setText("Your chats cannot be read" if broken else begin)
        self.more.setText(f"{broken} What you ask meanwhile is not kept." if broken else HINT)
        self.more.setVisible(bool(broken) or not reading)
