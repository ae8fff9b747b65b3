"""What a view shows when it has nothing to show: that it waits, that there is nothing, or what went wrong."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QPushButton, QStackedWidget, QVBoxLayout, QWidget

from agent.look.widgets import label
from console.errors import ClientError, ServiceRefused, ServiceUnreachable
from console.gui.bridge import EXPIRED
from console.gui.feed import Feed

LOADING = "Asking the service…"
BROKEN = 500
"""From this status on the service is to blame, and it may be well again the next time."""


class States(QStackedWidget):
    """Content, or a sentence in its place with perhaps one button for what to do. Content that came once stays.

    Begins with the sentence that it waits. GUI thread.
    """

    def __init__(self, content: QWidget) -> None:
        super().__init__()
        self._came = False
        self._do: Callable[[], object] | None = None
        self.content = content
        self.text = label(quiet=True)
        self.text.setObjectName("state")
        self.button = QPushButton()
        self.button.clicked.connect(self._press)
        line = self.fontMetrics().height()
        sentence = QWidget()
        rows = QVBoxLayout(sentence)
        rows.setContentsMargins(0, line, 0, line)
        rows.addWidget(self.text)
        rows.addWidget(self.button, 0, Qt.AlignmentFlag.AlignLeft)
        rows.addStretch(1)
        self.addWidget(sentence)
        self.addWidget(content)
        self._say(LOADING)

    def show_content(self) -> None:
        """Show what there is."""
        self._came = True
        self.setCurrentWidget(self.content)

    def show_empty(self, text: str, button: str = "", do: Callable[[], object] | None = None) -> None:
        """Say that there is nothing, and what to do about it."""
        self._came = True
        self._say(text, button, do)

    def show_error(self, error: ClientError, again: Callable[[], object]) -> None:
        """Say what went wrong, unless something came before and the error passes: that stays, greyed by the window."""
        if not self._came or not _passes(error):
            self._say(str(error), "Try &again", again)
            self.text.setForegroundRole(QPalette.ColorRole.BrightText)

    def follow(self, feed: Feed) -> None:
        """Show what goes wrong with a feed; what comes of it is for the page to show."""
        self._feed = feed
        # A method and no lambda: the feed outlives this, and Qt forgets methods of what is gone.
        feed.failed.connect(self._fail)
        if feed.latest is None and feed.error is not None:
            self._fail(feed.error)

    @property
    def is_content(self) -> bool:
        """Whether the content is shown."""
        return self.currentWidget() is self.content

    def _fail(self, error: ClientError) -> None:
        self.show_error(error, self._feed.now)

    def _say(self, text: str, button: str = "", do: Callable[[], object] | None = None) -> None:
        self._do = do
        self.text.setText(text)
        self.text.setForegroundRole(QPalette.ColorRole.PlaceholderText)
        self.button.setText(button)
        self.button.setVisible(bool(button))
        self.setCurrentIndex(0)

    def _press(self) -> None:
        if self._do is not None:
            self._do()


def _passes(error: ClientError) -> bool:
    if isinstance(error, ServiceRefused):
        return error.status == EXPIRED or error.status >= BROKEN
    return isinstance(error, ServiceUnreachable)
