"""When those who wait for a place are told how many get one before them. Event loop only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

FEW = 16
"""So many are told at once: it holds the loop for about 2 ms."""
EACH_S = 0.004
"""From telling one to telling the next, beyond the few: a small share of the loop on which all answers live."""


class QueueNews:
    """Tells at once while few wait, and some after the others when many do: within a second all of 256."""

    def __init__(self, tell: Callable[[int, int], int]) -> None:
        """`tell` tells those from a place on, up to a number of them, and returns how many wait in all."""
        self._tell = tell
        self._due: asyncio.TimerHandle | None = None
        self._place, self._again, self._next_s = 0, False, 0.0

    def changed(self) -> None:
        """Take note that the queue is another; whoever waits hears how it is then."""
        self._again = True
        if self._due is None:
            self._go_on()

    def close(self) -> None:
        """Tell nothing any more. Safe to call again."""
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.call_at(max(loop.time(), self._next_s), self._tell_some)

    def _tell_some(self) -> None:
        self._due = None
        if not self._place:
            self._again = False
        waiting = self._tell(self._place, FEW)
        self._place = self._place + FEW if self._place + FEW < waiting else 0
        self._next_s = asyncio.get_running_loop().time() + (FEW * EACH_S if waiting > FEW else 0.0)
        if self._place or self._again:
            self._go_on()
