"""What every page of the window is."""

from __future__ import annotations

from PySide6.QtWidgets import QVBoxLayout, QWidget

from agent.control.status import Status
from agent.look.widgets import scrolled, title
from agent.tray.texts import Texts
from agent.tray.view import Shown


class Page(QWidget):
    """A page; `name` is the key of its title. `rows` is where a page puts its content, top to bottom.

    `follow` is called for the page in sight only, with every Status and when the page comes into sight.
    """

    name = ""

    def __init__(self, texts: Texts, *, scrolls: bool = True) -> None:
        super().__init__()
        self.texts = texts
        self.setObjectName(f"page_{self.name}")
        self.setAccessibleName(texts(f"page.{self.name}"))
        content = QWidget()
        self.rows = QVBoxLayout(content)
        margin = self.fontMetrics().height()
        self.rows.setContentsMargins(margin, margin, margin, margin)
        self.rows.setSpacing(round(margin * 0.6))
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scrolled(content) if scrolls else content)
        self.heading = title(texts(f"page.{self.name}"))
        self.rows.addWidget(self.heading)

    def follow(self, status: Status | None, shown: Shown) -> None:
        """Show a status; None: the service does not answer."""

    def entered(self) -> None:
        """The page came into sight: ask for what only it needs."""
