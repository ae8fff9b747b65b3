"""A model that played PCs serve in two stages, and what happens to those PCs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.link.messages import Heartbeat, Yield
from console.deployments.deployments import Deployments
from console.facts import FleetFacts
from console.pipeline.types import Event
from tests.support.deployments import all_events, ask, request
from tests.support.fleet import Fleet
from tests.support.played import PlayedPC, playing

PCs = dict[str, PlayedPC]


def resolve_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests name played PCs by their ids, which no registry knows."""
    monkeypatch.setattr(FleetFacts, "resolve", lambda _facts, wanted: list(wanted))


async def leave(fleet: Fleet, pc: PlayedPC) -> None:
    await pc.agent.close()


async def give_back(fleet: Fleet, pc: PlayedPC) -> None:
    epochs = [(load.pipeline, load.epoch) for load in pc.loads[-1:]]
    await pc.agent.say(Yield(epochs, ["user_input"]))


class Served:
    """A model that is served in two stages: by whom, and who is left."""

    def __init__(self, pcs: PCs, deployments: Deployments) -> None:
        names = [stage.device_name for stage in deployments.views()[0].stages]
        self.head, self.tail = [pcs[name] for name in names]
        self.spares = [pc for name, pc in pcs.items() if name not in names]
        self.names = {pc.agent.device_id: name for name, pc in pcs.items()}

    def name_of(self, pc: PlayedPC) -> str:
        return self.names[pc.agent.device_id]


@contextlib.asynccontextmanager
async def playing_all(fleet: Fleet, *names: str) -> AsyncIterator[PCs]:
    async with contextlib.AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(playing(fleet, name)) for name in names}


async def served_by(deployments: Deployments, pcs: PCs, **fields: Any) -> Served:
    await all_events(deployments, request(**fields))
    assert state_of(deployments) == "ready", deployments.views()[0].message
    return Served(pcs, deployments)


async def asked_and_stuck(deployments: Deployments, pc: PlayedPC, *, after: int = 0) -> asyncio.Task[list[Event]]:
    """Ask, and return while a step is at that PC that it will not answer, `after` it answered so many."""
    pc.answers_left = after
    pc.muted.clear()
    asking = asyncio.create_task(ask(deployments))
    await pc.muted.wait()
    return asking


def state_of(deployments: Deployments) -> str:
    return deployments.views()[0].state


async def ask_to_leave(pc: PlayedPC) -> None:
    await pc.agent.say(Heartbeat(1 << 30, "held", ["drain"]))
