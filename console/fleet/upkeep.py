"""What a console does by itself from time to time: certificates, roots, requests and PCs whose time is over.

Nothing here needs a restart, and nothing is lost when it runs late.
"""

from __future__ import annotations

import asyncio
import logging

from agent.threads import finish_in_thread
from console.registry.authority import Authority
from console.registry.errors import RegistryError
from console.registry.registry import Registry

log = logging.getLogger(__name__)

EVERY_S = 3600.0


async def stopped_within(stopping: asyncio.Event, seconds: float) -> bool:
    """Wait; returns whether `stopping` was set meanwhile."""
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return False
    return True


class Upkeep:
    """Runs beside the hub until it is stopped."""

    def __init__(self, registry: Registry, authority: Authority, *, every_s: float = EVERY_S) -> None:
        self._registry = registry
        self._authority = authority
        self._every_s = every_s
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the first round comes after one interval, because opening did what was due."""
        self._task = asyncio.create_task(self._run(), name="upkeep")

    async def stop(self) -> None:
        """End, after the round that is under way."""
        if self._task is not None:
            # Not cancelled: its thread would go on with a database that is closed meanwhile.
            self._stopping.set()
            await self._task
            self._task = None

    async def _run(self) -> None:
        while not await stopped_within(self._stopping, self._every_s):
            try:
                await self.once()
            except (RegistryError, OSError):
                # The disk may be full or the database away for a while; the next round does what this one did not.
                log.exception("The console's upkeep failed; it is tried again.")

    async def once(self) -> None:
        """Do what is due now. Raises RegistryError kinds and OSError."""
        if await finish_in_thread(self._authority.refresh):
            log.info("The console's certificate or the set of roots has changed; new connections use it.")
        await finish_in_thread(self._registry.devices.expire)
