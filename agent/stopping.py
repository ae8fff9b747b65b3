"""Signals that end the agent gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM call `stop` on the running loop; a second Ctrl-C is Python's own."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {int(number): signal.getsignal(number) for number in numbers}

    def on_signal(number: int, _frame: object) -> None:
        signal.signal(number, before[number])
        loop.call_soon_threadsafe(stop)

    # signal.signal, not loop.add_signal_handler: Windows has only the former.
    for number in numbers:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, before[number])
