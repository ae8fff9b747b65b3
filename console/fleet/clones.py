"""Two PCs with one identity: found when the second comes, and both held until an administrator decides.

A restarted PC must never be taken for a copy. So an older session counts against a new one only if its program still
answers a ping, and a mark (see `console.registry.marks`) only if it is not the one this PC was told to keep.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

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
    """Asked by the hub about every new session. Event loop only."""

    def __init__(self, registry: Registry, *, pong_wait_s: float = PONG_WAIT_S) -> None:
        self._registry = registry
        self._pong_wait_s = pong_wait_s

    async def admit(
        self, device_id: DeviceId, shown: str, older: Callable[[str], ServerConnection | None], source: str
    ) -> str:
        """Return the mark for a new session of a device. Raises NotAuthorised if two PCs use its identity.

        `older` finds the control link a device has already. Nothing is awaited after the last look at it, so the
        caller can take the new session in without another look.
        """
        silent: set[ServerConnection] = set()
        while (link := older(device_id)) is not None and link not in silent:
            if await self._answers(link):
                raise self._hold(device_id, "two programs with its identity are connected at once", source)
            silent.add(link)
        try:
            return self._registry.marks.exchange(device_id, shown)
        except Cloned as error:
            raise self._hold(device_id, error.evidence, source) from None

    def confirm(self, device_id: DeviceId, mark: str) -> None:
        """Note that a PC keeps the mark it was given."""
        self._registry.marks.confirm(device_id, mark)

    def _hold(self, device_id: DeviceId, evidence: str, source: str) -> NotAuthorised:
        log.warning("Device %s is held: two PCs use its identity (%s).", device_id, evidence)
        self._registry.devices.quarantine(device_id, evidence, source=source)
        return NotAuthorised(4403, "suspended", CLONED, device_id)

    async def _answers(self, link: ServerConnection) -> bool:
        try:
            async with asyncio.timeout(self._pong_wait_s):
                await (await link.ping())
        except (ConnectionClosed, TimeoutError):
            return False
        return True
