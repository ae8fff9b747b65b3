"""Frames on their way out of a stage: the computing thread goes on while a slow link takes its time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection
from typing import Protocol

from agent.stage import affinity


class Sink(Protocol):
    """Where the frames go; `agent.link.wire.Wire` is one."""

    def send_now(self, data: bytes | memoryview) -> int:
        """Send what is taken without waiting and return how many bytes that is. Raises OSError."""
        ...

    def send(self, data: bytes | memoryview) -> None:
        """Send everything. Raises OSError."""
        ...


class Outgoing:
    """Sends whole frames in order. `send` belongs to one thread.

    The usual frame goes out at once, without a second thread. What the link does not take is left to one, and so is
    everything behind it; the steps in flight bound how much that can be.
    """

    def __init__(self, sink: Sink, broken: Callable[[str], None], cores: Collection[int] = ()) -> None:
        """`broken` hears, on the sending thread, why the link takes nothing more. That thread runs on `cores`."""
        self._sink, self._broken = sink, broken
        self._waiting: queue.SimpleQueue[memoryview | None] = queue.SimpleQueue()
        self._unsent = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._drain, args=(cores,), name="sender", daemon=True).start()

    def send(self, data: bytes) -> None:
        """Send a frame, or leave it to be sent. Raises OSError when the link is down."""
        with self._lock:
            sent = 0 if self._unsent else self._sink.send_now(data)
            if sent == len(data):
                return
            self._unsent += 1
        self._waiting.put(memoryview(data)[sent:])

    def close(self) -> None:
        """End the second thread, after what waits; a broken link has ended it already. Send nothing more."""
        self._waiting.put(None)

    def _drain(self, cores: Collection[int]) -> None:
        affinity.stay_beside(cores)
        try:
            while (rest := self._waiting.get()) is not None:
                self._sink.send(rest)
                with self._lock:
                    self._unsent -= 1
        except OSError as error:
            self._broken(str(error))
