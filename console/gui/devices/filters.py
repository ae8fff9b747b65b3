"""Filters somebody gave a name: a JSON file in the settings folder. No Qt here.

`save` and `remove` change what is in memory; `write` brings it to the disk, which may take its time.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import get_args

import msgspec

from console.data import write_whole
from console.errors import DataFolderUnusable
from console.gui.devices.fleet import Filter, Status

LARGEST_FILE_BYTES = 1 << 20
MOST = 100


class SavedFilter(msgspec.Struct, frozen=True):
    """A filter with its name; `status` empty: any."""

    name: str
    status: str = ""
    words: str = ""

    def filter(self) -> Filter:
        known: tuple[Status, ...] = get_args(Status)
        return Filter(next((status for status in known if status == self.status), None), self.words)


class SavedFilters:
    """The file and what was read from it. A file that cannot be read is an empty one."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "filters.json"
        self.all: list[SavedFilter] = []
        self._writing = threading.Lock()
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            if self._path.stat().st_size <= LARGEST_FILE_BYTES:
                self.all = msgspec.json.decode(self._path.read_bytes(), type=list[SavedFilter])[:MOST]

    def save(self, name: str, shown: Filter) -> None:
        """Add a filter; one of the same name is replaced."""
        others = [saved for saved in self.all if saved.name != name]
        self.all = sorted([*others, SavedFilter(name, shown.status or "", shown.words)], key=lambda one: one.name)[
            :MOST
        ]

    def remove(self, name: str) -> None:
        """Forget a filter."""
        self.all = [saved for saved in self.all if saved.name != name]

    def write(self) -> None:
        """Write the file. For any thread: of several at once the last one writes what is newest.

        Raises DataFolderUnusable.
        """
        with self._writing:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DataFolderUnusable(f"{self._path.parent} cannot be made ({error.strerror}).") from None
            write_whole(self._path, msgspec.json.format(msgspec.json.encode(self.all)) + b"\n")
