"""What a stage is fed: every step once and in order, whichever way it comes. Any thread."""

from __future__ import annotations

import contextlib
import queue
import threading
import time

from agent.link.stage_messages import AdvanceEpoch

MAX_WAITING = 1024
"""Steps that wait for their turn; there are never more on their way than stages, unless a peer has gone bad."""


class TooManySteps(Exception):
    """More steps came than can ever be on their way."""


class Intake:
    """A queue for several feeding threads and one that computes.

    With `drops_repeats` a step whose id is not above all before it is dropped: where steps come two ways, the same one
    may come by both.
    """

    def __init__(self, *, drops_repeats: bool) -> None:
        self._drops_repeats = drops_repeats
        self._steps: queue.SimpleQueue[tuple[bytes | memoryview | AdvanceEpoch, float]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self.taken = -1
        """The id of the last step; ids only grow, through all epochs."""

    def put(self, step: int, data: bytes | memoryview) -> None:
        """Take a step. Raises TooManySteps."""
        with self._lock:
            if self._drops_repeats and step <= self.taken:
                return
            if self._steps.qsize() >= MAX_WAITING:
                raise TooManySteps
            self.taken = step
            self._steps.put((data, time.perf_counter()))

    def advance(self, order: AdvanceEpoch) -> None:
        """Drop what waits, which is of a former epoch, and let whoever computes go on in a new one."""
        with self._lock:
            with contextlib.suppress(queue.Empty):
                while True:
                    self._steps.get_nowait()
            self._steps.put((order, time.perf_counter()))

    def get(self) -> tuple[bytes | memoryview | AdvanceEpoch, float]:
        """Wait for the next frame or order; with it comes when it arrived."""
        return self._steps.get()
