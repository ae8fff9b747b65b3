"""What is shown where there are no messages: nothing yet, nothing at all, or a server that is away. GUI thread."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from agent.look.widgets import label, title
from console.chat.errors import AnswerFailed

HINT = "The answer is computed by resting PCs of your organisation. It may be wrong: check what matters."


class Banner(QWidget):
    """Says that the server is away or nobody is signed in, as long as it is so; chats can be read meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.text = label()
        self.retry = QPushButton("Try again")
        self.sign_in = QPushButton("Sign in…")
        row = QHBoxLayout(self)
        row.addWidget(self.text, 1)
        row.addWidget(self.retry)
        row.addWidget(self.sign_in)
        self.hide()

    def show_problem(self, problem: AnswerFailed | None) -> None:
        """Say why the models cannot be listed; None: they can."""
        self._show(str(problem) if problem is not None else "", retries=True)

    def show_signed_out(self) -> None:
        """Say that nobody is signed in."""
        self._show("You are not signed in: your chats can be read, and nothing can be asked.", retries=False)

    def _show(self, text: str, *, retries: bool) -> None:
        self.text.setText(text)
        self.retry.setVisible(retries)
        self.setVisible(bool(text))


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
