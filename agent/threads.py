"""Work in a thread that is seen to its end even when whoever waits for it is cancelled.

A thread cannot be stopped: `asyncio.to_thread` only stops waiting for it. What it opens afterwards has no owner, and
what the cancelled task cleans up meanwhile is changed under its hands. So whatever opens, writes or deletes something,
or asks the registry, runs in `finish_in_thread`; `asyncio.to_thread` is for what only reads and owns nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from typing import Protocol, TypeVar

T = TypeVar("T")


def _keep(_: object) -> None:
    """Let go of nothing: the result needs no release."""


class InThread(Protocol):
    """Does work in a thread and sees it to its end: `finish_in_thread`, or what has threads of its own."""

    async def __call__(self, work: Callable[[], T], /) -> T:
        """Return what `work` returns. Raises what it raises. Cancelling waits until it has ended."""
        ...


async def finish_in_thread(
    work: Callable[[], T], release: Callable[[T], object] = _keep, threads: Executor | None = None
) -> T:
    """Run `work` in a thread (the loop's, unless others are given) and return what it returns. Raises what it raises.

    Cancelling waits until it has ended, gives its result to `release` (on the event loop) and is then passed on, also
    where the work failed.
    """
    # A future and no task: what ends a program, raised in a task, would end the loop and not the caller.
    running = asyncio.get_running_loop().run_in_executor(threads, copy_context().run, work)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:  # once more for everybody who asks
            cancelled = error
    if cancelled is None:
        return running.result()
    if running.exception() is None:
        release(running.result())
    raise cancelled
