"""`fallow-agent run` as a real process: it joins, hears signals, and is missed at once when it is killed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.settings import read_state
from console.fleet.events import AgentLost
from tests.support.fleet import Fleet, running_fleet
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to send to a console process")


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with running_fleet(tmp_path) as fleet:
        yield fleet


@contextlib.asynccontextmanager
async def agent_process(fleet: Fleet) -> AsyncIterator[tuple[asyncio.subprocess.Process, Path, str]]:
    """Start an enrolled agent and wait until it has joined."""
    folder = fleet.folder / "agent"
    folder.mkdir()
    identity = fleet.enrol("agent/identity")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agent", "run", "--data", str(folder), "--log-json", stderr=asyncio.subprocess.PIPE
    )
    try:
        await fleet.wait_for(lambda: len(fleet.hub.agents()) == 1, 60)
        yield process, folder, identity.device_id
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_agent_gracefully(fleet: Fleet, number: signal.Signals) -> None:
    async with agent_process(fleet) as (process, folder, device_id):
        process.send_signal(number)
        _, log = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        assert process.returncode == 0
        assert fleet.events[-1] == AgentLost(device_id, "The agent was stopped")
        assert b'"message": "Connected to wss://' in log
        state = read_state(folder)
        assert state is not None
        assert state.link == "stopped"


async def test_a_killed_agent_is_lost_with_its_links_and_comes_back_as_the_same_device(fleet: Fleet) -> None:
    async with agent_process(fleet) as (process, folder, device_id):
        process.kill()
        await fleet.wait_for(lambda: isinstance(fleet.events[-1], AgentLost))
        assert "link" in fleet.events[-1].reason  # type: ignore[union-attr]  # and not its silence
        assert fleet.hub.agents() == []
        again = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "agent", "run", "--data", str(folder), stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await fleet.wait_for(lambda: len(fleet.hub.agents()) == 1, 60)
            assert fleet.hub.agents()[0].device_id == device_id
        finally:
            again.terminate()
            assert await asyncio.wait_for(again.wait(), PATIENCE_S) == 0
