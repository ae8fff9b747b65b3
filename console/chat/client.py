"""The way to the server: the models it has, and answers as they come. One event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import httpx2
import msgspec

from agent.link.parsing import UNREADABLE
from console.access import Access
from console.chat.errors import AnswerFailed
from console.chat.events import AnswerReader, Ended, Event, incomplete, refusal
from console.chat.records import Message, Setup
from console.errors import ClientError
from console.sse import LineTooLong, SseParser

CONNECT_S = 10.0
SILENCE_S = 60.0
"""A stream says something every ten seconds, if only that it is still there."""
MOST_ERROR_BYTES = 1 << 16


class Model(msgspec.Struct, frozen=True):
    """A model that can be asked. `context_tokens` is the longest question and answer together; 0: not said."""

    id: str
    ready: bool = True
    context_tokens: int = 0


class _Models(msgspec.Struct, frozen=True):
    data: list[Model]


class ChatClient:
    """Asks one server as one person. `close` at the end."""

    def __init__(self, access: Access) -> None:
        """Raises AnswerFailed when the address, the key or the server's certificate cannot be used."""
        try:
            address, headers, verify = access.address(), access.headers(), access.trust()
        except ClientError as error:
            raise AnswerFailed(str(error), kind="unreachable") from None
        self._url = access.url
        self._http = httpx2.AsyncClient(
            base_url=address,
            headers=headers,
            verify=verify,
            trust_env=False,
            timeout=httpx2.Timeout(CONNECT_S, read=SILENCE_S),
        )

    async def close(self) -> None:
        """Close the connections; answers that still come end."""
        await self._http.aclose()

    async def models(self) -> list[Model]:
        """List the models that the key may use. Raises AnswerFailed."""
        try:
            response = await self._http.get("/v1/models")
        except httpx2.RequestError as error:
            raise self._not_answered(error) from None
        if response.is_error:
            raise refusal(response.status_code, response.content, response.headers.get("retry-after", ""))
        try:
            return msgspec.json.decode(response.content, type=_Models).data
        except UNREADABLE:
            raise self._no_console() from None

    async def ask(self, setup: Setup, messages: Sequence[Message], reader: AnswerReader) -> AsyncGenerator[Event, None]:
        """Ask with the messages of a branch and yield what comes of it, Ended last. Raises AnswerFailed.

        Closing the iterator closes the connection, by which the server ends the answer and frees its place.
        """
        body = msgspec.json.encode(request_of(setup, messages))
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        parser = SseParser()
        began = False
        try:
            async with self._http.stream("POST", "/v1/chat/completions", content=body, headers=headers) as response:
                if response.is_error:
                    content = (await response.aread())[:MOST_ERROR_BYTES]
                    raise refusal(response.status_code, content, response.headers.get("retry-after", ""))
                async for data in response.aiter_bytes():
                    for item in parser.feed(data):
                        for event in reader.read(item):
                            began = True
                            yield event
                            if isinstance(event, Ended):
                                return
        except httpx2.RequestError as error:
            raise (incomplete() if began else self._not_answered(error)) from None
        except LineTooLong:
            message = "The server sent something that is no answer; check its address."
            raise AnswerFailed(message, kind="broken") from None
        raise incomplete()

    def _not_answered(self, error: httpx2.RequestError) -> AnswerFailed:
        if not isinstance(error, httpx2.TransportError):
            return self._no_console()
        how = "did not answer in time" if isinstance(error, httpx2.TimeoutException) else "cannot be reached"
        message = f"The server at {self._url} {how}; check your network, or ask an administrator whether it runs."
        return AnswerFailed(message, kind="unreachable")

    def _no_console(self) -> AnswerFailed:
        return AnswerFailed(f"What answers at {self._url} is no Fallow console; check the address.", kind="broken")


def request_of(setup: Setup, messages: Sequence[Message]) -> dict[str, Any]:
    """Return the body that asks for the next message; empty answers are left out, no model can use them."""
    said = [{"role": message.role, "content": content} for message in messages if (content := message.content())]
    if setup.system.strip():
        said.insert(0, {"role": "system", "content": setup.system})
    return {
        "model": setup.model,
        "messages": said,
        "stream": True,
        "stream_options": {"include_usage": True, "include_details": True},
        **setup.sampling.fields(),
    }
