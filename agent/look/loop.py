"""The thread with an event loop that every program with windows has: nothing that waits happens on the GUI thread.

GUI thread                          loop thread
begin(coroutine)     ────────────►  a task; Job.cancel() ends it
function(...)        ◄────────────  post(function, ...)
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

log = logging.getLogger(__name__)

STOP_WAIT_S = 5.0

_ending: set[LoopThread] = set()
"""Threads that were told to end and may not have ended yet: they have no other owner."""


class Job:
    """Work begun on the loop thread. GUI thread."""

    def __init__(self, loop: LoopThread) -> None:
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """End the work; nothing it posts after that is taken up. Does nothing once it has ended."""
        self._cancelled = True
        self._loop.to_loop(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self._cancelled:
            self._task = self._loop.spawn(work())

    def guard(self, function: Callable[..., object]) -> Callable[..., None]:
        """Return `function`, that does nothing any more once the job is cancelled."""

        def call(*arguments: object) -> None:
            if not self._cancelled:
                function(*arguments)

        return call


class LoopThread(QObject):
    """Runs an event loop in a thread. `start`, `stop`, `begin` and `to_loop` belong to the GUI thread."""

    _posted = Signal(object)
    _ended = Signal()

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._stopping = asyncio.Event()
        self._is_stopped = False
        self._tasks: set[asyncio.Task[None]] = set()
        # Queued, always: whoever emits is in the other thread, and what is posted must run in this one.
        self._posted.connect(self._take, Qt.ConnectionType.QueuedConnection)
        self._ended.connect(self._reap, Qt.ConnectionType.QueuedConnection)

    def start(self) -> None:
        """Begin `work`, and take what `begin` gives."""
        self._thread.start()

    def stop(self) -> bool:
        """Cancel everything and end the thread. Waits some seconds for it; returns whether it has ended."""
        if self._thread.is_alive():
            self.to_loop(self._stopping.set)
            self._is_stopped = True
            self._thread.join(STOP_WAIT_S)
        elif not self._loop.is_closed():
            self._loop.close()
        if self._thread.is_alive():
            log.warning("%s has not ended after %g s; what it still does is given up.", self._name, STOP_WAIT_S)
            return False
        _ending.discard(self)
        return True

    def stop_soon(self) -> None:
        """Cancel everything and end the thread without waiting, which may take as long as a name server is silent.

        Nothing that was posted is taken up any more. This is nobody's child then and goes when its thread has ended.
        """
        if not self._thread.is_alive():
            self.stop()
            self.deleteLater()
            return
        self.setParent(None)  # or it would go with its parent, under the hands of its thread
        _ending.add(self)
        self.to_loop(self._stopping.set)
        self._is_stopped = True

    def begin(self, work: Callable[[Job], Coroutine[Any, Any, None]]) -> Job:
        """Begin work on the loop. What it raises is logged: it has to tell whoever waits, by `post`."""
        job = Job(self)
        self.to_loop(job._run, functools.partial(work, job))  # noqa: SLF001 - the two are one thing
        return job

    def to_loop(self, call: Callable[..., object], *arguments: object) -> None:
        """Call a function on the loop thread, soon; nothing once it is stopped."""
        if self._is_stopped:
            return
        # Closed when the program ends, and then nobody waits for what comes of it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *arguments)

    @Slot(object)
    def _take(self, call: Callable[[], None]) -> None:
        if self not in _ending:
            call()

    @Slot()
    def _reap(self) -> None:
        if self in _ending:
            self._thread.join()
            # Not here: an object must not go in an event of its own.
            QTimer.singleShot(0, functools.partial(_ending.discard, self))

    # From here on: the loop thread.

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the GUI thread, soon. Loop thread."""
        self._posted.emit(functools.partial(function, *arguments))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin a task that is cancelled at the end. Loop thread."""
        task = self._loop.create_task(self._watched(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def work(self) -> None:
        """Do what goes on as long as the thread; returns when there is nothing like that. Loop thread."""

    async def close(self) -> None:
        """Let go of what tasks used, after they ended. Loop thread."""

    async def _watched(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:  # the edge of a task nobody awaits: the log has the cause
            log.exception("Work of %s failed unexpectedly.", self._name)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._until_stopped())
        except Exception:  # the edge of the thread: without it the windows would wait for ever and not say why
            log.exception("%s ended.", self._name)
        finally:
            self._loop.close()
            # Gone when whoever stopped it waited in vain and its program ended.
            with contextlib.suppress(RuntimeError):
                self._ended.emit()

    async def _until_stopped(self) -> None:
        self.spawn(self.work())
        await self._stopping.wait()
        for task in (tasks := set(self._tasks)):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.close()
        # What was handed to threads ends before this one: nothing is left behind that still writes a file.
        await self._loop.shutdown_default_executor()


def stop_all() -> None:
    """Wait for the threads that `stop_soon` left to themselves: a program's last step. GUI thread."""
    for one in list(_ending):
        one.stop()
