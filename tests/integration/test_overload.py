"""More requests than a model takes: who is refused hears why and when to come again; who is served notices nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from console.api.admin import types as wire
from console.pipeline.plans import KEY_QUEUE_LIMIT, QUEUE_LIMIT
from installer.loopback import AgentSettings, LoopbackFleet
from tests.bench.net import NEAR, Network, Shape
from tests.support.crowd import Crowd, Member, ask, stream_body
from tests.support.patience import PATIENCE_S, until
from tests.support.raw_http import Connection
from tests.support.talking_library import talking_library

STREAMS, TOKENS = 2, 400
SERVED = [f"Served {number}" for number in range(STREAMS)]
FAR = Shape(delay_ms=5)
"""At this distance an answer takes seconds on the fastest PC: the queue must fill before it ends."""


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as running:
        yield running


@pytest.fixture
def fleet(tmp_path: Path, network: Network) -> Iterator[LoopbackFleet]:
    library = talking_library(tmp_path / "library")
    agents = [AgentSettings("first", 1), AgentSettings("second", 1)]
    with LoopbackFleet(tmp_path / "fleet", agents, route=lambda _, port: network.link(port).port) as fleet:
        model = fleet.admin.add_library(library).model_id
        fleet.deploy(
            wire.DeployRequest(
                model=model, stages=2, context=512, streams=STREAMS, numerics="exact", draft="none", standbys=0
            )
        )
        yield fleet


async def refused(fleet: LoopbackFleet, key: str) -> tuple[int, str, int, str]:
    """Ask once more: the status, the error's code, seconds to wait, and whether a client should try again."""
    async with await Connection.open(fleet.api_url) as connection, asyncio.timeout(PATIENCE_S):
        head = await ask(connection, key, stream_body(fleet.model, "One more", TOKENS))
        error = msgspec.json.decode(await connection.body())["error"]
    return head.status, error["code"], int(head.headers["retry-after"]), head.headers["x-should-retry"]


async def overload(fleet: LoopbackFleet, keys: list[str], limited: str, alone: list[str]) -> None:
    async with Crowd(fleet.api_url, fleet.model, tokens=TOKENS) as crowd:
        served: list[Member] = [await crowd.join(limited, prompt) for prompt in SERVED]
        assert await refused(fleet, limited) == (429, "too_many_streams", 5, "true")
        for member in served:
            await member.came.wait()
        greedy = keys.pop()
        await asyncio.gather(*(crowd.join(greedy, f"Greedy {number}") for number in range(KEY_QUEUE_LIMIT)))
        assert await refused(fleet, greedy) == (429, "too_many_waiting", 5, "true")
        await asyncio.gather(
            *(
                crowd.join(keys[number % len(keys)], f"Waiting {number}")
                for number in range(QUEUE_LIMIT - KEY_QUEUE_LIMIT)
            )
        )
        assert {member.head.status for member in crowd.members} == {200}
        for key in (*keys, greedy):
            assert await refused(fleet, key) == (503, "overloaded", 2, "true")
        assert not any(member.is_done for member in served), "the queue was full while they ran"
        await until(lambda: all(member.is_done for member in served))
        assert [member.text for member in served] == alone
        assert not any(member.problem for member in crowd.members)


@pytest.mark.timeout(300)
def test_who_is_too_much_is_refused_and_who_runs_is_not_disturbed(fleet: LoopbackFleet, network: Network) -> None:
    alone = [fleet.chat(text, max_tokens=TOKENS, temperature=0, ignore_eos=True).text for text in SERVED]
    keys = [fleet.admin.create_key(f"key {number}").secret for number in range(5)]
    limited = fleet.admin.create_key("limited", limits=wire.Limits(streams=STREAMS)).secret
    network.shape(FAR)
    asyncio.run(overload(fleet, keys, limited, alone))
    network.shape(NEAR)
    again = fleet.chat("And now", max_tokens=8, temperature=0, ignore_eos=True)
    assert again.completion_tokens == 8
    view = fleet.admin.status().pipelines[0]
    assert (view.queued, view.endings.get("error", 0)) == (0, 0)
