"""What every page of the admin's window is."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from console.api.admin import types as wire
from console.gui.bridge import Bridge
from console.gui.feed import Feed


@dataclass(slots=True)
class Desk:
    """What pages work with: the way to the service, what several pages look at, and who is logged in."""

    bridge: Bridge
    status: Feed
    agents: Feed
    libraries: Feed
    me: wire.Me


class Page(QWidget):
    """A page: `name` is its key, `heading` what people read, `icon` an SVG of assets/icons. GUI thread.

    While it is in sight it watches the `feeds` it names; it makes its widgets in `__init__` and never waits.
    """

    name = ""
    heading = ""
    icon = ""

    said = Signal(str, bool)
    """What came of an order, for the line at the bottom; whether it failed."""
    wants = Signal(str, str)
    """Bring another page into sight: its name, and what to select there (an id, or empty)."""

    def __init__(self, desk: Desk, *feeds: Feed) -> None:
        super().__init__()
        self.desk = desk
        self.feeds = feeds
        self.setObjectName(f"page_{self.name}")
        self.setAccessibleName(self.heading)
        self.rows = QVBoxLayout(self)
        margin = self.fontMetrics().height()
        self.rows.setContentsMargins(margin, margin, margin, margin)
        self.rows.setSpacing(round(margin * 0.6))

    def select(self, what: str) -> None:
        """Bring one thing of the page into sight: what `wants` named."""

    def showEvent(self, event: QShowEvent) -> None:  # noqa: N802 - Qt's name
        """Begin to watch."""
        super().showEvent(event)
        if not event.spontaneous():
            for feed in self.feeds:
                feed.watch()

    def hideEvent(self, event: QHideEvent) -> None:  # noqa: N802 - Qt's name
        """Look away."""
        super().hideEvent(event)
        if not event.spontaneous():
            for feed in self.feeds:
                feed.leave()
