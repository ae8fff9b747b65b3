"""A client of the running agent: the tray and the command line.

async with ControlClient.open(folder, "cli") as client:
    await client.order(Pause(client.next_id(), "time", 3600))
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import itertools
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from agent.control.endpoint import endpoint_of
from agent.control.errors import ControlUnavailable, OrderRefused
from agent.control.protocol import (
    LENGTH,
    MAX_ANSWER_BYTES,
    PROTOCOL,
    Answer,
    ControlProtocolError,
    FromService,
    Greeting,
    Order,
    Refused,
    Subscribe,
    Told,
    decode_from_service,
    encode,
)
from agent.control.status import Status

GREETING_WAIT_S = 2.0
"""A first instance that is alive but hung is worth an error, not a wait."""


class ControlClient:
    """One connection to the running agent. Event loop only; made by `open`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._ids = itertools.count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Answer], Callable[[Told], None]]] = {}
        self._news = asyncio.Event()
        self._latest: Status | None = None
        self._ended: ControlUnavailable | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, folder: Path, who: str) -> AsyncIterator[ControlClient]:
        """Connect to the agent of a data folder. Raises NotRunning, ControlUnavailable or OrderRefused (protocol)."""
        reader, writer = await endpoint_of(folder).connect()
        client = cls(reader, writer)
        try:
            await client._greet(who)
            listener = asyncio.create_task(client._listen(), name="control client")
            try:
                yield client
            finally:
                listener.cancel()
                await asyncio.gather(listener, return_exceptions=True)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def next_id(self) -> int:
        """Return an id for the next order."""
        return next(self._ids)

    async def order(self, order: Order, on_told: Callable[[Told], None] = lambda told: None) -> Answer:
        """Give an order and wait for its answer. Raises OrderRefused, ControlUnavailable when the agent ends."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[order.id] = answer, on_told
        try:
            self._send(order)
            return await answer
        finally:
            del self._waiting[order.id]

    async def statuses(self) -> AsyncIterator[Status]:
        """Yield how the agent is, now and at every change; who is slow misses some, never the last.

        For one reader at a time. Raises ControlUnavailable when the agent ends.
        """
        self._send(Subscribe(self.next_id()))
        while True:
            await self._news.wait()
            self._news.clear()
            if self._latest is not None:
                latest, self._latest = self._latest, None
                yield latest
            if self._ended is not None:
                raise self._ended

    async def status(self) -> Status:
        """Ask how the agent is."""
        async for status in self.statuses():
            return status
        raise ControlUnavailable("The agent ended; start it again.")

    def _send(self, message: Order | Greeting) -> None:
        if self._ended is not None:
            raise self._ended
        self._writer.write(encode(message))

    async def _greet(self, who: str) -> None:
        self._send(Greeting(PROTOCOL, importlib.metadata.version("fallow"), who, os.getpid()))
        try:
            async with asyncio.timeout(GREETING_WAIT_S):
                message = await self._read()
        except TimeoutError:
            raise ControlUnavailable("The agent does not answer; end it and start it again.") from None
        except (asyncio.IncompleteReadError, ConnectionError, ControlProtocolError) as error:
            raise ControlUnavailable(f"The agent closed the connection ({error}); start it again.") from None
        if isinstance(message, Refused):
            raise OrderRefused(message.message, message.code)

    async def _read(self) -> FromService:
        (size,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
        if size > MAX_ANSWER_BYTES:
            raise ControlProtocolError(f"The agent's message of {size} bytes is over the limit.")
        return decode_from_service(await self._reader.readexactly(size))

    async def _listen(self) -> None:
        ended = ControlUnavailable("The agent ended; start it again.")
        try:
            while True:
                self._take(await self._read())
        except ControlProtocolError as error:
            ended = ControlUnavailable(str(error))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._ended = ended
            for answer, _ in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ended)
            self._news.set()

    def _take(self, message: FromService) -> None:
        if isinstance(message, Status):
            self._latest = message
            self._news.set()
            return
        if isinstance(message, Greeting) or message.id not in self._waiting:
            return
        answer, on_told = self._waiting[message.id]
        if answer.done():
            return
        if isinstance(message, Told):
            on_told(message)
        elif isinstance(message, Refused):
            answer.set_exception(OrderRefused(message.message, message.code))
        else:
            answer.set_result(message)
