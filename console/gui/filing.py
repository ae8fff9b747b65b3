"""Files are written beside the GUI thread: a disk may be slow, or on the other side of a network."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from PySide6.QtCore import QCoreApplication, QObject, Qt, Signal, Slot
from shiboken6 import isValid

from console.errors import DataFolderUnusable

log = logging.getLogger(__name__)


def write_beside(owner: QObject, write: Callable[[], None], then: Callable[[str], object]) -> None:
    """Call `write`, which may raise DataFolderUnusable, in a thread of its own that a program's end waits for.

    `then` hears on the GUI thread why not, or an empty text; nothing if `owner` is gone by then. GUI thread.
    """
    _Writing(owner, write, then).begin()


class _Writing(QObject):
    """Belongs to the program, so that it may last longer than the window that asked for it."""

    _written = Signal(str)

    def __init__(self, owner: QObject, write: Callable[[], None], then: Callable[[str], object]) -> None:
        super().__init__(QCoreApplication.instance())
        self._owner, self._write, self._then = owner, write, then
        self._thread = threading.Thread(target=self._run, name="writes a file")
        # Queued, always: whoever emits is in the other thread.
        self._written.connect(self._end, Qt.ConnectionType.QueuedConnection)

    def begin(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        why = ""
        try:
            self._write()
        except DataFolderUnusable as error:
            why = str(error)
        except Exception:  # the edge of a thread: who waits has to hear of an end
            log.exception("A file was not written.")
            why = "The file was not written, and the log says why."
        with contextlib.suppress(RuntimeError):  # the program ended meanwhile, and nobody wants to know
            self._written.emit(why)

    @Slot(str)
    def _end(self, why: str) -> None:
        self._thread.join()
        self.deleteLater()
        if isValid(self._owner):
            self._then(why)
