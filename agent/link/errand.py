"""Who fetches which file next: PCs that hold it before the console. No I/O; the console's turn waits for an event.

A file is one source's at a time. A source that fails is asked no more, and its files go to the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from shard_export.library.manifest import FileRecord

OnProgress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


class Errand:
    """The files of one fetch, and how far they are. Event loop only."""

    def __init__(self, missing: Iterable[FileRecord], total_bytes: int, on_progress: OnProgress) -> None:
        """`total_bytes` are those of all files, of which some are here already."""
        self._waiting = {record.sha256: record for record in missing}
        self._fetching: dict[str, FileRecord] = {}
        self._holders: dict[str, set[str]] = {sha256: set() for sha256 in self._waiting}
        self._total = total_bytes
        self._done = total_bytes - sum(max(record.size_bytes, 0) for record in self._waiting.values())
        self._partly: dict[str, int] = {}
        self._on_progress = on_progress
        self._changed = asyncio.Event()
        self.failure: Exception | None = None
        """What ends the errand whoever is asked: the disk, not a link."""
        self._tell()

    def offer(self, source: str, sha256: Sequence[str]) -> None:
        """A source says that it holds these files."""
        for name in sha256:
            if name in self._holders:
                self._holders[name].add(source)

    def withdraw(self, source: str) -> None:
        """A source failed: it is asked no more."""
        for holders in self._holders.values():
            holders.discard(source)
        self._wake()

    def take_of(self, source: str) -> FileRecord | None:
        """Take a file this source holds; None: there is none left."""
        for sha256, record in self._waiting.items():
            if source in self._holders[sha256]:
                return self._take(record)
        return None

    async def take_of_console(self) -> FileRecord | None:
        """Take a file no PC holds, waiting as long as PCs may still fail; None when all files are here.

        Raises `failure`.
        """
        while True:
            if self.failure is not None:
                raise self.failure
            for sha256, record in self._waiting.items():
                if not self._holders[sha256]:
                    return self._take(record)
            if not self._waiting and not self._fetching:
                return None
            self._changed.clear()
            await self._changed.wait()

    def had(self, record: FileRecord, size_bytes: int) -> None:
        """So much of a file was here from an earlier try."""
        self._partly[record.sha256] = size_bytes
        self._tell()

    def received(self, record: FileRecord, size_bytes: int) -> None:
        """So many more bytes of a file arrived."""
        self._partly[record.sha256] = self._partly.get(record.sha256, 0) + size_bytes
        self._tell()

    def finish(self, record: FileRecord) -> None:
        """A file is whole and here."""
        self._fetching.pop(record.sha256, None)
        self._done += self._partly.pop(record.sha256, 0)
        self._wake()

    def put_back(self, record: FileRecord) -> None:
        """A file did not arrive; somebody else's turn. What arrived of it is counted again when it goes on."""
        self._fetching.pop(record.sha256, None)
        self._partly.pop(record.sha256, None)
        self._waiting[record.sha256] = record
        self._wake()

    def fail(self, error: Exception) -> None:
        """End the errand with an error."""
        self.failure = self.failure or error
        self._wake()

    def _take(self, record: FileRecord) -> FileRecord:
        del self._waiting[record.sha256]
        self._fetching[record.sha256] = record
        return record

    def _tell(self) -> None:
        self._on_progress(self._done + sum(self._partly.values()), self._total)

    def _wake(self) -> None:
        self._changed.set()
