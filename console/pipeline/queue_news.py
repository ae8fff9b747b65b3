"""When those who wait for a place are told how many get one before them. Event loop only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

FEW = 16
EACH_S = 0.004
"""To tell one client costs 0.1 ms and more of the loop on which all answers live: with this, at most a few percent."""


class QueueNews:
    """Tells at once while few wait, and the more seldom the more they are: about once a second for 256."""

    def __init__(self, tell: Callable[[], int]) -> None:
        """`tell` tells everybody who waits and returns how many they are."""
        self._tell = tell
        self._due: asyncio.TimerHandle | None = None
        self._next_s = 0.0

    def changed(self) -> None:
        """Take note that the queue is another; whoever waits hears how it is then."""
        if self._due is None:
            loop = asyncio.get_running_loop()
            self._due = loop.call_at(max(loop.time(), self._next_s), self._told)

    def close(self) -> None:
        """Tell nothing any more. Safe to call again."""
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _told(self) -> None:
        self._due = None
        count = self._tell()
        self._next_s = asyncio.get_running_loop().time() + EACH_S * max(0, count - FEW)
