"""Opening a session, unless the agent is stopped meanwhile: nothing of it stays open then. Event loop only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from agent.link.closing import LinkDown
from agent.session import Session


async def open_unless(stop: asyncio.Event, opens: Coroutine[Any, Any, Session]) -> Session | None:
    """Return what `opens` opens, or None if `stop` was set first. Raises LinkDown."""
    opening, stopped = asyncio.create_task(opens), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({opening, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if opening.done():
            return opening.result()
        await _call_off(opening)
        return None
    except asyncio.CancelledError:
        await _call_off(opening)
        raise
    finally:
        stopped.cancel()
        await asyncio.gather(stopped, return_exceptions=True)


async def _call_off(opening: asyncio.Task[Session]) -> None:
    """End what was to become a session; one that came to be all the same says goodbye."""
    opening.cancel()
    (session,) = await asyncio.gather(opening, return_exceptions=True)
    if not isinstance(session, BaseException):
        over = asyncio.Event()
        over.set()
        with contextlib.suppress(LinkDown):
            await session.run(over)
