"""An agent that leaves, stops, is cut off or taken out of service, against a real hub. Its child is scripted."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from agent.devices import find_runtime
from agent.link.closing import CloseCode, DuplicateSession
from agent.link.messages import FromAgent, Heartbeat
from agent.link.stage_messages import LoadStage, StageProgress
from agent.service import AgentService
from agent.session import SERVING_SHARE, Session
from agent.settings import AgentSettings, read_state
from agent.stage.types import PipelineId
from agent.volunteer.documents import PolicyBody
from agent.volunteer.policy import Wishes
from console.fleet.errors import StageLoadFailed
from console.fleet.events import AgentJoined, AgentLeaving, AgentLost, AgentYielded
from tests.support.agents import Agent, always_here, load, running_agent
from tests.support.fleet import Fleet, join, make_load, make_step, running_fleet
from tests.support.libraries import make_library
from tests.support.patience import PATIENCE_S, until


@pytest.fixture
async def agent(fleet: Fleet) -> AsyncIterator[Agent]:
    async with running_agent(fleet) as agent:
        yield agent


async def test_an_agent_comes_back_as_the_same_device_after_a_cut(
    fleet: Fleet, agent: Agent, request_of: Callable[..., LoadStage]
) -> None:
    await load(fleet, agent, request_of())
    session = fleet.hub._sessions.find(agent.device_id)
    assert session is not None
    session.control.transport.abort()
    await fleet.wait_for(lambda: [type(e) for e in fleet.events] == [AgentJoined, AgentLost, AgentJoined], PATIENCE_S)
    (view,) = fleet.hub.agents()
    assert view.device_id == agent.device_id
    assert fleet.hub._peers._peers[view.device_id].held
    assert agent.children.started[0].closed
    assert agent.service.state.stages == []
    await load(fleet, agent, request_of())


async def test_stopping_says_goodbye_and_ends_the_child(
    fleet: Fleet, agent: Agent, request_of: Callable[..., LoadStage]
) -> None:
    await load(fleet, agent, request_of())
    agent.service.stop()
    await agent.task
    assert agent.children.started[0].closed
    assert fleet.events[-1] == AgentLost(agent.device_id, "The agent was stopped")
    assert agent.service.state.link == "stopped"


@pytest.mark.parametrize("comes_late", [False, True])
@pytest.mark.parametrize("how", ["stopped", "cancelled"])
async def test_ending_while_a_session_opens_leaves_none_behind(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, how: str, comes_late: bool
) -> None:
    opened, opening = list[Session](), asyncio.Event()
    open_session = Session.open

    async def slow(*arguments: Any, **options: Any) -> Session:
        try:
            opening.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not comes_late:
                raise
        opened.append(await open_session(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(Session, "open", slow)
    folder = fleet.folder / "ann-data"
    folder.mkdir()
    identity = fleet.enrol("ann-data/identity")
    service = AgentService(
        folder, identity, AgentSettings(volunteer="always"), always_here(folder), list_devices=find_runtime
    )
    task = asyncio.create_task(service.run())
    await opening.wait()
    if how == "stopped":
        service.stop()
    else:
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled() == (how == "cancelled")
    assert len(opened) == comes_late
    await fleet.wait_for(lambda: len(fleet.events) == 2 * comes_late)  # it came, and said goodbye
    assert fleet.hub.agents() == []


async def test_who_stops_hands_over_first_where_somebody_takes_over(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, hands_over=True) as fleet:
        _, digest = make_library(tmp_path / "library")
        fleet.distribution.register(tmp_path / "library")
        async with running_agent(fleet) as agent:
            await load(fleet, agent, make_load(library_digest=digest))
            agent.service.stop()
            await fleet.wait_for(lambda: fleet.events[-1] == AgentLeaving(agent.device_id))
            (child,) = agent.children.started
            assert not child.closed, "it still works"
            assert child.write(make_step(stage=0))
            await fleet.hub.unload(agent.device_id, PipelineId(1))
            await agent.task
            assert fleet.events[-1] == AgentLost(agent.device_id, "The agent was stopped")


async def test_who_is_taken_out_of_service_hands_over_first(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, hands_over=True) as fleet:
        _, digest = make_library(tmp_path / "library")
        fleet.distribution.register(tmp_path / "library")
        async with running_agent(fleet) as agent:
            volunteer = agent.service._volunteer
            deciding = asyncio.create_task(volunteer.run(agent.service))
            await load(fleet, agent, make_load(library_digest=digest))
            volunteer.keeper._admin = PolicyBody(1, "fleet", "pc", 8, 0.0, math.inf, Wishes(drain=True))
            volunteer.policy_changed()
            await fleet.wait_for(lambda: fleet.events[-1] == AgentLeaving(agent.device_id))
            (child,) = agent.children.started
            assert child.write(make_step(stage=0)), "it still works"
            await fleet.hub.unload(agent.device_id, PipelineId(1))
            await until(lambda: bool(volunteer.refusal()))
            assert child.closed
            assert not any(isinstance(event, AgentYielded) for event in fleet.events)
            deciding.cancel()
            await asyncio.gather(deciding, return_exceptions=True)


async def test_who_leaves_the_fleet_hands_over_first_and_says_so(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, hands_over=True) as fleet:
        _, digest = make_library(tmp_path / "library")
        fleet.distribution.register(tmp_path / "library")
        async with running_agent(fleet) as agent:
            await load(fleet, agent, make_load(library_digest=digest))
            await agent.service.leave()
            await fleet.wait_for(lambda: fleet.events[-1] == AgentLeaving(agent.device_id))
            await fleet.hub.unload(agent.device_id, PipelineId(1))
            await agent.task
            assert fleet.events[-1] == AgentLost(agent.device_id, "The PC's owner left the fleet")


async def test_a_stage_on_a_device_that_is_not_allowed_any_more_is_not_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_fleet(tmp_path, hands_over=True) as fleet:
        _, digest = make_library(tmp_path / "library")
        fleet.distribution.register(tmp_path / "library")
        async with running_agent(fleet) as agent:
            await load(fleet, agent, make_load(library_digest=digest))
            monkeypatch.setattr(agent.service._volunteer, "refusal", lambda device="": "not here" if device else "")
            agent.service.stop()
            await agent.task
            assert agent.children.started[0].closed
            assert not any(isinstance(event, AgentLeaving) for event in fleet.events)


async def test_a_heartbeat_between_two_others_says_when_the_next_one_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_fleet(tmp_path) as fleet:
        _, digest = make_library(tmp_path / "library")
        fleet.distribution.register(tmp_path / "library")
        async with running_agent(fleet) as agent:
            await load(fleet, agent, make_load(library_digest=digest))
            session, said = agent.service._session, list[FromAgent]()
            assert session is not None
            monkeypatch.setattr(session, "say", said.append)
            agent.service.tell_availability()
            (beat,) = said
            assert isinstance(beat, Heartbeat)
            assert beat.next_s == SERVING_SHARE * session.welcome.heartbeat_s


async def test_who_stops_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.session.HAND_OVER_S", 0.1)
    async with running_fleet(tmp_path, hands_over=True) as fleet:
        _, digest = make_library(tmp_path / "library")
        fleet.distribution.register(tmp_path / "library")
        async with running_agent(fleet) as agent:
            await load(fleet, agent, make_load(library_digest=digest))
            agent.service.stop()
            await agent.task
            assert agent.children.started[0].closed


async def test_stopping_in_the_middle_of_a_load_leaves_no_child(
    fleet: Fleet, agent: Agent, request_of: Callable[..., LoadStage]
) -> None:
    agent.children.hold = asyncio.Event()
    seen: list[StageProgress] = []
    loading = asyncio.create_task(fleet.hub.load(agent.device_id, request_of(), seen.append))
    await until(lambda: any(progress.phase == "load" for progress in seen))
    agent.service.stop()
    await agent.task
    with pytest.raises(StageLoadFailed) as failed:
        await loading
    assert failed.value.code == "gone"
    assert agent.children.started == []


async def test_a_second_agent_with_the_same_identity_ends_the_first(fleet: Fleet, agent: Agent) -> None:
    identity = agent.service._membership.identity
    copy = await join(fleet, identity)
    with pytest.raises(DuplicateSession, match="identity"):
        await agent.task
    state = read_state(agent.folder)
    assert state is not None
    assert state.link == "stopped"
    await copy.close()


@pytest.mark.parametrize(
    ("code", "phase"),
    [("suspended", "suspended"), ("evicted", "revoked"), ("expired", "revoked"), ("pending", "pending")],
)
async def test_only_a_pc_that_is_out_of_its_fleet_is_told_to_join_again(
    fleet: Fleet, agent: Agent, code: str, phase: str
) -> None:
    fleet.set_state(agent.device_id, "suspended")
    fleet.hub.disconnect(agent.device_id, CloseCode.NOT_APPROVED, code, "An administrator did it.")
    await until(lambda: agent.service.state.link == "refused")
    assert agent.service.link_phase == phase


async def test_a_revoked_agent_says_so_and_stays_up_for_a_change_of_mind(fleet: Fleet, agent: Agent) -> None:
    fleet.set_state(agent.device_id, "suspended")
    sentence = "An administrator has suspended this PC."
    fleet.hub.disconnect(agent.device_id, CloseCode.NOT_APPROVED, "suspended", sentence)
    await until(lambda: agent.service.state.link == "refused")
    assert agent.service.state.message == sentence
    assert not agent.task.done()
