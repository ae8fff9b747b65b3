"""What every page of the admin's window is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from console.api.admin import types as wire
from console.gui.bridge import Bridge
from console.gui.feed import Feed
from console.gui.places import default_settings_folder
from console.gui.programs import Programs
from console.registry.records import Scope


@dataclass(slots=True)
class Desk:
    """What pages work with: the way to the service, what several pages look at, and who is logged in."""

    bridge: Bridge
    status: Feed
    agents: Feed
    libraries: Feed
    me: wire.Me
    settings_folder: Path = field(default_factory=default_settings_folder)
    """Where pages keep what is no secret and should be there the next time."""
    programs: Programs | None = None
    """Starts programs on the data folder of the service; None where that is on another PC."""

    def may(self, scope: Scope) -> bool:
        """Whether who is logged in may do what `scope` stands for."""
        return scope in self.me.scopes or "admin" in self.me.scopes


class Page(QWidget):
    """A page: `name` is its key, `heading` what people read, `icon` an SVG of assets/icons. GUI thread.

    While it is in sight it watches the `feeds` it names; it makes its widgets in `__init__` and never waits.
    """

    name = ""
    heading = ""
    icon = ""
    scope: Scope = "view"
    """What somebody needs to be shown the page at all."""

    said = Signal(str, bool)
    """What came of an order, for the line at the bottom; whether it failed."""
    wants = Signal(str, str)
    """Bring another page into sight: its name, and what to select there (an id, or empty)."""

    badge = Signal(str)
    """What the list of pages shows behind the heading, like a number of what waits; empty for nothing."""

    def __init__(self, desk: Desk, *feeds: Feed) -> None:
        super().__init__()
        self.desk = desk
        self.feeds = feeds
        for feed in feeds:
            if not any(feed is shared for shared in (desk.status, desk.agents, desk.libraries)):
                feed.setParent(self)  # it is this page's alone, and ends with it
        self.setObjectName(f"page_{self.name}")
        self.setAccessibleName(self.heading)
        self.rows = QVBoxLayout(self)
        margin = self.fontMetrics().height()
        self.rows.setContentsMargins(margin, margin, margin, margin)
        self.rows.setSpacing(round(margin * 0.6))

    def select(self, what: str) -> None:
        """Bring one thing of the page into sight: what `wants` named."""

    def refresh(self) -> None:
        """Ask at once for everything the page shows."""
        for feed in self.feeds:
            feed.now()

    def search(self) -> None:
        """Go to the field of the search, if the page has one."""

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
