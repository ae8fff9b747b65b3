"""Signals that end the agent gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP call `stop` on the running loop; a second Ctrl-C is Python's own.

    A session that ends sends SIGTERM and SIGHUP at once, a terminal that is closed the latter; under `nohup` it stays
    ignored.
    """
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {int(number): signal.getsignal(number) for number in numbers}

    def on_signal(number: int, _frame: object) -> None:
        if number == signal.SIGINT:
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
