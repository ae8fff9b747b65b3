"""The page that shows who talks to whom: drawn, and as a table of the same."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QSplitter, QVBoxLayout, QWidget

from agent.look.widgets import Table, heading, label
from console.gui.page import Desk, Page
from console.gui.plans.map import MapView
from console.gui.plans.topology import CONSOLE, WAY_WORDS, Map, map_of
from console.gui.states import States
from console.gui.times import size_text

LEGEND = "Thick: direct between two PCs. Dashed: relayed by the console. Dotted: in reserve."
EMPTY = "No PC is enrolled yet: make an invite for the first ones."


class TopologyPage(Page):
    """Follows status and fleet."""

    name = "topology"
    heading = "Topology"
    icon = "topology"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk, desk.status, desk.agents)
        self.map = MapView()
        self.map.opened.connect(lambda device_id: self.wants.emit("devices", device_id))
        self.links = Table("Links", ["From", "To", "What", "How", "Round trip", "Speed", "Note"])
        content = QSplitter(Qt.Orientation.Vertical)
        content.setChildrenCollapsible(False)
        above, below = QWidget(), QWidget()
        for box, parts in (
            (above, (self.map, label(LEGEND, quiet=True))),
            (below, (heading("Links that carry something"), self.links)),
        ):
            rows = QVBoxLayout(box)
            rows.setContentsMargins(0, 0, 0, 0)
            for part in parts:
                rows.addWidget(part, 1 if part in {self.map, self.links} else 0)
            content.addWidget(box)
        content.setStretchFactor(0, 3)
        content.setStretchFactor(1, 1)
        self.states = States(content)
        self.rows.addWidget(self.states, 1)
        self.states.follow(desk.status)
        self._wanted = ""
        desk.status.came.connect(self._show)
        desk.agents.came.connect(self._show)

    def select(self, what: str) -> None:
        """Show a PC: its id."""
        self._wanted = "" if self.map.select_pc(what) else what

    def showEvent(self, event: QShowEvent) -> None:  # noqa: N802 - Qt's name
        """Draw what was heard while nobody looked."""
        super().showEvent(event)
        self._show()

    def _show(self) -> None:
        status, agents = self.desk.status.latest, self.desk.agents.latest
        if status is None or agents is None or not self.isVisible():
            return
        drawn = map_of(status, agents)
        if len(drawn.nodes) == 1:
            self.states.show_empty(EMPTY, "&Invites", lambda: self.wants.emit("invites", ""))
            return
        self.map.show_map(drawn)
        self.links.show_rows(link_rows(drawn), right=(4, 5))
        if not self.states.is_content:
            self.states.show_content()
        if self._wanted:
            self.select(self._wanted)


def link_rows(drawn: Map) -> list[tuple[str, ...]]:
    """Describe each link as a row."""
    names = {node.key: node.name for node in drawn.nodes} | {CONSOLE: "Console"}
    return [
        (
            names[one.source],
            names[one.target],
            one.carries,
            WAY_WORDS[one.way],
            "" if not one.round_trip_ms else f"{one.round_trip_ms:.1f} ms",
            "" if not one.bytes_per_s else f"{size_text(one.bytes_per_s)}/s",
            one.note,
        )
        for one in drawn.strands
    ]
