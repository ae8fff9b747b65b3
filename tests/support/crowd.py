"""Clients by the hundred that ask for streams and stay: until they have their answer, or until they leave together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from tests.support.patience import PATIENCE_S
from tests.support.raw_http import Connection, Head


@dataclass
class Member:
    """One client with its connection: the head of its answer, and the text that came so far."""

    connection: Connection
    head: Head
    text: str = ""
    problem: str = ""
    is_done: bool = False
    pieces: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the first text."""

    async def listen(self) -> None:
        """Read the stream to its end."""
        rest = b""
        async for piece in self.connection.pieces():
            *events, rest = (rest + piece).split(b"\n\n")
            for event in events:
                self._take(event)

    def _take(self, event: bytes) -> None:
        if event == b"data: [DONE]":
            self.is_done = True
        elif event.startswith(b"data: {"):
            body = msgspec.json.decode(event.removeprefix(b"data: "))
            self.problem = body.get("error", {}).get("code", self.problem)
            for choice in body.get("choices", []):
                if text := choice["delta"].get("content"):
                    self.text += text
                    self.pieces += 1
                    self.came.set()


class Crowd:
    """Everybody who stays. A context manager: at its end all of them are gone. Event loop only."""

    def __init__(self, url: str, model: str, *, tokens: int) -> None:
        self._url, self._model, self._tokens = url, model, tokens
        self.members: list[Member] = []
        self._listening: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        for member in self.members:
            member.connection.abort()
        await asyncio.gather(*(member.connection.close() for member in self.members))

    async def join(self, key: str, prompt: str) -> Member:
        """Let one more client ask. It stays if it is not refused."""
        connection = await Connection.open(self._url)
        try:
            async with asyncio.timeout(PATIENCE_S):
                head = await ask(connection, key, stream_body(self._model, prompt, self._tokens))
        except BaseException:
            connection.abort()
            raise
        member = Member(connection, head)
        self.members.append(member)
        if head.status == 200:
            self._listening.append(asyncio.create_task(member.listen()))
        return member


def stream_body(model: str, prompt: str, tokens: int) -> bytes:
    """Return a request for a stream of exactly so many tokens."""
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens}
    return msgspec.json.encode(asked | {"model": model, "temperature": 0, "ignore_eos": True, "stream": True})


async def ask(connection: Connection, key: str, body: bytes) -> Head:
    """Ask for a chat and return the beginning of its answer."""
    await connection.send("/v1/chat/completions", body, headers={"Authorization": f"Bearer {key}"})
    return await connection.head()
