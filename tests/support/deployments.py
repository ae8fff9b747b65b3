"""Deployments over a hub of the test's own, and how a test asks them for things."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from console.api.admin import types as wire
from console.deployments.deployments import Deployments
from console.libraries import LibraryShelf
from console.pipeline.types import Event, GenerationRequest
from console.registry.audit import CONSOLE
from console.registry.registry import Registry
from tests.support.fleet import Fleet
from tests.support.patience import PATIENCE_S


@contextlib.asynccontextmanager
async def deploying(fleet: Fleet, registry: Registry) -> AsyncIterator[Deployments]:
    shelf = LibraryShelf(registry, fleet.distribution)
    await shelf.open()
    deployments = Deployments(registry, fleet.hub, shelf)
    unsubscribe = fleet.hub.subscribe(deployments.on_fleet_event)
    deployments.restore()
    try:
        yield deployments
    finally:
        unsubscribe()
        await deployments.close()


def request(**fields: Any) -> wire.DeployRequest:
    return wire.DeployRequest(**{"model": "small", "stages": 2, "context": 256, "streams": 2, **fields})


async def all_events(deployments: Deployments, asked: wire.DeployRequest) -> list[wire.DeployEvent]:
    async with asyncio.timeout(PATIENCE_S):
        return [event async for event in deployments.deploy(asked, CONSOLE)]


async def ask(deployments: Deployments) -> list[Event]:
    generator = deployments.generator("small")
    prompt = generator.encode_chat([{"role": "user", "content": "Capital of France?"}])
    async with asyncio.timeout(PATIENCE_S):
        return [event async for event in generator.generate(GenerationRequest(prompt, 20))]
