"""A lock on a folder, so that two processes never work in it; the operating system lets go when the holder dies."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Self


class FolderBusy(Exception):
    """Another process holds the folder."""


class FolderLock:
    """An exclusive lock on one file; never waits. As a context manager it is released at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def acquire(self) -> None:
        """Raises FolderBusy when another process holds it, OSError when the file cannot be made or locked at all."""
        file = self._path.open("a+b")
        try:
            _lock(file)
        except _HELD:
            file.close()
            raise FolderBusy(f"Another process works in {self._path.parent}; stop it first.") from None
        except OSError as error:
            # A network folder without locks, say: whoever reads that another process is there looks for it in vain.
            file.close()
            error.filename = str(self._path)
            raise
        self._file = file

    def release(self) -> None:
        """Let the next process in."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


if sys.platform == "win32":
    import msvcrt

    _HELD = PermissionError

    def _lock(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    _HELD = BlockingIOError

    def _lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
