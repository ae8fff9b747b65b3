"""The service's end of the control socket: greets clients, keeps them informed, passes their orders on.

Nothing a client does can stop the agent: sizes are checked first, a client that says what is no message is sent away,
and one that does not read is dropped. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from agent.control.endpoint import Endpoint
from agent.control.errors import OrderRefused
from agent.control.protocol import (
    LENGTH,
    MAX_REQUEST_BYTES,
    PROTOCOL,
    Answer,
    ControlProtocolError,
    FromService,
    Greeting,
    Order,
    Refused,
    Subscribe,
    Told,
    decode_greeting,
    decode_order,
    encode,
)
from agent.control.status import Status

log = logging.getLogger(__name__)

GREETING_WAIT_S = 5.0
MAX_CLIENTS = 16
MAX_ORDERS = 8
"""Of one client at once."""
MAX_UNREAD_BYTES = 2 << 20
SETTLE_S = 0.05
"""Changes come in bursts; one Status tells them all."""

Tell = Callable[[Told], None]


class Agent(Protocol):
    """What the socket gives access to."""

    def status(self) -> Status:
        """Describe the agent now."""
        ...

    async def carry_out(self, order: Order, tell: Tell) -> Answer:
        """Do what a client asks; `tell` says how far it is. Raises OrderRefused."""
        ...


class ControlServer:
    """Serves clients between `start` and `close`."""

    def __init__(self, endpoint: Endpoint, agent: Agent) -> None:
        self._endpoint = endpoint
        self._agent = agent
        self._clients: set[_Client] = set()
        self._close: Callable[[], Awaitable[None]] | None = None
        self._settling: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Let clients in. Raises ControlUnavailable."""
        self._close = await self._endpoint.listen(self._serve)

    async def close(self) -> None:
        """Turn every client away and wait for their tasks. Safe to call again."""
        if self._settling is not None:
            self._settling.cancel()
        if self._close is None:
            return
        await self._close()
        self._close = None
        tasks = [client.task for client in self._clients]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def changed(self) -> None:
        """Something may be different: tell those who want to know, in a moment."""
        if self._settling is None and any(client.told is not None for client in self._clients):
            self._settling = asyncio.get_running_loop().call_later(SETTLE_S, self._tell_all)

    def _tell_all(self) -> None:
        self._settling = None
        status = self._agent.status()
        for client in self._clients:
            client.inform(status)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= MAX_CLIENTS:
            writer.close()
            return
        client = _Client(reader, writer, self._agent)
        self._clients.add(client)
        try:
            await client.serve()
        except asyncio.CancelledError:
            # A task of a stream server that ends as cancelled is reported as an error.
            log.debug("A client of the control socket was sent away.")
        finally:
            self._clients.discard(client)


class _Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, agent: Agent) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a stream's callback always runs in a task
        self.task = task
        self.told: Status | None = None
        """What it was last told, once it wants to know."""
        self._reader, self._writer, self._agent = reader, writer, agent
        self._orders: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Answer until the client leaves."""
        try:
            async with asyncio.timeout(GREETING_WAIT_S):
                if not self._greet(decode_greeting(await self._read())):
                    return
            while True:
                self._take(decode_order(await self._read()))
        except ControlProtocolError as error:
            self.say(Refused(0, "bad_message", str(error)))
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass
        except Exception:  # the edge of a connection's task
            log.exception("Serving a client of the control socket failed.")
        finally:
            self._writer.close()
            for order in self._orders:
                order.cancel()
            await asyncio.gather(*self._orders, return_exceptions=True)
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    def inform(self, status: Status) -> None:
        """Tell a subscriber how the agent is, if more than the time has changed."""
        if self.told is not None and msgspec.structs.replace(self.told, now_s=status.now_s) != status:
            self.told = status
            self.say(status)

    def say(self, message: FromService) -> None:
        """Send without waiting; a client that does not read is cut."""
        transport = self._writer.transport
        if transport.is_closing():
            return
        if transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            log.info("A client of the control socket does not read and is cut.")
            transport.abort()
            return
        self._writer.write(encode(message))

    async def _read(self) -> bytes:
        (size,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
        if size > MAX_REQUEST_BYTES:
            raise ControlProtocolError(f"A control message of {size} bytes is over the limit.")
        return await self._reader.readexactly(size)

    def _greet(self, greeting: Greeting) -> bool:
        if greeting.protocol != PROTOCOL:
            sentence = f"The agent speaks protocol {PROTOCOL}, this program {greeting.protocol}; update the older one."
            self.say(Refused(0, "protocol", sentence))
            return False
        self.say(Greeting(PROTOCOL, importlib.metadata.version("fallow"), "service", os.getpid()))
        return True

    def _take(self, order: Order) -> None:
        if isinstance(order, Subscribe):
            self.told = self._agent.status()
            self.say(self.told)
            return
        if len(self._orders) >= MAX_ORDERS:
            self.say(Refused(order.id, "not_now", "Too many orders at once; wait for their answers."))
            return
        task = asyncio.create_task(self._carry_out(order), name=f"order {type(order).__name__}")
        self._orders.add(task)
        task.add_done_callback(self._orders.discard)

    async def _carry_out(self, order: Order) -> None:
        try:
            self.say(await self._agent.carry_out(order, self.say))
        except OrderRefused as error:
            self.say(Refused(order.id, error.code, str(error)))
        except Exception:  # the edge of a task nobody awaits: whoever gave the order hears of its end
            log.exception("The order %s failed.", type(order).__name__)
            self.say(Refused(order.id, "failed", "The agent failed; look at its log."))
