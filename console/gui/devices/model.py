"""The table's model of PCs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import QObject

from console.api.admin import types as wire
from console.gui.devices.fleet import COLUMNS, SEEN_COLUMN, Filter, Part, Parts
from console.gui.rows import Heading, KeyedModel

LETTERS = (22, 18, 24, 22, 18, 22, 9, 8, 7, 22, 9, 18, 12, 16)
HEADINGS = [Heading(column.heading, letters, column.number) for column, letters in zip(COLUMNS, LETTERS, strict=True)]


class DeviceModel(KeyedModel[wire.Agent]):
    """PCs and what they run. GUI thread."""

    headings = HEADINGS

    def __init__(self, parent: QObject | None = None, now_s: Callable[[], float] = time.time) -> None:
        super().__init__(parent)
        self._now_s = now_s
        self.parts: Parts = {}
        self.filter = Filter()

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
        self._follow()
        self.tell(sorted(row for device in differing if (row := self.row_of(device)) is not None))

    def tick(self) -> None:
        """Word the ages anew."""
        self.tell_column(SEEN_COLUMN)

    def parts_of(self, device_id: str) -> Sequence[Part]:
        """Return what a PC runs."""
        return self.parts.get(device_id, ())

    def lets(self, item: wire.Agent) -> bool:
        return self.filter.lets(item, self.parts_of(item.device_id))

    def show_only(self, shown: Filter) -> None:
        """Let others through."""
        self.filter = shown
        self.look_again()
