"""Stages' own links: frames on a TLS stream to the agents' port, next to the websockets there. Event loop only.

The child process that runs a stage dials it, asks for the protocol by ALPN, shows its PC's certificate and says which
stage it holds; the hub compares that with the registry and the route. It spares each hop the agent's process, two
wake-ups each way, and the websocket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

import msgspec
from websockets.asyncio.server import ServerConnection

from agent.link.cutter import FrameCutter
from agent.link.frames import (
    HEADER,
    MAX_FRAME_BYTES,
    Frame,
    FrameError,
    FrameMalformed,
    FrameType,
    Peek,
    encode,
    peek,
)
from agent.link.messages import STAGE_PROTOCOL
from agent.link.sockets import Unsendable
from agent.stage.types import Nack
from console.registry.errors import NotAuthorised

log = logging.getLogger(__name__)

INTRODUCTION_WAIT_S = 5.0
READ_BYTES = 64 * 1024
_STRANGER_BYTES = HEADER.size + 1024


class Owner(Protocol):
    """The hub, as far as a stage's link knows it."""

    async def admit(self, link: Uplink, certificate_der: bytes | None) -> str:
        """Check who dials and that the link's stage is its own; return the device. Raises NotAuthorised."""
        ...

    def take(self, device_id: str, data: bytes) -> None:
        """Take a frame. Raises FrameError."""
        ...

    def left(self, link: Uplink, device_id: str, error: FrameError | None) -> None:
        """Forget an admitted link; `error`: it sent what cannot be read."""
        ...


class Uplink(asyncio.BufferedProtocol):
    """One stage's link, at the console's end. `stage` is known once it was introduced."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        # Kept, because asyncio would allocate a quarter of a megabyte for each read.
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._cutter = FrameCutter(self._on_frame, _STRANGER_BYTES)
        self._device_id = ""
        self._admission: asyncio.Task[None] | None = None
        self._error: FrameError | None = None
        self.stage: Peek | None = None
        """The header that introduced it, in the epoch it is in."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a TLS server makes
        self._transport = transport
        self._deadline = asyncio.get_running_loop().call_later(INTRODUCTION_WAIT_S, self.close)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._transport.is_closing():
            return
        try:
            self._cutter.feed(bytes(self._buffer[:nbytes]))
        except FrameError as error:
            log.warning("Closed a stage's link of %s: %s", self._transport.get_extra_info("peername"), error)
            self._error = error
            self._refuse("bad_frame", str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        if self._admission is not None:
            self._admission.cancel()
        if self._device_id:
            self._owner.left(self, self._device_id, self._error)

    def post(self, data: bytes, max_unsent_bytes: int) -> None:
        """Send one frame now, without waiting. Raises Unsendable."""
        transport = self._transport
        if transport.is_closing():
            raise Unsendable(stalled=False)
        if transport.get_write_buffer_size() + len(data) > max_unsent_bytes:
            raise Unsendable(stalled=True)
        transport.write(data)

    def advance(self, epoch: int, stage: int) -> None:
        """The stage goes on in another epoch."""
        if self.stage is not None:
            self.stage = self.stage._replace(epoch=epoch, stage=stage)

    def close(self) -> None:
        """End the link at once: the stage ends with it."""
        self._transport.abort()

    def _on_frame(self, data: bytes) -> None:
        if self._device_id:
            self._owner.take(self._device_id, data)
            return
        header = peek(data)
        if header.type is not FrameType.TICKET or self._admission is not None:
            raise FrameMalformed("A stage's link begins with one introduction and waits for the answer.")
        self.stage = header
        self._admission = asyncio.create_task(self._admit(header), name="uplink-admission")

    async def _admit(self, header: Peek) -> None:
        tls = self._transport.get_extra_info("ssl_object")
        try:
            self._device_id = await self._owner.admit(self, tls.getpeercert(binary_form=True))
        except NotAuthorised as error:
            self._refuse(error.code, str(error))
            return
        except Exception:  # the edge of a task nobody awaits: the stage's PC hears of it, the log the cause
            log.exception("A stage's link could not be let in.")
            self._refuse("error", "The console could not find out who this is; its log says why.")
            return
        self._deadline.cancel()
        self._cutter.max_bytes = MAX_FRAME_BYTES
        answer = Frame(FrameType.TAKEN, header.pipeline, header.epoch, 0, 0, header.stage, b"", None)
        self._transport.write(encode(answer))

    def _refuse(self, code: str, message: str) -> None:
        nack = Frame(FrameType.NACK, 0, 0, 0, 0, 0, msgspec.msgpack.encode(Nack(0, code, message)), None)
        self._transport.write(encode(nack))
        self._transport.close()


def switching(make_uplink: Callable[[], Uplink]) -> type[ServerConnection]:
    """Return the connection class of a websocket server that hands stages' own links to `make_uplink` instead."""

    class Switch(ServerConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            tls = transport.get_extra_info("ssl_object")
            if tls is None or tls.selected_alpn_protocol() != STAGE_PROTOCOL:
                super().connection_made(transport)
                return
            uplink = make_uplink()
            transport.set_protocol(uplink)
            uplink.connection_made(transport)

    return Switch
