"""Two PCs with one identity: found when the second comes, and both held until an administrator decides.

A restarted PC must never be taken for a copy. So an older session counts against a new one only if its program still
answers a ping, and a mark (see `console.registry.marks`) only if it is not the one this PC was told to keep.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from agent.link.identity import DeviceId
from console.registry.devices import CLONED
from console.registry.errors import Cloned, NotAuthorised
from console.registry.registry import Registry

log = logging.getLogger(__name__)

PONG_WAIT_S = 3.0
"""Shorter than an agent waits for Welcome, longer than a busy PC takes to answer."""


class CloneWatch:
    """Asked by the hub about every new session. Event loop only; the registry is asked in its threads."""

    def __init__(self, registry: Registry, *, pong_wait_s: float = PONG_WAIT_S) -> None:
        self._registry = registry
        self._pong_wait_s = pong_wait_s
        self._confirming: dict[DeviceId, asyncio.Task[None]] = {}

    async def admit(
        self, device_id: DeviceId, shown: str, older: Callable[[str], ServerConnection | None], source: str
    ) -> str:
        """Return the mark for a new session of a device. Raises NotAuthorised if two PCs use its identity.

        `older` finds the control link a device has already. Nothing is awaited after the last look at it, so the
        caller can take the new session in without another look.
        """
        silent: set[ServerConnection] = set()
        while True:
            while (link := older(device_id)) is not None and link not in silent:
                if await self._answers(link):
                    raise await self._hold(device_id, "two programs with its identity are connected at once", source)
                silent.add(link)
            await self._confirmed(device_id)
            try:
                mark = await self._registry.ask(partial(self._registry.marks.exchange, device_id, shown))
            except Cloned as error:
                raise await self._hold(device_id, error.evidence, source) from None
            link = older(device_id)
            if link is None or link in silent:
                return mark

    def confirm(self, device_id: DeviceId, mark: str) -> None:
        """Note that a PC keeps the mark it was given; its next session waits until that is written."""
        before = self._confirming.get(device_id)
        task = asyncio.create_task(self._confirm(device_id, mark, before), name="mark-confirmed")
        self._confirming[device_id] = task
        task.add_done_callback(partial(self._forget, device_id))

    async def stop(self) -> None:
        """Wait until every mark that was confirmed is written."""
        await asyncio.gather(*self._confirming.values())

    async def _confirm(self, device_id: DeviceId, mark: str, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await self._registry.ask(partial(self._registry.marks.confirm, device_id, mark))
        except Exception:  # the edge of a task nobody awaits; the PC's mark fits next time all the same
            log.exception("That %s keeps its mark could not be written.", device_id)

    def _forget(self, device_id: DeviceId, task: asyncio.Task[None]) -> None:
        if self._confirming.get(device_id) is task:
            del self._confirming[device_id]

    async def _confirmed(self, device_id: DeviceId) -> None:
        while (task := self._confirming.get(device_id)) is not None:
            await asyncio.wait([task])

    async def _hold(self, device_id: DeviceId, evidence: str, source: str) -> NotAuthorised:
        log.warning("Device %s is held: two PCs use its identity (%s).", device_id, evidence)
        await self._registry.ask(partial(self._registry.devices.quarantine, device_id, evidence, source=source))
        return NotAuthorised(4403, "suspended", CLONED, device_id)

    async def _answers(self, link: ServerConnection) -> bool:
        try:
            async with asyncio.timeout(self._pong_wait_s):
                await (await link.ping())
        except (ConnectionClosed, TimeoutError):
            return False
        return True
