"""Users that ask one after the other, all at once, until a time or a number of requests is over. One event loop."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import msgspec

from console.bench.client import LoadClient, body_of
from console.bench.figures import Asked, Figures, figures_of
from console.bench.mix import Mix

PAUSE_S = 1.0
"""After a failure that says nothing about when to ask again."""
MOST_PAUSE_S = 5.0
"""A quota that is used up says to come back tomorrow."""
DRAIN_S = 60.0
"""How long answers that were begun in time may take to end."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked: `requests` of each user, or (0) for `duration_s`. `warm_up` requests of each user go before.

    `mix` is what the prompts are called. `natural`: answers may end before `max_tokens`.
    """

    model: str
    users: list[int]
    duration_s: float = 30.0
    requests: int = 0
    warm_up: int = 1
    mix: str = ""
    max_tokens: int = 128
    natural: bool = False


class Level:
    """So many users at once. `asked` grows while it runs; `figures` can be taken at any time."""

    def __init__(self, client: LoadClient, load: Load, mix: Mix, numbers: itertools.count[int], users: int) -> None:
        self.users = users
        self.asked: list[Asked] = []
        self.warming = True
        self.began_s = time.perf_counter()
        self._ended_s: float | None = None
        self._client, self._load, self._mix, self._numbers = client, load, mix, numbers
        self._begun = 0

    @property
    def passed_s(self) -> float:
        """How long it has been measured."""
        return (self._ended_s or time.perf_counter()) - self.began_s

    @property
    def done(self) -> float:
        """The share that is over, 0 to 1."""
        if self.warming:
            return 0.0
        if self._load.requests:
            ended = sum(one.ended_s is not None for one in self.asked)
            return min(1.0, ended / (self._load.requests * self.users))
        return min(1.0, self.passed_s / self._load.duration_s)

    def figures(self) -> Figures:
        """Add up what came so far."""
        return figures_of(self.asked, self.users, self.began_s, self._ended_s or time.perf_counter())

    async def run(self) -> None:
        """Warm up, then measure. Nothing is raised for requests that fail."""
        load = self._load
        try:
            if load.warm_up:
                await self._users(load.warm_up, None)
            if load.warm_up and all(one.error for one in self.asked):
                return  # there is nothing to measure: the warm-up says why
            self.asked, self.warming, self.began_s = [], False, time.perf_counter()
            deadline_s = None if load.requests else self.began_s + load.duration_s
            await self._users(load.requests, deadline_s)
            # What comes while the last answers end is not the load that was asked for.
            self._ended_s = deadline_s
        finally:
            self._ended_s = self._ended_s or time.perf_counter()

    async def _users(self, requests: int, deadline_s: float | None) -> None:
        users = [asyncio.create_task(self._user(requests, deadline_s)) for _ in range(self.users)]
        left_s = None if deadline_s is None else deadline_s - time.perf_counter() + DRAIN_S
        try:
            await asyncio.wait(users, timeout=left_s)
        finally:
            for user in users:
                user.cancel()
            ended = await asyncio.gather(*users, return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, Exception):
                raise outcome

    async def _user(self, requests: int, deadline_s: float | None) -> None:
        for count in itertools.count():
            if requests and count >= requests:
                return
            if deadline_s is not None and time.perf_counter() >= deadline_s:
                return
            asked = await self._ask()
            if asked.error:
                pause_s = PAUSE_S if asked.retry_after_s is None else min(MOST_PAUSE_S, asked.retry_after_s)
                left_s = pause_s if deadline_s is None else deadline_s - time.perf_counter()
                await asyncio.sleep(max(0.0, min(pause_s, left_s)))

    async def _ask(self) -> Asked:
        prompt = self._mix.prompt(next(self._numbers))
        body = body_of(self._load.model, prompt, max_tokens=self._load.max_tokens, natural=self._load.natural)
        asked = Asked(prompt.kind, time.perf_counter())
        self.asked.append(asked)
        await self._client.ask(asked, body)
        return asked


def noted(load: Load) -> dict[str, Any]:
    """Return what has to be the same for two runs to be compared."""
    said = msgspec.to_builtins(load)
    return {name: value for name, value in said.items() if name not in ("model", "users", "warm_up")}
