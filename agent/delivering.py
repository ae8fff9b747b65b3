"""Deliveries while this PC's owner does not feel them: not over a metered network, on battery or beside a talk.

A delivery needs no rest of this PC, as a stage does; but what is paid for by the megabyte, or drains a battery, is its
owner's. What was fetched stays, so a delivery goes on where it was. Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

LOOK_S = 1.0
PATIENCE_S = 600.0
"""How long a delivery waits for its owner in all; then the console hears why, and may ask again another day."""


async def deliver_gently(
    deliver: Callable[[], Coroutine[Any, Any, str]], spared: Callable[[], str], *, patience_s: float = PATIENCE_S
) -> str:
    """Deliver, and return the problem, if any. `spared` says why nothing should be transferred now; empty: it may.

    Cancelling ends the delivery, too.
    """
    waited_s = 0.0
    while not (why := spared()) or waited_s < patience_s:
        if not why:
            problem = await _until_spared(deliver(), spared)
            if problem is not None:
                return problem
        await asyncio.sleep(LOOK_S)
        waited_s += LOOK_S
    return f"nothing is transferred there now ({why}); deliver again later."


async def _until_spared(work: Coroutine[Any, Any, str], spared: Callable[[], str]) -> str | None:
    """Return how the work ended; None: it was ended, because this PC is to be spared."""
    working = asyncio.create_task(work, name="delivery's files")
    try:
        while not working.done():
            if spared():
                return None
            await asyncio.wait({working}, timeout=LOOK_S)
        return working.result()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
