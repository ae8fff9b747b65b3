"""Prompts become tokens in threads: a long one takes seconds, and every stream lives on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

SHORT_BYTES = 64 << 10
"""A body up to this is tokenized in about a tenth of a second; it never waits behind a longer one."""


class Turns:
    """One thread at a time, taken in turn by everybody who asks. Event loop only."""

    def __init__(self) -> None:
        self._free = asyncio.Lock()
        self._of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, key: str, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return what it returns. Raises what it raises.

        The calls of one `key` run in their order, and one of them at most stands before another key's. Cancelling ends
        the wait at once; work that began keeps its turn to its end, as no thread can be stopped.
        """
        async with self._of.setdefault(key, asyncio.Lock()):
            await self._free.acquire()
            running = asyncio.get_running_loop().run_in_executor(None, copy_context().run, work)
            running.add_done_callback(self._ended)
            return await asyncio.shield(running)

    def _ended(self, work: asyncio.Future[T]) -> None:
        self._free.release()
        if not work.cancelled():
            work.exception()  # whoever gave up does not ask for it


class Tokenizing:
    """Where prompts are tokenized: the short ones and the long ones apart, each in turn for the keys. Event loop only.

    So at most two threads of the loop's pool are ever taken.
    """

    def __init__(self) -> None:
        self._short, self._long = Turns(), Turns()

    async def run(self, key: str, body_bytes: int, work: Callable[[], T]) -> T:
        """Do `work` for a request whose body has so many bytes. Raises what it raises."""
        turns = self._short if body_bytes <= SHORT_BYTES else self._long
        return await turns.run(key, work)
