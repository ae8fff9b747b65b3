"""The open door of the agents' port: enrolment, renewal, and the answer to "why was I refused?".

TLS 1.3 hides from a client why its certificate was not accepted, so diagnosis lives here, where none is needed. The
handler owns no socket: the hub calls `EnrolHandler.handle` for each connection to the enrolment path. What is answered
is decided in `admission`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from websockets.exceptions import ConnectionClosed

from agent.link.enrol_messages import (
    MAX_ENROL_BYTES,
    Await,
    Diagnose,
    FromEnrollee,
    FromEnroller,
    Pending,
    Poll,
    Refused,
    Renew,
    Submit,
    decode_from_enrollee,
    encode_enrol,
)
from agent.link.identity import DeviceId
from agent.link.messages import MessageError
from agent.threads import InThread, finish_in_thread
from console.fleet.admission import UNKNOWN, Admission
from console.fleet.ratelimit import RateLimiter
from console.registry.access import peer_certificate

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

_log = logging.getLogger(__name__)

IDLE_S = 90.0
"""Longer than the slowest poll of an agent (30 s) by far; a silent stranger is dropped after it."""
MAX_CONNECTIONS = 500
MAX_MESSAGES = 2000
_BUSY = Refused("busy", "The console is answering too many enrolments; try again in a minute.")


class EnrolHandler:
    """Answers one enrolment connection at a time per call of `handle`; share one handler for all.

    What is answered is decided in threads, those of `ask`: the registry is read and written, certificates are signed.
    """

    def __init__(
        self, admission: Admission, *, ask: InThread = finish_in_thread, limiter: RateLimiter | None = None
    ) -> None:
        self.admission = admission
        self._ask = ask
        self._limiter = limiter or RateLimiter(burst=200, per_s=20.0)
        self._open = 0

    async def handle(self, websocket: ServerConnection) -> None:
        """Talk to one agent until it leaves, errs or stays silent. Never raises but for cancellation."""
        # The port is shared with data links, whose messages are large; a stranger's are not.
        websocket.protocol.max_message_size = MAX_ENROL_BYTES
        source = _source(websocket)
        if self._open >= MAX_CONNECTIONS or not self._limiter.allow(source, time.monotonic()):
            await _send_and_close(websocket, _BUSY, 1013)
            return
        self._open += 1
        try:
            await _Conversation(self.admission, self._ask, websocket, source).run()
        except ConnectionClosed:
            pass
        except MessageError as error:
            _log.info("Enrolment connection from %s ended: %s", source, error)
            await websocket.close(4400)
        except TimeoutError:
            _log.info("Enrolment connection from %s ended: it stayed silent for %g s", source, IDLE_S)
            await websocket.close(4408)
        finally:
            self._open -= 1


class _Conversation:
    """One connection: greeting, then answers until it ends."""

    def __init__(self, admission: Admission, ask: InThread, websocket: ServerConnection, source: str) -> None:
        self._admission = admission
        self._ask = ask
        self._websocket = websocket
        self._source = source
        self._submitted: DeviceId | None = None

    async def run(self) -> None:
        hello = self._admission.hello()
        await self._websocket.send(encode_enrol(hello))
        for _ in range(MAX_MESSAGES):
            async with asyncio.timeout(IDLE_S):
                data = await self._websocket.recv()
            reply = await self._reply(decode_from_enrollee(data), hello.nonce)
            if isinstance(reply, Pending):
                await self._websocket.send(encode_enrol(reply))
            else:
                await _send_and_close(self._websocket, reply, 1000)
                return
        await self._websocket.close(1000)

    async def _reply(self, message: FromEnrollee, nonce: bytes) -> FromEnroller:
        admission = self._admission
        match message:
            case Submit():
                device, reply = await self._ask(partial(admission.submit, message, nonce, self._source))
                self._submitted = None if device is None else device.device_id
                return reply
            case Await():
                device, reply = await self._ask(partial(admission.awaited, message, nonce, self._source))
                self._submitted = None if device is None else device.device_id
                return reply
            case Renew():
                return await self._ask(partial(admission.renew, message, nonce, self._source))
            case Poll():
                return (
                    UNKNOWN if self._submitted is None else await self._ask(partial(admission.answer, self._submitted))
                )
            case Diagnose():
                return await self._ask(partial(admission.diagnose, message, peer_certificate(self._websocket)))


async def _send_and_close(websocket: ServerConnection, message: FromEnroller, code: int) -> None:
    try:
        await websocket.send(encode_enrol(message))
        await websocket.close(code)
    except ConnectionClosed:
        pass


def _source(websocket: ServerConnection) -> str:
    address = websocket.remote_address
    return str(address[0]) if isinstance(address, tuple) and address else "unknown"
