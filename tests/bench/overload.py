"""`overload`: how fast a full model and a key over its limit are refused, and what the served notice of it.

Two PCs serve the toy model, so that the service is what there is to wait for. More clients than it takes ask again and
again; others ask for one more at a steady pace.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import psutil

from console.api.admin import types as wire
from console.bench.figures import percentile
from console.pipeline.plans import QUEUE_LIMIT
from installer.loopback import AgentSettings, LoopbackFleet
from tests.bench.served import milliseconds
from tests.support.crowd import ask, stream_body
from tests.support.raw_http import Connection
from tests.support.talking_library import talking_library

Say = Callable[[str], None]
ROUNDS = 1
STREAMS, TOKENS = 8, 400
KEYS = 6
TOO_MANY = 16
"""Clients beyond those that are served and those that wait: so it stays full when one of them has its answer."""
ASKED = 400
"""Refusals of each kind in a round."""
EVERY_S = 0.02
AGAIN_S = 2.0
"""What Retry-After says."""
CALM_S = 10.0


def run(*, rounds: int, tokens: int, say: Say) -> dict[str, Any]:
    """Measure; see the README of this folder for what the keys mean. `tokens` means nothing here."""
    del tokens
    with tempfile.TemporaryDirectory(prefix="fallow-overload-") as name:
        library = talking_library(Path(name) / "library")
        with LoopbackFleet(Path(name) / "fleet", [AgentSettings("a", 1), AgentSettings("b", 1)], say) as fleet:
            model = fleet.admin.add_library(library).model_id
            fleet.deploy(
                wire.DeployRequest(model=model, stages=2, context=512, streams=STREAMS, numerics="exact", draft="none")
            )
            return asyncio.run(Overload(fleet, say).run(rounds))


class Overload:
    """One console with more clients than it takes. Event loop only."""

    def __init__(self, fleet: LoopbackFleet, say: Say) -> None:
        self._fleet, self._say = fleet, say
        self._keys = [fleet.admin.create_key(f"key {number}").secret for number in range(KEYS)]
        self._limited = fleet.admin.create_key("limited", limits=wire.Limits(streams=1)).secret
        self._numbers = itertools.count()
        self._gaps_s: list[float] = []

    async def run(self, rounds: int) -> dict[str, Any]:
        """Measure the gaps within answers without overload, then refusals and gaps with it."""
        clients = [asyncio.create_task(self._stay(self._keys[at % KEYS])) for at in range(STREAMS)]
        try:
            await asyncio.sleep(CALM_S)  # what is measured is a span of time
            quiet, self._gaps_s = self._gaps_s, []
            clients += [asyncio.create_task(self._stay(self._limited))]
            more = QUEUE_LIMIT + TOO_MANY
            clients += [asyncio.create_task(self._stay(self._keys[at % KEYS])) for at in range(more)]
            await self._until_full()
            self._say(f"full: {QUEUE_LIMIT} wait")
            self._gaps_s = []
            figures = await self._refusals(rounds)
            return figures | {
                "inter_token_ms": {"quiet": milliseconds(quiet), "overloaded": milliseconds(self._gaps_s)}
            }
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)

    async def _refusals(self, rounds: int) -> dict[str, Any]:
        console = psutil.Process(self._fleet.process("console").pid)
        before, began_s = console.cpu_times(), time.monotonic()
        took_s: dict[str, list[float]] = {"queue_full": [], "rate_limit": []}
        for _ in range(rounds):
            took_s["queue_full"] += await self._paced(lambda: self._refused(self._keys[0], 503))
            took_s["rate_limit"] += await self._paced(lambda: self._refused(self._limited, 429))
        after = console.cpu_times()
        used_s = after.user + after.system - before.user - before.system
        share = used_s / (time.monotonic() - began_s)
        return {kind: _figures(times_s) for kind, times_s in took_s.items()} | {"console_core_share": round(share, 2)}

    async def _paced(self, refused: Callable[[], Coroutine[Any, Any, float | None]]) -> list[float]:
        """Ask at a steady pace, whether the last one was answered or not; returns how long each refusal took."""
        asking = []
        for _ in range(ASKED):
            asking.append(asyncio.create_task(refused()))
            await asyncio.sleep(EVERY_S)
        return [took_s for took_s in await asyncio.gather(*asking) if took_s is not None]

    async def _refused(self, key: str, status: int) -> float | None:
        """Ask once more on a new connection; None: there was room just then."""
        began_s = time.perf_counter()
        async with await Connection.open(self._fleet.api_url) as connection:
            head = await ask(connection, key, self._body())
            if head.status != status:
                return None
            await connection.body()
            return time.perf_counter() - began_s

    async def _stay(self, key: str) -> None:
        """Ask and listen to the end, again and again; come back after a refusal when it says so."""
        while True:
            async with await Connection.open(self._fleet.api_url) as connection:
                if (await ask(connection, key, self._body())).status != 200:
                    await connection.body()
                    await asyncio.sleep(AGAIN_S)
                    continue
                last_s = None
                async for piece in connection.pieces():
                    if piece.startswith(b"data: {"):
                        now_s = time.perf_counter()
                        if last_s is not None:
                            self._gaps_s.append(now_s - last_s)
                        last_s = now_s

    async def _until_full(self) -> None:
        while (await asyncio.to_thread(self._fleet.admin.status)).pipelines[0].queued < QUEUE_LIMIT:
            await asyncio.sleep(0.1)

    def _body(self) -> bytes:
        return stream_body(self._fleet.model, f"Number {next(self._numbers)}", TOKENS)


def _figures(times_s: Sequence[float]) -> dict[str, float]:
    shares = {f"p{round(100 * share)}_ms": percentile(times_s, share) for share in (0.5, 0.99)}
    longest = {"longest_ms": max(times_s)}
    return {name: round(1000 * value, 2) for name, value in (shares | longest).items()} | {"count": len(times_s)}
