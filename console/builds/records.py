"""Builds on the disk: `builds/<id>.json` says how each is, `builds/<id>.log` what the exporter said. Blocks."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec

from console.api.admin.build_types import Build
from console.data import prepare, remove, write_whole

log = logging.getLogger(__name__)

KEPT = 50
"""So many builds that ended are remembered."""
MAX_LOG_BYTES = 8 << 20
TAIL_BYTES = 64 << 10
TAIL_LINES = 300


class Records:
    """The folder of one console's builds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self) -> list[Build]:
        """Make the folder and read what is there, the oldest first; what cannot be read is left where it is.

        Raises DataFolderUnusable.
        """
        prepare(self._folder)
        found = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=Build))
            except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
                log.warning("The record of a build, %s, cannot be read: %s", path.name, error)
        return sorted(found, key=lambda build: build.created_s)

    def save(self, build: Build) -> None:
        """Write how a build is. Raises DataFolderUnusable."""
        write_whole(self._folder / f"{build.build_id}.json", msgspec.json.format(msgspec.json.encode(build)) + b"\n")

    def forget(self, build_id: str) -> None:
        """Remove a build's record and log."""
        for path in (self._folder / f"{build_id}.json", self._log(build_id)):
            remove(path)

    def note(self, build_id: str, lines: Sequence[str]) -> None:
        """Add lines to a build's log, unless it is full or the disk is."""
        with contextlib.suppress(OSError), self._log(build_id).open("a", encoding="utf-8") as file:
            for line in lines:
                if file.tell() < MAX_LOG_BYTES:
                    file.write(line[:2000].replace("\n", " ") + "\n")

    def tail(self, build_id: str) -> list[str]:
        """Return the last lines of a build's log."""
        try:
            with self._log(build_id).open("rb") as file:
                size_bytes = file.seek(0, 2)
                file.seek(max(0, size_bytes - TAIL_BYTES))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return []
        # The first of them may be half a line.
        return lines[1 if size_bytes > TAIL_BYTES else 0 :][-TAIL_LINES:]

    def _log(self, build_id: str) -> Path:
        return self._folder / f"{build_id}.log"
