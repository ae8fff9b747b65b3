"""Frames to stage 0 in the order they were planned, whether the link takes them at once or not."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable


class Outbox:
    """Sends at once while the link is synchronous; otherwise one task sends what is queued, in order.

    `failed` is called once per failed send, on the event loop.
    """

    def __init__(self, submit: Callable[[bytes], Awaitable[None] | None], failed: Callable[[Exception], None]) -> None:
        self._submit = submit
        self._failed = failed
        self._queued: deque[bytes] = deque()
        self._task: asyncio.Task[None] | None = None

    def send(self, data: bytes) -> None:
        """Send or queue one frame; never raises."""
        if self._task is not None:
            self._queued.append(data)
            return
        try:
            waiting = self._submit(data)
        except Exception as error:  # noqa: BLE001 - the link's edge: whatever it raises, stage 0 is out of reach
            # Later, because the caller is in the middle of its own bookkeeping.
            asyncio.get_running_loop().call_soon(self._failed, error)
            return
        if waiting is not None:
            self._task = asyncio.ensure_future(self._drain(waiting))

    def clear(self) -> None:
        """Forget what was not sent yet."""
        self._queued.clear()

    async def close(self) -> None:
        """Stop sending."""
        self.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _drain(self, waiting: Awaitable[None] | None) -> None:
        try:
            while True:
                if inspect.isawaitable(waiting):
                    await waiting
                if not self._queued:
                    return
                waiting = self._submit(self._queued.popleft())
        except Exception as error:  # noqa: BLE001 - the task's edge: whatever the link raises, the stage is lost
            self._failed(error)
        finally:
            self._task = None
