"""The table's model of PCs, and which of them are shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import QObject, QSortFilterProxyModel

from console.api.admin import types as wire
from console.gui.devices.fleet import COLUMNS, NAME_COLUMN, SEEN_COLUMN, Filter, Part, Parts
from console.gui.rows import Heading, Index, KeyedModel, SortedRows

LETTERS = (22, 18, 24, 22, 18, 22, 9, 8, 7, 22, 9, 18, 12, 16)
HEADINGS = [Heading(column.heading, letters, column.number) for column, letters in zip(COLUMNS, LETTERS, strict=True)]


class DeviceModel(KeyedModel[wire.Agent]):
    """PCs and what they run. GUI thread."""

    headings = HEADINGS

    def __init__(self, parent: QObject | None = None, now_s: Callable[[], float] = time.time) -> None:
        super().__init__(parent)
        self._now_s = now_s
        self.parts: Parts = {}

    def key_of(self, item: wire.Agent) -> str:
        return item.device_id

    def text(self, item: wire.Agent, column: int) -> str:
        return COLUMNS[column].text(item, self.parts_of(item.device_id), self._now_s())

    def sort_key(self, item: wire.Agent, column: int) -> Any:
        return COLUMNS[column].key(item, self.parts_of(item.device_id))

    def take_parts(self, parts: Parts) -> None:
        """Show who serves what now."""
        differing = {
            device for device in self.parts.keys() | parts.keys() if self.parts.get(device) != parts.get(device)
        }
        self.parts = parts
        self.tell(sorted(row for device in differing if (row := self.row_of(device)) is not None))

    def tick(self) -> None:
        """Word the ages anew."""
        self.tell_column(SEEN_COLUMN)

    def parts_of(self, device_id: str) -> Sequence[Part]:
        """Return what a PC runs."""
        return self.parts.get(device_id, ())


class ShownDevices(SortedRows):
    """The PCs a filter lets through."""

    def __init__(self, source: DeviceModel, parent: QObject | None = None) -> None:
        self._devices = source
        self.filter = Filter()
        self._shown: frozenset[str] = frozenset()
        super().__init__(source, parent)
        self.sort(NAME_COLUMN)

    def show_only(self, shown: Filter) -> None:
        """Let others through."""
        self.filter = shown
        self.look_again()

    def look_again(self) -> None:
        """Let in and out what changed since."""
        devices = self._devices
        shown = frozenset(
            agent.device_id for agent in devices.items if self.filter.lets(agent, devices.parts_of(agent.device_id))
        )
        if shown != self._shown:
            self.beginFilterChange()
            self._shown = shown
            self.endFilterChange(QSortFilterProxyModel.Direction.Rows)

    def filterAcceptsRow(self, row: int, parent: Index) -> bool:  # noqa: N802 - Qt's name
        return self._devices.items[row].device_id in self._shown
