"""One request of a load test: asked as any client asks, timed as its answer comes. One event loop."""

from __future__ import annotations

import time
from typing import Any, Self

import httpx2
import msgspec

from console.access import Access
from console.bench.figures import OTHER, Asked
from console.bench.mix import Prompt
from console.sse import Comment, LineTooLong, SseParser

CONNECT_S = 10.0
SILENCE_S = 60.0
"""A stream says something every ten seconds, if only that it is still there."""
MOST_ERROR_BYTES = 1 << 16
MOST_TIMINGS = 32
UNREACHABLE, TIMED_OUT, INCOMPLETE, BROKEN = "unreachable", "timeout", "incomplete", "not_understood"


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta = _Delta()


class _PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int = 0


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails = _PromptDetails()


class _Error(msgspec.Struct, frozen=True):
    message: str = ""
    code: str | None = None


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    timings: dict[str, Any] = {}
    details: dict[str, Any] = {}
    error: _Error | None = None


class LoadClient:
    """Asks one service. Use it as a context manager."""

    def __init__(self, access: Access, users: int) -> None:
        """Raises ClientError when the address, the key or the certificate cannot be used."""
        self._http = httpx2.AsyncClient(
            base_url=access.address(),
            headers=access.headers() | {"Content-Type": "application/json", "Accept": "text/event-stream"},
            verify=access.trust(),
            trust_env=False,
            timeout=httpx2.Timeout(CONNECT_S, read=SILENCE_S),
            limits=httpx2.Limits(max_connections=users, max_keepalive_connections=users),
        )
        self._decoder = msgspec.json.Decoder(_Chunk)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ask(self, asked: Asked, body: bytes) -> None:
        """Send one request and fill in what comes of it; what fails is a code in it. Cancelled, it stays cut."""
        try:
            async with self._http.stream("POST", "/v1/chat/completions", content=body) as response:
                if response.is_error:
                    content = (await response.aread())[:MOST_ERROR_BYTES]
                    self._refused(asked, response.status_code, content, response.headers.get("retry-after", ""))
                else:
                    await self._listen(asked, response)
        except httpx2.TimeoutException as error:
            asked.error, asked.message = TIMED_OUT, f"The server did not answer in time ({type(error).__name__})."
        except httpx2.RequestError as error:
            asked.error = INCOMPLETE if asked.pieces_s else UNREACHABLE
            asked.message = f"The server does not answer ({type(error).__name__}); see whether it runs."
        asked.ended_s = time.perf_counter()

    async def _listen(self, asked: Asked, response: httpx2.Response) -> None:
        parser = SseParser()
        try:
            async for data in response.aiter_bytes():
                now_s = time.perf_counter()
                for item in parser.feed(data):
                    if isinstance(item, Comment):
                        continue
                    if item.text.startswith("[DONE]"):
                        return
                    self._take(asked, self._decoder.decode(item.text), now_s)
        except (LineTooLong, msgspec.MsgspecError):
            asked.error, asked.message = BROKEN, "The server sent something that is no answer; check its address."
            return
        if not asked.error:
            asked.error, asked.message = INCOMPLETE, "An answer broke off before its end."

    def _take(self, asked: Asked, chunk: _Chunk, now_s: float) -> None:
        if any(choice.delta.content or choice.delta.reasoning_content for choice in chunk.choices):
            asked.pieces_s.append(now_s)
        if chunk.error is not None:
            asked.error, asked.message = chunk.error.code or OTHER, chunk.error.message
        if chunk.usage is not None:
            asked.prompt_tokens = chunk.usage.prompt_tokens
            asked.cached_tokens = chunk.usage.prompt_tokens_details.cached_tokens
            asked.answer_tokens = chunk.usage.completion_tokens
        drafted, accepted = (chunk.details.get(name) for name in ("drafted", "accepted"))
        if isinstance(drafted, int) and isinstance(accepted, int):
            asked.drafted, asked.accepted = drafted, accepted
        for said in (chunk.timings, chunk.details):
            asked.timings |= durations(said)

    def _refused(self, asked: Asked, status: int, content: bytes, retry_after: str) -> None:
        try:
            error = self._decoder.decode(content).error or _Error()
        except (msgspec.MsgspecError, UnicodeDecodeError):
            error = _Error()
        asked.error = error.code or f"http_{status}"
        asked.message = error.message or f"The server answered {status}, not like a Fallow console."
        if retry_after.isdecimal() and len(retry_after) < 6:
            asked.retry_after_s = float(retry_after)


def durations(said: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the durations a server gave: all numbers whose names end with `_ms`, those of parts as `part.name`."""
    found: dict[str, float] = {}
    for name, value in said.items():
        if len(found) >= MOST_TIMINGS:
            break
        if isinstance(value, dict) and not prefix:
            found |= durations(value, f"{name}.")
        elif name.endswith("_ms") and isinstance(value, int | float) and not isinstance(value, bool):
            found[prefix + name] = float(value)
    return found


def body_of(model: str, prompt: Prompt, *, max_tokens: int, natural: bool) -> bytes:
    """Return a request: greedy and streamed; unless `natural`, the answer goes on past its end to `max_tokens`."""
    return msgspec.json.encode(
        {
            "model": model,
            "messages": prompt.messages,
            "max_tokens": prompt.max_tokens or max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True, "include_details": True},
            "ignore_eos": not natural,
        }
    )
