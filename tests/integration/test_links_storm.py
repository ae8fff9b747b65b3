"""Many agents that dial at the same moment, as after a console's restart: nobody is refused, cut or lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

from websockets.asyncio.client import ClientConnection

from agent.link.identity import Identity
from agent.link.messages import CONTROL_PATH, DATA_PATH, Welcome, decode_from_console, encode_message
from console.fleet.events import AgentJoined, AgentLost, FleetEvent
from tests.support.fleet import Fleet, join, make_hello, running_fleet

AGENTS = 24


async def test_everybody_who_dials_at_the_same_moment_gets_in(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet:
        identities = [fleet.enrol(f"pc-{number}") for number in range(AGENTS)]
        await asyncio.gather(*(join(fleet, identity) for identity in identities))
        assert len(fleet.hub.agents()) == AGENTS
        assert not any(isinstance(event, AgentLost) for event in fleet.events)


async def introduce(fleet: Fleet, identity: Identity) -> ClientConnection:
    """Open the first link of an agent; the console has welcomed it."""
    control = await fleet.dialler(identity).dial(CONTROL_PATH)
    await control.send(encode_message(make_hello()))
    assert isinstance(decode_from_console(await control.recv(decode=False)), Welcome)
    return control


async def test_an_agent_whose_second_link_waits_in_the_queue_is_not_taken_for_silent(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, heartbeat_s=0.1) as fleet:
        waiting, silent = fleet.enrol("waiting"), fleet.enrol("silent")

        def joined(identity: Identity) -> bool:
            found = (event.agent.device_id for event in fleet.events if isinstance(event, AgentJoined))
            return identity.device_id in found

        def lost() -> list[FleetEvent]:
            return [event for event in fleet.events if isinstance(event, AgentLost)]

        control = await introduce(fleet, waiting)
        silent_links = [await introduce(fleet, silent), await fleet.dialler(silent).dial(DATA_PATH)]
        await fleet.wait_for(lambda: bool(lost()))
        assert joined(silent)
        assert lost() == [AgentLost(silent.device_id, "its heartbeats stopped")]
        # Neither says anything: on a machine that stands still for a moment this one is lost, too, once it has joined.
        data = await fleet.dialler(waiting).dial(DATA_PATH)
        await fleet.wait_for(lambda: joined(waiting))
        assert all(view.device_id != silent.device_id for view in fleet.hub.agents())
        await asyncio.gather(*(link.close() for link in (control, data, *silent_links)))
