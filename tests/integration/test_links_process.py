"""`fallow-agent run` as a real process: it joins, hears signals, and is missed at once when it is killed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from agent.control.client import ControlClient
from agent.control.protocol import Pause
from agent.settings import read_state
from agent.volunteer.keeping import PolicyKeeper
from console.fleet.events import AgentLost
from shard_export.library.manifest import library_digest
from tests.support.fleet import Fleet, make_load
from tests.support.patience import PATIENCE_S
from tests.support.toy_library import toy_library

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to send to a console process")


@contextlib.asynccontextmanager
async def agent_process(fleet: Fleet, *options: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, Path, str]]:
    """Start an enrolled agent and wait until it has joined."""
    folder = fleet.folder / "agent"
    folder.mkdir()
    identity = fleet.enrol("agent/identity")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agent", "run", "--data", str(folder), "--log-format", "json", *options,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
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


async def test_logging_off_ends_the_stage_says_goodbye_and_keeps_the_pause(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = toy_library(fleet.folder / "library")
    fleet.distribution.register(fleet.folder / "library")
    with tempfile.TemporaryDirectory(prefix="fw") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        async with agent_process(fleet, "--volunteer", "always") as (process, folder, device_id):
            request = make_load(library_digest=library_digest(library), first=0, last=2, context_tokens=64, streams=2)
            async with asyncio.timeout(PATIENCE_S):
                await fleet.hub.load(device_id, request)
            stages = psutil.Process(process.pid).children(recursive=True)
            assert stages
            ordered_s = time.time()
            async with ControlClient.open(folder, "test") as client:
                await client.order(Pause(client.next_id(), "time", 3600.0))
            # What a login session sends to everything in it, in this order and at once.
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGHUP)
            await asyncio.wait_for(process.communicate(), PATIENCE_S)
            assert process.returncode == 0
            assert fleet.events[-1] == AgentLost(device_id, "The agent was stopped")
            assert not any(stage.is_running() for stage in stages)
            assert list((folder / "gates").iterdir()) == []
    kept = PolicyKeeper(folder, now_s=time.time()).owner.pause_until_unix_s
    assert ordered_s + 3599 < kept < time.time() + 3601


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
