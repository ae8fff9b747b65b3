"""Who may use a link, asked of the registry without holding up the event loop.

A look-up takes as long as the database does, and everybody else's links go on meanwhile. So does what administrators
decide: a device that is put out while it is looked up is looked up again, because what was read may be older than that.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial

from agent.link.identity import DeviceId
from console.registry.access import authorise
from console.registry.errors import NotAuthorised
from console.registry.records import DeviceRecord
from console.registry.registry import Registry

Authorise = Callable[[bytes | None], DeviceRecord | Awaitable[DeviceRecord]]
Expel = Callable[[DeviceId, str], object]
"""Close every link of a device, with a sentence for its user."""


def asking(registry: Registry, fleet_id: str, expel: Expel) -> Authorise:
    """Return what asks a registry about certificates, in its threads. `expel` is called on this event loop.

    It is called for a device that shows a key which was replaced, and also when its link has ended by then.
    """
    expel_soon = on_this_loop(expel)

    def look_up(certificate_der: bytes | None) -> DeviceRecord:
        try:
            return authorise(registry, fleet_id, certificate_der)
        except NotAuthorised as error:
            if error.device_id:
                expel_soon(DeviceId(error.device_id), str(error))
            raise

    return lambda certificate_der: registry.ask(partial(look_up, certificate_der))


def on_this_loop(expel: Expel) -> Expel:
    """Return `expel` for threads: it is called on this event loop, before what the thread returns is there."""
    loop = asyncio.get_running_loop()
    return lambda device_id, sentence: loop.call_soon_threadsafe(expel, device_id, sentence)


class _LookUp:
    """Who was put out since it began."""

    def __init__(self) -> None:
        self.put_out: set[str] = set()


class Doorkeeper:
    """Lets devices in by their certificates. Event loop only."""

    def __init__(self, authorise: Authorise) -> None:
        self._authorise = authorise
        self._under_way: set[_LookUp] = set()

    async def let_in(self, certificate_der: bytes | None) -> DeviceRecord:
        """Return the device of a certificate. Raises NotAuthorised.

        It holds until the caller awaits something: by then whoever puts devices out must be able to find the link.
        """
        look_up = _LookUp()
        self._under_way.add(look_up)
        try:
            while True:
                look_up.put_out.clear()
                found = self._authorise(certificate_der)
                record = await found if inspect.isawaitable(found) else found
                if record.device_id not in look_up.put_out:
                    return record
        finally:
            self._under_way.discard(look_up)

    def put_out(self, device_id: str) -> None:
        """Let no look-up that has begun let this device in."""
        for look_up in self._under_way:
            look_up.put_out.add(device_id)
