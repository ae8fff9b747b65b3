"""What the link to the console carries: seen from files that are fetched anyway, and asked for where there are none."""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec
from websockets.asyncio.client import ClientConnection

from agent.link.frames import LAST_CHUNK, Fetch, Frame, FrameType, encode
from agent.link.transfer import CHUNK_WAIT_S, chunk_of

PROBE_BYTES = 4 << 20
LEAST_BYTES = 1 << 20
"""Less than this says more about the buffers on the way than about the link."""
REMEMBERED = 8


class Transfer:
    """One file on its way: bytes by the time they came, from the first chunk on. Pure."""

    def __init__(self) -> None:
        self._first_s: float | None = None
        self._last_s = 0.0
        self._bytes = 0

    def came(self, size_bytes: int, now_s: float) -> None:
        """Count a chunk. The first one only starts the clock: it was under way before."""
        if self._first_s is None:
            self._first_s = now_s
        else:
            self._bytes += size_bytes
        self._last_s = now_s

    @property
    def bytes_per_s(self) -> float | None:
        """The rate; None for a transfer that was too short to say."""
        if self._first_s is None or self._bytes < LEAST_BYTES or self._last_s <= self._first_s:
            return None
        return self._bytes / (self._last_s - self._first_s)


class Throughput:
    """The best of the last transfers: whatever else is on the link only ever makes one slower. Pure."""

    def __init__(self) -> None:
        self._rates: deque[float] = deque(maxlen=REMEMBERED)
        self.count = 0
        """How many transfers were counted: more of them are news."""

    def add(self, transfer: Transfer) -> None:
        """Take a transfer into account, if it was long enough."""
        rate = transfer.bytes_per_s
        if rate is not None:
            self._rates.append(rate)
            self.count += 1

    @property
    def bytes_per_s(self) -> float | None:
        """The rate; None before there was any transfer."""
        return max(self._rates, default=None)


async def read_end(link: ClientConnection, sha256: str, size_bytes: int) -> Transfer:
    """Fetch the end of a file and drop it. Raises NotServed, LinkCut, TimeoutError or ConnectionClosed."""
    transfer, now_s = Transfer(), asyncio.get_running_loop().time
    offset = max(0, size_bytes - PROBE_BYTES)
    table = msgspec.msgpack.encode(Fetch(sha256, offset, size_bytes - offset))
    await link.send(encode(Frame(FrameType.FETCH, 0, 0, offset, 0, 0, table, None)))
    while True:
        async with asyncio.timeout(CHUNK_WAIT_S):
            frame = chunk_of(await link.recv(decode=False), offset, size_bytes)
        arrived = frame.tensor.size if frame.tensor is not None else 0
        transfer.came(arrived, now_s())
        offset += arrived
        if frame.flags & LAST_CHUNK:
            return transfer
