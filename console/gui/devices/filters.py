"""Filters somebody gave a name: a JSON file in the settings folder. No Qt here."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import get_args

import msgspec

from console.data import write_whole
from console.errors import DataFolderUnusable
from console.gui.devices.fleet import Filter, Status

log = logging.getLogger(__name__)

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
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            if self._path.stat().st_size <= LARGEST_FILE_BYTES:
                self.all = msgspec.json.decode(self._path.read_bytes(), type=list[SavedFilter])[:MOST]

    def save(self, name: str, shown: Filter) -> None:
        """Keep a filter; one of the same name is replaced."""
        others = [saved for saved in self.all if saved.name != name]
        self.all = sorted([*others, SavedFilter(name, shown.status or "", shown.words)], key=lambda one: one.name)[
            :MOST
        ]
        self._write()

    def remove(self, name: str) -> None:
        """Forget a filter."""
        self.all = [saved for saved in self.all if saved.name != name]
        self._write()

    def _write(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, msgspec.json.format(msgspec.json.encode(self.all)) + b"\n")
        except (OSError, DataFolderUnusable) as error:
            log.info("The filters are not kept: %s", error)
