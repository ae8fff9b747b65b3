"""What the company sees of this PC: exactly what the console was last told, and what it is never told."""

from __future__ import annotations

from PySide6.QtCore import Qt

from agent.control.status import Status
from agent.look.widgets import Table, heading, label
from agent.tray.pages.page import Page
from agent.tray.texts import Texts
from agent.tray.view import Shown


class CompanyPage(Page):
    """A table of what was sent, by name, and three lists in words."""

    name = "company"

    def __init__(self, texts: Texts) -> None:
        super().__init__(texts)
        self.rows.addWidget(label(texts("company.intro")))
        self.table = Table(texts("page.company"), [texts("company.what"), texts("company.told")])
        self.table.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.rows.addWidget(self.table)
        self._nothing = label(texts("company.nothing"), quiet=True)
        self.rows.addWidget(self._nothing)
        for name in ("never", "kept", "sees"):
            self.rows.addWidget(heading(texts(f"company.{name}_heading")))
            self.rows.addWidget(label(texts(f"company.{name}")))
        self.rows.addStretch(1)

    def follow(self, status: Status | None, shown: Shown) -> None:
        """Show what was sent last."""
        sent = status.seen_by_console if status else {}
        texts = self.texts
        rows = [(texts.named("seen", name), self._said(name, value)) for name, value in sent.items()]
        self.table.show_rows(rows)
        self.table.setVisible(bool(rows))
        self._nothing.setVisible(not rows)
        # All of it is in sight: the page scrolls, not a table inside it.
        self.table.resizeRowsToContents()
        height = self.table.horizontalHeader().sizeHint().height() + self.table.verticalHeader().length()
        self.table.setFixedHeight(height + 2 * self.table.frameWidth())

    def _said(self, name: str, value: str) -> str:
        if name == "reasons":
            return ", ".join(part.strip() for part in value.split(",")) or self.texts("value.none")
        return value or self.texts("value.none")
