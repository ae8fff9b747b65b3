"""One chat window for each folder: a later start brings the first one's window up, and ends. GUI thread."""

from __future__ import annotations

import time
from pathlib import Path

from PySide6.QtCore import QFileSystemWatcher, QObject, Signal, Slot

from agent.folder_lock import FolderBusy, FolderLock


class SingleWindow(QObject):
    """The place of the one window. A lock says who has it, which goes with its process, however that ends.

    A file that later starts write to carries their wish: only this user can write in the folder.
    """

    wanted = Signal()
    """Another start wants the window."""

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lock = FolderLock(folder / "chat.lock")
        self._wish = folder / "chat.show"
        self._watcher: QFileSystemWatcher | None = None

    def begin(self) -> bool:
        """Take the place; False: another one has it, and was asked to show its window. Raises OSError."""
        try:
            self._lock.acquire()
        except FolderBusy:
            self._wish.write_text(f"{time.time()}\n", "ascii")
            return False
        self._wish.write_text("", "ascii")
        self._watcher = QFileSystemWatcher([str(self._wish)], self)
        self._watcher.fileChanged.connect(self._hear)
        return True

    def end(self) -> None:
        """Give the place up."""
        if self._watcher is not None:
            self._watcher.removePath(str(self._wish))
            self._watcher = None
            self._lock.release()

    @Slot(str)
    def _hear(self, _: str) -> None:
        self.wanted.emit()
