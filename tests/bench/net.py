"""A link with distance: a userspace TCP proxy with delay, jitter, bandwidth and loss of contact.

`Link` belongs to an event loop; `Network` runs links in a thread of their own for callers without a loop. Bytes are
never lost or reordered, as TCP promises: a network that drops packets looks like a stall to whoever uses it.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

HOST = "127.0.0.1"
MAX_HELD_BYTES = 8 << 20
"""What may be on its way in one direction before the sender has to wait, as behind a full TCP window."""

T = TypeVar("T")


class Shape(NamedTuple):
    """How a link is, each way on its own: `delay_ms` one way, up to `jitter_ms` more by chance, `bytes_per_s` (0: no
    limit)."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    bytes_per_s: float = 0.0


NEAR = Shape()
"""As fast as this PC can."""


class Wire:
    """When do bytes arrive that are sent now? One direction of one connection, in order. Pure but for chance."""

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self._busy_until_s = 0.0
        self._last_s = 0.0

    def arrival_s(self, now_s: float, size: int, shape: Shape) -> float:
        """Return the time at which the last of `size` bytes comes out; never before what was sent earlier."""
        sending_s = size / shape.bytes_per_s if shape.bytes_per_s else 0.0
        self._busy_until_s = max(self._busy_until_s, now_s) + sending_s
        far_s = (shape.delay_ms + (self._uniform(0.0, shape.jitter_ms) if shape.jitter_ms else 0.0)) / 1000
        self._last_s = max(self._last_s, self._busy_until_s + far_s)
        return self._last_s


class _End(asyncio.Protocol):
    """One socket of a connection; what it receives comes out of the other one when it is due."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._wire = Wire(link.uniform)
        self._held: deque[tuple[float, bytes | None]] = deque()
        self._held_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._peer_is_full = False
        self.peer: _End | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._link.joined(self)

    def data_received(self, data: bytes) -> None:
        self._hold(data, len(data))

    def eof_received(self) -> bool:
        self._hold(None, 0)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._hold(None, 0)
        self._link.left(self)

    def pause_writing(self) -> None:
        if self.peer is not None:
            self.peer.hold_back(full=True)

    def resume_writing(self) -> None:
        if self.peer is not None:
            self.peer.hold_back(full=False)

    def hold_back(self, *, full: bool) -> None:
        """Stop reading while the other socket takes no more, or too much is on its way."""
        self._peer_is_full = full
        if self.transport is None or self.transport.is_closing():
            return
        if full or self._held_bytes > MAX_HELD_BYTES or self.peer is None:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def meet(self, peer: _End) -> None:
        """Learn the other socket; until then nothing is read."""
        self.peer = peer
        self.hold_back(full=False)
        self.deliver()

    def drop(self) -> None:
        """Cut at once, with everything on its way."""
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self.transport is not None:
            self.transport.abort()

    def deliver(self) -> None:
        """Hand on what is due, and wake up again for the rest."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_s = self._loop.time()
        while self._held and not self._link.stalled and self._held[0][0] <= now_s:
            _, data = self._held.popleft()
            self._held_bytes -= len(data or b"")
            target = self.peer.transport if self.peer is not None else None
            if target is None or target.is_closing():
                continue
            if data is None:
                target.close()
            else:
                self._link.carried_bytes += len(data)
                target.write(data)
        self.hold_back(full=self._peer_is_full)
        if self._held and not self._link.stalled:
            self._timer = self._loop.call_at(self._held[0][0], self.deliver)

    def _hold(self, data: bytes | None, size: int) -> None:
        self._held.append((self._wire.arrival_s(self._loop.time(), size, self._link.shape), data))
        self._held_bytes += size
        if self._timer is None:
            self.deliver()


class Link:
    """Listens on `port` and carries every connection to `target_port` on this PC. Event loop only.

    `shape` may be changed at any time and holds for what is sent from then on. `carried_bytes` counts both ways.
    """

    def __init__(self, shape: Shape = NEAR, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self.shape = shape
        self.uniform = uniform
        self.stalled = False
        self.carried_bytes = 0
        self.port = 0
        self._target_port = 0
        self._is_cut = False
        self._ends: set[_End] = set()
        self._dials: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @classmethod
    async def open(cls, target_port: int, shape: Shape = NEAR) -> Link:
        """Listen on a free port; always `close` it."""
        link = cls(shape)
        link._target_port = target_port
        loop = asyncio.get_running_loop()
        link._server = await loop.create_server(lambda: _Accepted(link), HOST, 0)
        link.port = link._server.sockets[0].getsockname()[1]
        return link

    def cut(self) -> None:
        """Reset every connection and refuse new ones until `heal`."""
        self._is_cut = True
        for end in list(self._ends):
            end.drop()

    def stall(self) -> None:
        """Let nothing through, without a word to either side, until `heal`: a cable pulled, a PC asleep."""
        self.stalled = True

    def heal(self) -> None:
        """Take back `cut` and `stall`; what a stall held goes on its way at once."""
        self._is_cut = self.stalled = False
        for end in list(self._ends):
            end.deliver()

    async def close(self) -> None:
        """Stop listening and reset what is left."""
        assert self._server is not None
        self._server.close()
        self.cut()
        for dial in list(self._dials):
            dial.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)
        await self._server.wait_closed()

    def joined(self, end: _End) -> None:
        """Take in a new socket; an accepted one gets its other half dialled."""
        self._ends.add(end)
        if self._is_cut:
            end.drop()
        elif isinstance(end, _Accepted):
            end.hold_back(full=False)
            dial = asyncio.get_running_loop().create_task(self._dial(end))
            self._dials.add(dial)
            dial.add_done_callback(self._dials.discard)

    def left(self, end: _End) -> None:
        """Forget a socket that is closed."""
        self._ends.discard(end)

    async def _dial(self, near: _End) -> None:
        try:
            _, far = await asyncio.get_running_loop().create_connection(lambda: _End(self), HOST, self._target_port)
        except OSError:
            near.drop()
            return
        near.meet(far)
        far.meet(near)


class _Accepted(_End):
    """The side that dialled us."""


class Network:
    """Links in a thread of their own, for callers without an event loop. A context manager; safe from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bench-network")
        self._links: list[Link] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for link in self._links:
            self._run(link.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def link(self, target_port: int, shape: Shape = NEAR) -> Link:
        """Open a link to a port of this PC; it belongs to the network's thread."""
        link = self._run(Link.open(target_port, shape))
        self._links.append(link)
        return link

    def shape(self, shape: Shape) -> None:
        """Give all links the same shape."""

        def change() -> None:
            for link in self._links:
                link.shape = shape

        self.tell(change)

    def stall(self) -> None:
        """Let nothing through any link."""
        for link in self._links:
            self.tell(link.stall)

    def heal(self) -> None:
        """Take back what `stall` and `cut` did to any link."""
        for link in self._links:
            self.tell(link.heal)

    def tell(self, call: Callable[[], None]) -> None:
        """Run a call on the links' thread and wait for it."""

        async def run() -> None:
            call()

        self._run(run())

    @property
    def carried_bytes(self) -> int:
        """Bytes that came out of all links so far, both ways."""
        return sum(link.carried_bytes for link in self._links)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)
