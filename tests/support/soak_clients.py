"""Sixteen clients as they come: most read their answers, some slowly, some leave, some take back, some send rubbish.

Each acts by chance, from a seed. Whatever an answer is, it is compared with what its question got alone; whatever is
asked has to end within a bound.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.support.patience import PATIENCE_S
from tests.support.raw_http import Connection
from tests.support.soak_questions import LONG, PATHS, Question, Said

CLIENTS = 16
BOUND_S = 2 * PATIENCE_S
"""For all that a client does at a time: far more than any of it takes, and far less than for ever."""
BODY_PATIENCE_S = 30
"""How long the service waits for the rest of a body."""
MB = 1 << 20


@dataclass(frozen=True)
class Service:
    """Where clients ask, and what each question gets there when nobody else asks."""

    url: str
    model: str
    keys: Sequence[str]
    limited: str
    """A key that may have one answer at once."""
    tls: ssl.SSLContext | None = None
    alone: dict[str, Said] = field(default_factory=dict)

    async def open(self, *, small: bool = False) -> Connection:
        """Connect."""
        return await Connection.open(self.url, self.tls, small=small)

    async def ask_alone(self, asked: Sequence[Question]) -> None:
        """Find out what every question gets, with nobody else there."""
        for question in asked:
            async with asyncio.timeout(BOUND_S), await self.open() as connection:
                await connection.send(question.path, question.body(self.model), headers=_bearer(self.keys[0]))
                head, said = await connection.head(), Said()
                body = await connection.body()
                assert head.status == 200, body
                said.take_whole(body)
                self.alone[repr(question)] = said


@dataclass
class Record:
    """What the clients did, how often, and what was wrong with what they got."""

    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Client:
    """One client. Event loop only."""

    def __init__(
        self, service: Service, asked: Sequence[Question], record: Record, chance: random.Random, limit: asyncio.Lock
    ) -> None:
        """`limit` is held by whoever uses the limited key."""
        self._service, self._asked, self._record, self._chance, self._limit = service, asked, record, chance, limit
        self._ways: dict[Callable[[], Awaitable[None]], int] = {
            self.ask_whole: 4,
            self.listen: 6,
            self.listen_slowly: 2,
            self.hang_up: 3,
            self.take_back: 2,
            self.send_rubbish: 3,
            self.send_half: 1,
            self.send_too_much: 1,
            self.ask_beyond_the_limit: 1,
        }

    async def act(self) -> None:
        """Do one thing, whatever it is."""
        (way,) = self._chance.choices(list(self._ways), list(self._ways.values()))
        name = way.__name__
        try:
            async with asyncio.timeout(BOUND_S):
                await way()
        except TimeoutError:
            self._record.wrong.append(f"{name} did not end within {BOUND_S:.0f} s")
        except (OSError, EOFError, AssertionError, msgspec.MsgspecError) as error:
            self._record.wrong.append(f"{name}: {error!r}")
        self._record.done[name] += 1

    # What a client may do

    async def ask_whole(self) -> None:
        """Ask twice on one connection for whole answers."""
        async with await self._service.open() as connection:
            for _ in range(2):
                await self._ask_whole(connection)

    async def listen(self) -> None:
        """Read a stream to its end."""
        async with await self._service.open() as connection:
            await self._stream(connection, self._choose())

    async def listen_slowly(self) -> None:
        """Read a stream that no buffer holds, and look away for seconds."""
        async with await self._service.open(small=True) as connection:
            await self._stream(connection, LONG, pauses=self._chance.randint(1, 3))

    async def hang_up(self) -> None:
        """Leave at some moment: before anything came, within a stream, politely or not."""
        question, streamed = self._choose(), self._chance.random() < 0.7
        connection = await self._service.open()
        try:
            await self._send(connection, question, stream=streamed)
            if streamed and self._chance.random() < 0.7:
                said, left = Said(), self._chance.randint(1, 12)
                assert (await connection.head()).status == 200
                async with aclosing(_events(connection)) as events:
                    async for event in events:
                        said.take(event)
                        left -= 1
                        if not left:
                            break
                self._compare(question, said)
            else:
                await asyncio.sleep(self._chance.random() / 4)
            if self._chance.random() < 0.5:
                connection.abort()
        finally:
            await connection.close()

    async def take_back(self) -> None:
        """Cancel an answer by the id of the request, on another connection, and hear on the first that it is."""
        name = f"soak-{self._chance.getrandbits(64):x}"
        async with await self._service.open() as connection:
            key = self._key()
            await self._send(connection, LONG, key, stream=True, request_id=name)
            said, status = Said(), (await connection.head()).status
            assert status == 200
            events = _events(connection)
            for _ in range(self._chance.randint(0, 8)):
                said.take(await anext(events))
            async with await self._service.open() as other:
                await other.send(f"/v1/requests/{name}/cancel", headers=_bearer(key))
                cancelled = (await other.head()).status == 200
                await other.body()
            async for event in events:
                said.take(event)
        assert said.is_whole != (said.error == "request_cancelled"), said.error
        assert said.is_whole or cancelled
        self._compare(LONG, said)

    async def send_rubbish(self) -> None:
        """Send what is no request, be told so, and ask properly on the same connection."""
        path = self._chance.choice(list(PATHS.values()))
        body, statuses = self._chance.choice(_rubbish(self._service.model, self._chance))
        async with await self._service.open() as connection:
            await connection.send(path, body, headers=_bearer(self._key()))
            head = await connection.head()
            error = msgspec.json.decode(await connection.body())["error"]
            assert head.status in statuses, (body[:80], head.status, error)
            assert error["message"]
            await self._ask_whole(connection)

    async def send_half(self) -> None:
        """Send a part of a request and leave, or wait until the service has enough of it."""
        body = self._choose().body(self._service.model)
        connection = await self._service.open()
        try:
            patient = self._chance.random() < 0.2
            upto = None if patient else self._chance.randrange(1, 150 + len(body))
            headers = _bearer(self._key()) | ({"Content-Length": str(len(body) + 1)} if patient else {})
            await connection.send(PATHS["chat"], body, headers=headers, upto=upto)
            if patient:
                assert (await connection.head()).status == 408
                await connection.body()
                assert await connection.ended()
            else:
                await asyncio.sleep(self._chance.random())
                if self._chance.random() < 0.5:
                    connection.abort()
        finally:
            await connection.close()

    async def send_too_much(self) -> None:
        """Send a body over the limit, announced or not, or a prompt that no context holds."""
        async with await self._service.open() as connection:
            way = self._chance.randrange(3)
            key = _bearer(self._key())
            if way == 0:
                await connection.send(PATHS["chat"], headers=key | {"Content-Length": str(3 * MB)})
            elif way == 1:
                size = 2 * MB + 1024
                chunk = b"%x\r\n" % size + b" " * size + b"\r\n"
                await connection.send_chunked(PATHS["chat"], chunk, headers=key)
            else:
                await self._send(connection, Question("completion", {"prompt": "ab" * 40_000, "max_tokens": 1}))
            head = await connection.head()
            code = msgspec.json.decode(await connection.body())["error"]["code"]
            expected = (400, "context_length_exceeded") if way == 2 else (413, "request_too_large")
            assert (head.status, code) == expected

    async def ask_beyond_the_limit(self) -> None:
        """Ask twice at once with a key for one answer: the second is refused, the first goes on."""
        async with self._limit, await self._service.open(small=True) as connection, await self._service.open() as other:
            while True:  # the last one's answer counts until the service has seen its end
                await self._send(connection, LONG, self._service.limited, stream=True)
                head = await connection.head()
                if head.status == 200:
                    break
                await connection.body()
                assert head.status == 429
            # What nobody reads yet does not end.
            await self._send(other, LONG, self._service.limited)
            refused = await other.head()
            assert (refused.status, refused.headers["retry-after"]) == (429, "5"), refused
            await other.body()
            await self._read_stream(connection, LONG, Said())

    # How

    async def _ask_whole(self, connection: Connection) -> None:
        question, said = self._choose(), Said()
        await self._send(connection, question)
        head, body = await connection.head(), await connection.body()
        assert head.status == 200, body
        said.take_whole(body)
        self._compare(question, said, whole=True)

    async def _stream(self, connection: Connection, question: Question, *, pauses: int = 0) -> None:
        await self._send(connection, question, stream=True)
        assert (await connection.head()).status == 200
        await self._read_stream(connection, question, Said(), pauses=pauses)

    async def _read_stream(self, connection: Connection, question: Question, said: Said, *, pauses: int = 0) -> None:
        moments = {self._chance.randint(1, 200) for _ in range(pauses)}
        count = 0
        async for event in _events(connection):
            said.take(event)
            count += 1
            if count in moments:
                await asyncio.sleep(self._chance.uniform(1, 5))
        self._compare(question, said, whole=True)

    async def _send(
        self, connection: Connection, question: Question, key: str = "", *, stream: bool = False, request_id: str = ""
    ) -> None:
        more: dict[str, Any] = {"stream": True} if stream else {}
        headers = _bearer(key or self._key()) | ({"x-request-id": request_id} if request_id else {})
        await connection.send(question.path, question.body(self._service.model, **more), headers=headers)

    def _compare(self, question: Question, said: Said, *, whole: bool = False) -> None:
        assert said.is_whole or not whole, f"{question} ended early: {said}"
        assert not said.error or not whole, f"{question} failed: {said.error}"
        different = said.difference(self._service.alone[repr(question)])
        assert not different, f"{question} got {different}"

    def _choose(self) -> Question:
        return self._chance.choice(self._asked)

    def _key(self) -> str:
        return self._chance.choice(self._service.keys)


async def soak(service: Service, asked: Sequence[Question], *, seconds: float, pause_s: float, seed: int = 1) -> Record:
    """Let all clients act for so long, each with pauses of `pause_s` on average. Ends early when something is wrong."""
    record, limit = Record(), asyncio.Lock()
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds

    async def live(number: int) -> None:
        chance = random.Random(f"{seed} {number}")
        client = Client(service, asked, record, chance, limit)
        while loop.time() < end_s and not record.wrong:
            await asyncio.sleep(chance.expovariate(1 / pause_s))
            await client.act()

    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(live(number))
    return record


async def _events(connection: Connection) -> AsyncGenerator[bytes, None]:
    """Cut a stream into its events, comments left out."""
    rest = b""
    async with aclosing(connection.pieces()) as pieces:
        async for piece in pieces:
            *events, rest = (rest + piece).split(b"\n\n")
            for event in events:
                if not event.startswith(b":"):
                    yield event


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _rubbish(model: str, chance: random.Random) -> list[tuple[bytes, set[int]]]:
    """List bodies that no request has, and the statuses they may get."""
    message, depth = [{"role": "user", "content": "a"}], 2000
    wrong: list[Any] = [
        {"model": model},
        {"model": model, "messages": "hello", "prompt": {}, "input": 7},
        {"model": model, "messages": [], "prompt": [], "input": []},
        {"model": model, "messages": [{"role": "x"}], "prompt": "a", "input": "a", "temperature": "warm"},
        {"model": model, "messages": message, "prompt": "a", "input": "a", "top_p": -1},
        {"model": 7},
        [model],
        "hello",
    ]
    texts = [b"", b"{", b'{"model":', b"\xff\xfe", b"[" * depth + b"]" * depth, chance.randbytes(100)]
    bodies = [*(msgspec.json.encode(value) for value in wrong), *texts]
    unknown = msgspec.json.encode({"model": "none", "messages": message, "prompt": "a", "input": "a"})
    # /v1/responses refuses fields that it does not know, the others a model that is not there.
    return [*((body, {400}) for body in bodies), (unknown, {400, 404})]
