"""The requests that are being answered, by their ids, so that whoever asked can take one back. Event loop only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Literal

import msgspec


class CancelBody(msgspec.Struct, frozen=True):
    """What was cancelled, by the name it was called by."""

    id: str
    object: Literal["request.cancellation"] = "request.cancellation"


class RunningRequests:
    """Knows the running requests of this process."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], set[asyncio.Future[None]]] = {}

    @contextlib.contextmanager
    def running(self, key_id: str, names: tuple[str, ...]) -> Iterator[asyncio.Future[None]]:
        """Know a request of a key by each of its names; the future is done once it is to be cancelled."""
        cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        places = [(key_id, name) for name in names]
        for place in places:
            self._running.setdefault(place, set()).add(cancelled)
        try:
            yield cancelled
        finally:
            cancelled.cancel()
            for place in places:
                self._running[place].discard(cancelled)
                if not self._running[place]:
                    del self._running[place]

    def cancel(self, key_id: str, name: str) -> bool:
        """Take back the requests of a key that have this name; False: none is running."""
        found = [future for future in self._running.get((key_id, name), ()) if not future.done()]
        for future in found:
            future.set_result(None)
        return bool(found)
