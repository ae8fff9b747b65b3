"""How connections are taken in when a thousand PCs dial at once: a few in each turn of the loop, the others wait.

All at once they would share the processor, and all be done when the last is: after everybody's patience, if there are
enough of them, and then they begin again. Taken a few at a time, those that were taken are done soon, however slow this
machine is, and those that wait in the system's queue cost nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from socket import socket
from typing import Protocol

ACCEPTED_A_TURN = 8
"""A connection takes about ten turns of the loop, so about eighty are on their way in."""
QUEUE = 1024
"""How many may wait to be accepted; the system may allow fewer."""


class Listening(Protocol):
    """A listening socket as asyncio shows it."""

    def dup(self) -> socket:
        """Return the same socket once more."""
        ...


def backlog() -> int:
    """Return asyncio's `backlog`: on Unix also how many connections it accepts in a turn. On Windows it takes one."""
    return QUEUE if sys.platform == "win32" else ACCEPTED_A_TURN


def lengthen_queue(sockets: Iterable[Listening]) -> None:
    """Let more connections wait than are accepted in a turn."""
    if sys.platform == "win32":
        return
    for listening in sockets:
        with listening.dup() as same:
            same.listen(QUEUE)
