"""How long a test waits for what has to come. Nothing ever takes as long, unless it does not come at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE_S = 60.0
"""A machine that runs other tests beside this one may let a process wait for many seconds."""


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what no event announces."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)
