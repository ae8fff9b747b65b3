"""Bringing a library to many PCs in rings: 5 % first, then 50 %, then all; a ring that goes badly is the last one.

What a PC gets is checked by its hashes before it counts as delivered. PCs of a later ring fetch from those of the
earlier ones, where PCs may talk to each other.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

import msgspec

from console.fleet.errors import DeliveryFailed
from shard_export.library.counts import counted

RINGS = (0.05, 0.5, 1.0)
"""The share of the PCs that have it after each ring."""
TOLERATED = 0.1
"""A ring in which more than this share of the PCs fails stops the rest."""
AT_ONCE = 8

Deliver = Callable[[str], Awaitable[None]]
"""Brings it to one PC. Raises DeliveryFailed."""
Arrive = Callable[[str], Awaitable[None]]
"""Waits until a PC is there. Raises DeliveryFailed if it does not come."""


async def _is_there(_device: str) -> None:
    """Wait for nobody."""


class RingStarted(msgspec.Struct, frozen=True, tag="ring"):
    """A ring begins: so many of `total` PCs have it when it is done."""

    ring: int
    devices: int
    total: int


class Delivered(msgspec.Struct, frozen=True, tag="delivered"):
    """A PC has it, or why not (`problem`)."""

    device_id: str
    problem: str = ""


class DeliveryEnded(msgspec.Struct, frozen=True, tag="ended"):
    """The end: `stopped` says why later rings were not begun; empty: every ring was."""

    delivered: int
    failed: int
    stopped: str = ""


DeliveryEvent = RingStarted | Delivered | DeliveryEnded


def rings_of(devices: Sequence[str], digest: str, shares: Sequence[float] = RINGS) -> list[list[str]]:
    """Split PCs into rings. Pure: the same PCs and library give the same rings, another library others.

    The first ring has at least one PC, and nobody is in two; rings that would be empty are left out.
    """
    order = sorted(devices, key=lambda device: hashlib.sha256(f"{digest} {device}".encode()).digest())
    rings, begun = [], 0
    for share in shares:
        end = max(math.ceil(share * len(order)), begun)
        if end > begun:
            rings.append(order[begun:end])
            begun = end
    return rings


async def deliver_in_rings(
    devices: Sequence[str],
    digest: str,
    deliver: Deliver,
    done: Mapping[str, str] | None = None,
    arrive: Arrive = _is_there,
) -> AsyncIterator[DeliveryEvent]:
    """Bring a library to PCs, ring by ring; the last event is DeliveryEnded.

    `done` says of PCs that were tried before what came of it: they are not tried again, and count all the same. Those
    that are away (`arrive`) take nobody's turn.
    """
    before = dict(done or {})
    delivered = failed = 0
    for number, ring in enumerate(rings_of(devices, digest), 1):
        yield RingStarted(number, delivered + failed + len(ring), len(devices))
        problems = 0
        for device in ring:
            if device in before:
                yield Delivered(device, before[device])
                problems += bool(before[device])
        async for event in _ring([device for device in ring if device not in before], deliver, arrive):
            yield event
            problems += bool(event.problem)
        delivered, failed = delivered + len(ring) - problems, failed + problems
        if problems > TOLERATED * len(ring):
            stopped = (
                f"{problems} of {counted(len(ring), 'PC')} of ring {number} failed; find out why, then deliver again."
            )
            yield DeliveryEnded(delivered, failed, stopped)
            return
    yield DeliveryEnded(delivered, failed)


async def _ring(ring: Sequence[str], deliver: Deliver, arrive: Arrive) -> AsyncIterator[Delivered]:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(device: str) -> Delivered:
        try:
            await arrive(device)
            async with turn:
                await deliver(device)
        except DeliveryFailed as error:
            return Delivered(device, str(error))
        return Delivered(device)

    tasks = [asyncio.create_task(one(device), name=f"deliver to {device}") for device in ring]
    try:
        for task in asyncio.as_completed(tasks):
            yield await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
