"""The thread that alone works with the file of the chats.

Whoever shows chats keeps what it shows in memory and hands every change over: `Store.do` returns at once.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from console.chat.chatfile import ChatFile
from console.chat.errors import StoreUnusable
from shard_export.library.counts import counted

log = logging.getLogger(__name__)

KEEP_DELETED_S = 30 * 86_400.0
"""How long what was deleted stays in the file."""

T = TypeVar("T")


class Store:
    """The thread with the file. Its methods may be called from one other thread, which is never kept waiting.

    Answers come by `post`, which has to call what it is given on the thread of whoever asked.
    """

    def __init__(self, path: Path, post: Callable[[Callable[[], object]], object]) -> None:
        self._path = path
        self._post = post
        self._work: queue.SimpleQueue[Callable[[ChatFile | None], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="the chats' file", daemon=True)
        self._on_trouble: Callable[[StoreUnusable], object] = lambda _: None

    def start(self, on_trouble: Callable[[StoreUnusable], object]) -> None:
        """Open the file; `on_trouble` hears of every failure: what was to be kept is not, what was asked is not told.

        Of a file that cannot be opened it hears once.
        """
        self._on_trouble = on_trouble
        self._thread.start()

    def stop(self, wait_s: float = 10.0) -> None:
        """Do what was handed over, close the file and end the thread. Waits for it."""
        self._work.put(None)
        if self._thread.is_alive():
            self._thread.join(wait_s)

    def do(self, work: Callable[[ChatFile], T], then: Callable[[T], object] | None = None) -> None:
        """Have something done with the file, in order; `then` gets what came of it, unless it failed."""

        def run(file: ChatFile | None) -> None:
            if file is None:
                return
            result = work(file)
            if then is not None:
                self._post(lambda: then(result))

        self._work.put(run)

    def beside(self, work: Callable[[], object]) -> None:
        """Have something done that waits for the disk, too, and needs no chats: also where they cannot be opened."""
        self._work.put(lambda _: work())

    def _run(self) -> None:
        file = None
        try:
            file = ChatFile(self._path)
        except StoreUnusable as error:
            self._tell(error)
        else:
            self._try(file, _tidy)
        while (work := self._work.get()) is not None:
            self._try(file, work)
        if file is not None:
            file.close()

    def _try(self, file: ChatFile | None, work: Callable[[Any], object]) -> None:
        try:
            work(file)
            if file is not None and (count := file.take_unreadable()):
                entries = counted(count, "entry", "entries")
                message = f"In {self._path} {entries} cannot be read and left out; a newer Fallow may read them."
                self._tell(StoreUnusable(message))
        except sqlite3.Error as error:
            message = f"The chats in {self._path} cannot be kept ({error}); free space or fix its rights."
            self._tell(StoreUnusable(message))
        except Exception as error:  # the edge of the thread: what one wish breaks on must not end the others
            log.exception("Work with the chats failed unexpectedly.")
            message = f"The chats in {self._path} failed for an unknown reason ({type(error).__name__}); start again."
            self._tell(StoreUnusable(message))

    def _tell(self, error: StoreUnusable) -> None:
        self._post(lambda: self._on_trouble(error))


def _tidy(file: ChatFile) -> None:
    file.close_open()
    file.purge(time.time() - KEEP_DELETED_S)
