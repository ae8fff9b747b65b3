"""The whole agent in this process, as it runs on a machine nobody sits at."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from agent.control.client import ControlClient
from agent.control.endpoint import UnixSocket, endpoint_of
from agent.control.status import Status
from agent.devices import find_runtime
from agent.link.channel import Backoff
from agent.link.identity import Identity
from agent.link.keystore import Keystore
from agent.program import Program
from agent.service import AgentService
from agent.settings import AgentSettings
from tests.support.agents import Children
from tests.support.patience import PATIENCE_S, until

KEYS = Keystore.files_only("agent")


@dataclass
class Running:
    folder: Path
    program: Program
    children: Children
    task: asyncio.Task[None]


@contextlib.asynccontextmanager
async def running(folder: Path, identity: Identity | None, invite_file: Path | None = None) -> AsyncIterator[Running]:
    """Run the agent of a machine nobody sits at."""
    children = Children()
    make = functools.partial(
        AgentService, start_child=children, list_devices=find_runtime, backoff=Backoff(uniform=lambda low, high: 0.05)
    )
    settings = AgentSettings(volunteer="always")
    program = Program(folder, settings, KEYS, identity, invite_file=invite_file, make_service=make)
    task = asyncio.create_task(program.run())
    try:
        endpoint = endpoint_of(folder)
        assert isinstance(endpoint, UnixSocket)
        await until(endpoint.path.exists)
        yield Running(folder, program, children, task)
    finally:
        program.stop()
        await task


async def follow(client: ControlClient, phase: str) -> Status:
    async with asyncio.timeout(PATIENCE_S):
        async for status in client.statuses():
            if status.phase == phase:
                return status
    raise AssertionError
