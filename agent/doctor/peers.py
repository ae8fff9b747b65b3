"""Can this PC reach the other PCs the console would send it to? Event loop.

It asks the console as a fetch would, and dials each PC it names as a fetch would; nothing is transferred.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import WebSocketException

from agent.doctor.findings import Finding, fine, problem, unknown
from agent.link.bulk import MAX_LOCATED, Holder
from agent.link.errors import LinkError
from agent.link.locating import CannotLocate, locate

DialBulk = Callable[[], Awaitable[ClientConnection]]


class DialPeer(Protocol):
    """Opens a bulk link to a PC; `agent.seeding.PeerDialler` is one."""

    async def dial(self, holder: Holder) -> ClientConnection:
        """Raises OSError, TimeoutError, LinkError or WebSocketException."""
        ...


async def check_peers(dial: DialBulk, peers: DialPeer, held_sha256: Sequence[str]) -> list[Finding]:
    """Dial the PCs that hold what this one holds."""
    if not held_sha256:
        return [unknown("peers", "this PC holds no model files, so no other PC is named to it")]
    try:
        holders = await locate(dial, held_sha256[:MAX_LOCATED])
    except CannotLocate as error:
        return [unknown("peers", f"the console does not name other PCs ({error})", "See the lines above.")]
    if not holders:
        said = "the console names no other PC with this one's files; none may hold them, or links between PCs are off"
        return [
            unknown(
                "peers", said, "If they should be on: start this PC's agent, and the console with --direct-links on."
            )
        ]
    return list(await asyncio.gather(*(_check_one(peers, holder) for holder in holders)))


async def _check_one(peers: DialPeer, holder: Holder) -> Finding:
    name = f"PC {holder.device_id[:8]} ({', '.join(holder.addresses)})"
    try:
        link = await peers.dial(holder)
    except (OSError, TimeoutError, LinkError, WebSocketException) as error:
        said = f"{name} is not reached: {str(error) or type(error).__name__}"
        return problem("peers", said, "Let its direct_ports (TCP 8470 to 8479) through the firewall between the PCs.")
    await link.close()
    return fine("peers", f"{name} is reached")
