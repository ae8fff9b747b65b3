"""The folder a build works in, `.NAME.partial` beside its target: one build at a time, kept when there is use in it.

.NAME.partial/lock              held by the build that works here
              journal/          what is finished, see `journal`
              library/          the library as far as it is; publishing renames it to NAME
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Self

from shard_export.library.errors import CheckpointError, CompressionError, LibraryBusy, ParityFailed
from shard_export.library.store import remove_tree, work_folder_of

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from shard_export.build.journal import Journal

LOCK_NAME = "lock"
_TRIES = 20
# The same command would end the same way again, so what is finished is of no use.
_FINAL = (CheckpointError, CompressionError, ParityFailed)


class Workspace:
    """Holds the work folder of `out` for one build; a context manager that raises LibraryBusy.

    Leaving it after an exception keeps the folder if layers are finished and going on could end better.
    """

    def __init__(self, out: Path) -> None:
        self.out, self.folder = out, work_folder_of(out)
        self.library, self.journal_folder = self.folder / "library", self.folder / "journal"
        self.journal: Journal | None = None
        self._lock = -1

    def __enter__(self) -> Self:
        self._lock = self._acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _t: TracebackType | None) -> None:
        if kind is None or not self.is_kept_after(error):
            remove_tree(self.folder)
        os.close(self._lock)
        if kind is None and self.folder.exists():  # Windows keeps a file that is open
            remove_tree(self.folder)

    def is_kept_after(self, error: BaseException | None) -> bool:
        """Tell whether the finished layers stay for the next build when this one ends with `error`."""
        if self.journal is None:
            return self.journal_folder.exists()
        return self.journal.finished_layers > 0 and not isinstance(error, _FINAL)

    def kept_note(self, error: BaseException | None) -> str:
        """Say what stays, to complete the sentence "The build was stopped"."""
        if not self.is_kept_after(error):
            return "nothing of it is kept"
        count = self.journal.finished_layers if self.journal is not None else 0
        kept = f"its {count} finished layer{'s are' if count != 1 else ' is'}" if count else "what was finished is"
        return f"{kept} kept in {self.folder}, and the same command goes on from there"

    def _acquire(self) -> int:
        path = self.folder / LOCK_NAME
        for _ in range(_TRIES):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            except FileNotFoundError:  # the build before us is just clearing up
                continue
            if not _try_lock(handle):
                os.close(handle)
                break
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(handle).st_ino == path.stat().st_ino:
                    return handle
            os.close(handle)  # locked a file that the build before us has removed
        raise LibraryBusy(f"Another build of {self.out} is running; wait for it or choose another folder.")


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
