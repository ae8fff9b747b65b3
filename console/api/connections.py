"""A client's connection that ends when its client does not do its part: nothing of it is held for ever.

uvicorn bounds how long a connection may idle between requests. It bounds neither how long the head of a request may
take nor how long a client may take nothing of its answer; bodies of requests have bounds of their own.
"""

from __future__ import annotations

import asyncio
import logging

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

log = logging.getLogger(__name__)

HEAD_S = 30.0
"""For the head of a request, from its first byte, and for that of the first one from the connection on."""
STALLED_S = 60.0
"""For a client that takes nothing while its answer waits to be sent."""


class Connection(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, within bounds. Event loop only."""

    _head_due: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn says it is never None; it is before the first request
        if self.transport.is_closing():
            self._stop_waiting()
        elif cycle is None or cycle.response_complete:
            self._await_head()
        elif self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(STALLED_S, self._give_up, "took nothing of its answer", STALLED_S)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _await_head(self) -> None:
        if self._head_due is None:
            self._head_due = self.loop.call_later(HEAD_S, self._give_up, "sent no request", HEAD_S)

    def _stop_waiting(self) -> None:
        for timer in (self._head_due, self._stalled):
            if timer is not None:
                timer.cancel()
        self._head_due = self._stalled = None

    def _give_up(self, why: str, bound_s: float) -> None:
        log.info("A client was cut off: it %s for %.0f s.", why, bound_s)
        # Closing would wait for what is still to be sent.
        self.transport.abort()
