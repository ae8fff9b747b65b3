"""Turns a generation's events into an HTTP answer, whole or as server-sent events.

Both watch the client: when it leaves, the generation is closed at once, which cancels its stream in the pipeline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from console.api.http import ApiError, json_response
from console.api.openai.responses import KEEP_ALIVE, ChunkWriter, completion
from console.pipeline.types import Ending, Event, Failed, Finished, Reading, Recovering, Text, TokenLogprobs, Waiting

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 10.0
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_STATUS = {"too_many_waiting": 429}
_RETRY_AFTER_S = {
    "overloaded": 2,
    "too_many_waiting": 5,
    "not_ready": 5,
    "cancelled": 5,
    "stage_lost": 5,
    "stage_failed": 1,
}

T = TypeVar("T")


class ClientLeft(Exception):
    """The client closed its connection; nobody is there to be answered."""


def failure(failed: Failed) -> ApiError:
    """Say a failed generation in HTTP: 429 when the key asks too much, else 503."""
    return ApiError(
        _STATUS.get(failed.code, 503),
        failed.message,
        code=failed.code,
        retry_after_s=_RETRY_AFTER_S.get(failed.code, 5) if failed.retryable else None,
        should_retry=failed.retryable,
    )


async def close_events(events: AsyncIterator[Event]) -> None:
    """Close a generation; its stream leaves the pipeline. Harmless when it already ended."""
    aclose: Callable[[], Awaitable[None]] | None = getattr(events, "aclose", None)
    if aclose is not None:
        await aclose()


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """Await `work`; raises ClientLeft, with `work` cancelled and finished, when the client leaves first."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_until_disconnect(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeft
        return task.result()
    finally:
        for future in (task, gone):
            future.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


class WholeAnswer(Response):
    """Collects the answer and sends it as one JSON body."""

    def __init__(
        self, events: AsyncIterator[Event], answer_id: str, created_s: int, model_id: str, *, logprobs: bool = False
    ) -> None:
        """`logprobs` says whether they were asked for: an answer without any token has an empty list of them then."""
        super().__init__()
        self._logprobs: list[TokenLogprobs] | None = [] if logprobs else None
        self._events = events
        self._identity = (answer_id, created_s, model_id)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            text, finished = await while_connected(receive, self._collect())
        except ClientLeft:
            log.info("The client left before its answer was complete.")
            return
        finally:
            await close_events(self._events)
        await json_response(completion(*self._identity, text, finished, logprobs=self._logprobs))(scope, receive, send)

    async def _collect(self) -> tuple[str, Finished]:
        parts: list[str] = []
        async for event in self._events:
            if isinstance(event, Text):
                parts.append(event.text)
                if self._logprobs is not None:
                    self._logprobs += event.logprobs
            elif isinstance(event, Finished):
                return "".join(parts), event
            elif isinstance(event, Failed):
                raise failure(event)
        raise failure(_ended_early())


class StreamedAnswer(Response):
    """Sends the answer as server-sent events, one write per event.

    Until the first event is known nothing is sent, so an early failure still gets its HTTP status; after
    `keep_alive_s` of silence the headers go out and comments keep proxies and clients patient. Who has to wait for a
    place is told so at once, in a comment with the number of answers ahead.
    """

    def __init__(
        self, events: AsyncIterator[Event], writer: ChunkWriter, *, keep_alive_s: float = KEEP_ALIVE_S
    ) -> None:
        super().__init__()
        self._events = events
        self._writer = writer
        self._keep_alive_s = keep_alive_s
        self._started = False
        self._quiet = True
        self._writing = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        keeper = asyncio.create_task(self._keep_alive(send))
        try:
            await while_connected(receive, self._relay(send))
        except ClientLeft:
            log.info("The client left before its stream was complete.")
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            await close_events(self._events)

    async def _relay(self, send: Send) -> None:
        """Write every event. An error before the first byte is raised; after it, it becomes the last event."""
        opening = self._writer.role()
        try:
            async for event in self._events:
                if isinstance(event, Text):
                    if event.text or event.logprobs:
                        await self._write(send, opening + self._writer.text(event.text, event.logprobs))
                        opening = b""
                elif isinstance(event, Waiting | Reading | Recovering):
                    if note := self._writer.note(event):
                        await self._write(send, note)
                elif isinstance(event, Finished):
                    return await self._write(send, opening + self._writer.end(event), last=True)
                else:
                    return await self._fail(send, failure(event), event.reason)
            await self._fail(send, failure(_ended_early()))
        except Exception:
            if not self._started:
                raise
            log.exception("A stream ended by an unexpected error.")
            broken = ApiError(500, "The server failed while answering; send the request again.", code="internal_error")
            await self._fail(send, broken)

    async def _fail(self, send: Send, error: ApiError, reason: Ending = "error") -> None:
        if not self._started:
            raise error
        await self._write(send, self._writer.failed(error.envelope(), reason), last=True)

    async def _write(self, send: Send, data: bytes, *, last: bool = False) -> None:
        async with self._writing:
            if not self._started:
                self._started = True
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            self._quiet = False
            await send({"type": "http.response.body", "body": data, "more_body": not last})

    async def _keep_alive(self, send: Send) -> None:
        with contextlib.suppress(OSError):  # a client that left is noticed by the reader of disconnects
            while True:
                self._quiet = True
                await asyncio.sleep(self._keep_alive_s)
                if self._quiet:
                    await self._write(send, KEEP_ALIVE)


def _ended_early() -> Failed:
    return Failed("stage_failed", "The answer ended without a finish; send the request again.")
