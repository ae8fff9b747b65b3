"""Turns a generation's events into an HTTP answer, whole or as server-sent events.

Both watch the client: when it leaves, the generation is closed at once, which cancels its streams in the pipeline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from console.api.http import ApiError, client_left, json_response
from console.api.openai.several import Placed, close_events, ended_early
from console.api.openai.shapes import KEEP_ALIVE, Answered, EventWriter
from console.pipeline.types import Ending, Failed, Finished, Text, TokenLogprobs

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 10.0
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_STATUS = {"too_many_waiting": 429, "grammar_refused": 400}
_RETRY_AFTER_S = {
    "overloaded": 2,
    "too_many_waiting": 5,
    "not_ready": 5,
    "cancelled": 5,
    "stage_lost": 5,
    "stage_failed": 1,
}

T = TypeVar("T")
Cancellation = Callable[[], contextlib.AbstractContextManager[asyncio.Future[None]]]
"""Makes a request known for as long as it runs; the future is done once somebody takes it back."""


class ClientLeft(Exception):
    """The client closed its connection; nobody is there to be answered."""


class TakenBack(Exception):
    """Whoever asked cancelled the request by its id."""


def failure(failed: Failed) -> ApiError:
    """Say a failed generation in HTTP: 429 for a key that asks too much, 400 for what cannot be, else 503."""
    return ApiError(
        _STATUS.get(failed.code, 503),
        failed.message,
        code=failed.code,
        param=failed.param or None,
        retry_after_s=_RETRY_AFTER_S.get(failed.code, 5) if failed.retryable else None,
        should_retry=failed.retryable,
    )


def taken_back() -> ApiError:
    """Say that a request was cancelled by its id. Not to be retried: somebody wanted it to end."""
    return ApiError(409, "The request was cancelled by its id.", code="request_cancelled", should_retry=False)


def note_outcome(scope: Scope, outcome: str) -> None:
    """Let a request count as this, whatever status its client was sent. `outcome` is one of a few words."""
    scope.setdefault("state", {})["outcome"] = outcome


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_wanted(receive: Receive, work: Awaitable[T], cancelled: asyncio.Future[None] | None = None) -> T:
    """Await `work`; when the client leaves or cancels first, it is cancelled, finished, and ClientLeft or TakenBack."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_until_disconnect(receive))
    reasons = [gone] if cancelled is None else [gone, cancelled]
    try:
        await asyncio.wait((task, *reasons), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientLeft if gone.done() else TakenBack
    finally:
        for future in (task, gone):
            future.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def wanted_by(request: Request, work: Awaitable[T], cancelled: asyncio.Future[None]) -> T:
    """Await what an answer needs before it begins; the body must be read. Raises ApiError when nobody wants it."""
    try:
        return await while_wanted(request.receive, work, cancelled)
    except ClientLeft:
        raise client_left() from None
    except TakenBack:
        raise taken_back() from None


class WholeAnswer(Response):
    """Collects the answers of a request and sends them as one JSON body."""

    def __init__(
        self,
        events: AsyncIterator[Placed],
        body: Callable[[Sequence[Answered]], object],
        cancellation: Cancellation,
        *,
        answers: int = 1,
    ) -> None:
        """`answers` says how many `events` holds, all prompts together; `body` makes the response of them."""
        super().__init__()
        self._events = events
        self._make_body = body
        self._cancellation = cancellation
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._cancellation() as cancelled:
                answered = await while_wanted(receive, self._collect(), cancelled)
        except ClientLeft:
            log.info("The client left before its answer was complete.")
            note_outcome(scope, "client_left")
            return
        except TakenBack:
            raise taken_back() from None
        finally:
            await close_events(self._events)
        await json_response(self._make_body(answered))(scope, receive, send)

    async def _collect(self) -> list[Answered]:
        texts: list[list[str]] = [[] for _ in range(self._answers)]
        logprobs: list[list[TokenLogprobs]] = [[] for _ in range(self._answers)]
        finished: dict[int, Finished] = {}
        async for place, event in self._events:
            if isinstance(event, Text):
                texts[place].append(event.text)
                logprobs[place] += event.logprobs
            elif isinstance(event, Finished):
                finished[place] = event
                if len(finished) == self._answers:
                    return [
                        Answered("".join(texts[place]), logprobs[place], finished[place])
                        for place in range(self._answers)
                    ]
            elif isinstance(event, Failed):
                raise failure(event)
        raise failure(ended_early())


class StreamedAnswer(Response):
    """Sends the answers of a request as server-sent events, one write per event.

    Until the first event is known nothing is sent, so an early failure still gets its HTTP status; after
    `keep_alive_s` of silence the headers go out and comments keep proxies and clients patient. Who has to wait for a
    place is told so at once, in a comment with the number of answers ahead.
    """

    def __init__(
        self,
        events: AsyncIterator[Placed],
        writer: EventWriter,
        cancellation: Cancellation,
        *,
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        super().__init__()
        self._events = events
        self._writer = writer
        self._cancellation = cancellation
        self._keep_alive_s = keep_alive_s
        self._started = False
        self._broken = ""
        """The code of the error that ended a stream after its first byte."""
        self._quiet = True
        self._writing = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        keeper = asyncio.create_task(self._keep_alive(send))
        try:
            with self._cancellation() as cancelled:
                await while_wanted(receive, self._relay(send), cancelled)
        except ClientLeft:
            log.info("The client left before its stream was complete.")
            note_outcome(scope, "client_left")
        except TakenBack:
            # A client that reads slowly may keep the last event waiting; the places in the pipeline must not.
            await close_events(self._events)
            await self._fail(send, taken_back(), reason="cancelled")
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            await close_events(self._events)
            if self._broken:
                note_outcome(scope, self._broken)

    async def _relay(self, send: Send) -> None:
        """Write every event. An error before the first byte is raised; after it, it becomes the last event."""
        try:
            async for place, event in self._events:
                if isinstance(event, Failed):
                    return await self._fail(send, failure(event), place, event.reason)
                data, complete = self._writer.render(place, event), self._writer.complete
                if data:
                    await self._write(send, data, last=complete)
                if complete:
                    return None
            await self._fail(send, failure(ended_early()))
        except Exception:
            if not self._started:
                raise
            log.exception("A stream ended by an unexpected error.")
            broken = ApiError(500, "The server failed while answering; send the request again.", code="internal_error")
            await self._fail(send, broken)

    async def _fail(self, send: Send, error: ApiError, place: int = 0, reason: Ending = "error") -> None:
        if not self._started:
            raise error
        self._broken = error.body.code or "failed"
        await self._write(send, self._writer.failed(place, error.envelope(), reason), last=True)

    async def _write(self, send: Send, data: bytes, *, last: bool = False) -> None:
        async with self._writing:
            if not self._started:
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                self._started = True
            self._quiet = False
            await send({"type": "http.response.body", "body": data, "more_body": not last})

    async def _keep_alive(self, send: Send) -> None:
        with contextlib.suppress(OSError):  # a client that left is noticed by the reader of disconnects
            while True:
                self._quiet = True
                await asyncio.sleep(self._keep_alive_s)
                if self._quiet:
                    await self._write(send, KEEP_ALIVE)
