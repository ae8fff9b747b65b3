"""Many agents that dial at the same moment, as after a console's restart: nobody is refused, cut or lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agent.link.messages import CONTROL_PATH, DATA_PATH, Welcome, decode_from_console, encode_message
from console.fleet.events import AgentJoined, AgentLost
from tests.support.fleet import ScriptedAgent, join, make_hello, running_fleet

AGENTS = 24


async def test_everybody_who_dials_at_the_same_moment_gets_in(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet:
        identities = [fleet.enrol(f"pc-{number}") for number in range(AGENTS)]
        await asyncio.gather(*(join(fleet, identity) for identity in identities))
        assert len(fleet.hub.agents()) == AGENTS
        assert not any(isinstance(event, AgentLost) for event in fleet.events)


async def test_an_agent_whose_second_link_waits_in_the_queue_is_not_taken_for_silent(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, heartbeat_s=0.1) as fleet:
        waiting = fleet.enrol("waiting")
        control = await fleet.dialler(waiting).dial(CONTROL_PATH)
        await control.send(encode_message(make_hello()))
        assert isinstance(decode_from_console(await control.recv(decode=False)), Welcome)
        silent = await join(fleet, fleet.enrol("silent"))
        await fleet.wait_for(lambda: isinstance(fleet.events[-1], AgentLost))
        assert fleet.events[-1] == AgentLost(silent.device_id, "its heartbeats stopped")
        agent = ScriptedAgent(waiting, control, await fleet.dialler(waiting).dial(DATA_PATH))
        await fleet.wait_for(lambda: isinstance(fleet.events[-1], AgentJoined))
        assert [view.device_id for view in fleet.hub.agents()] == [agent.device_id]
