"""The agent's service against a real hub: loading, relaying, reconnecting, stopping. The child process is scripted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from agent import devices
from agent.devices import Runtime, find_runtime
from agent.link.closing import CloseCode
from agent.link.frames import Frame, FrameType, decode, encode
from agent.link.stage_messages import AdvanceEpoch, CutDirect, DirectRoute, DirectState, LoadStage, StageProgress
from agent.link.tickets import RouteTicket, unseal
from agent.settings import AgentSettings, read_state
from agent.stage.errors import StageGone, StageLoadError
from agent.stage.types import Epoch, Nack, PipelineId
from agent.volunteer import device_use
from agent.volunteer.memory import LARGEST_RATIO
from agent.volunteer.proof import Taken
from console.fleet.errors import StageLoadFailed
from console.fleet.events import AgentJoined, StageDied
from tests.conftest import ExpectLogs
from tests.support.agents import Agent, load, running_agent
from tests.support.fleet import Fleet, join, make_load, make_step, running_fleet
from tests.support.libraries import make_library
from tests.support.patience import PATIENCE_S, until


@pytest.fixture
async def agent(fleet: Fleet) -> AsyncIterator[Agent]:
    async with running_agent(fleet) as agent:
        yield agent


async def test_what_a_killed_agent_left_loaded_is_cleaned_up(fleet: Fleet) -> None:
    left = fleet.folder / "ann-data" / "stages" / "old"
    left.mkdir(parents=True)
    async with running_agent(fleet):
        assert not left.exists()


async def test_an_agent_introduces_itself_with_what_it_has(fleet: Fleet, agent: Agent) -> None:
    (view,) = fleet.hub.agents()
    assert view.hello.devices[0].name == "CPU"
    assert view.hello.devices[0].engines[0] == "paged"
    assert view.hello.memory_bytes > 0
    await until(lambda: agent.service.state.link == "connected")
    state = read_state(agent.folder)
    assert state is not None
    assert (state.link, state.device_id, state.stages) == ("connected", agent.device_id, [])


async def test_a_pc_whose_devices_could_not_be_listed_introduces_itself_again_with_them(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "NONE_AGAIN_S", 0.01)
    found, answers = find_runtime(), [Runtime("", []), Runtime("", [])]
    async with running_agent(fleet, list_devices=lambda: answers.pop() if answers else found) as agent:
        await fleet.wait_for(lambda: any(view.hello.devices for view in fleet.hub.agents()))
        (view,) = fleet.hub.agents()
        assert [device.name for device in view.hello.devices] == [device.name for device in found.devices]
        joined = [event for event in fleet.events if isinstance(event, AgentJoined)]
        assert len(joined) == 2
        assert agent.service.devices == view.hello.devices


async def test_a_stage_is_fetched_loaded_and_unloaded(fleet: Fleet, request_of: Callable[..., LoadStage]) -> None:
    seen: list[StageProgress] = []
    async with running_agent(fleet, settings=AgentSettings(threads=3, cores=[0])) as agent:
        request = request_of(first=1, last=3, stage=0)
        report = await fleet.hub.load(agent.device_id, request, seen.append)
        (child,) = agent.children.started
        assert report == child.report
        assert (child.spec.threads, child.spec.cores, child.spec.first, child.spec.last) == (3, [0], 1, 3)
        assert sorted(path.name for path in Path(child.spec.folder, "units").glob("*.xml")) == [
            "001.xml", "002.xml", "rope-full.xml",
        ]  # fmt: skip
        assert [progress.phase for progress in seen][-1] == "load"
        assert seen[-2].done == seen[-2].total
        assert [stage.pipeline for stage in agent.service.state.stages] == [request.pipeline]

        await fleet.hub.unload(agent.device_id, request.pipeline)
        await load(fleet, agent, request_of(pipeline=2))
        await until(lambda: child.closed)
        assert [stage.pipeline for stage in agent.service.state.stages] == [2]


async def test_frames_pass_between_the_link_and_the_child(
    fleet: Fleet, agent: Agent, request_of: Callable[..., LoadStage]
) -> None:
    tail = await join(fleet, fleet.enrol("tail"))
    await load(fleet, agent, request_of())
    fleet.hub.set_route(1, 1, [agent.device_id, tail.device_id])
    steps = [make_step(stage=0, step=step, tokens=1 + step % 3) for step in range(20)]
    for data in steps:
        fleet.hub.submit(1, data)
    for data in steps:
        got, sent = decode(await tail.receive()), decode(data)
        assert (got.step, got.stage) == (sent.step, 1)
        assert np.array_equal(got.tensor, sent.tensor)  # type: ignore[arg-type]  # both carry tensors
    await tail.close()


@pytest.mark.parametrize(
    ("step", "code"), [({"pipeline": 9}, "stale"), ({"epoch": 1}, "stale"), ({"stage": 0}, "engine")]
)
async def test_a_step_that_cannot_be_done_is_answered_with_a_nack(
    fleet: Fleet, agent: Agent, request_of: Callable[..., LoadStage], step: dict[str, int], code: str
) -> None:
    await load(fleet, agent, request_of(epoch=2))
    answers: asyncio.Queue[Frame] = asyncio.Queue()
    fleet.hub.set_frame_handler(lambda pipeline, frame: answers.put_nowait(frame))
    fields = {"stage": 0, "epoch": 2, "pipeline": 1} | step
    fleet.hub.set_route(fields["pipeline"], fields["epoch"], [agent.device_id])
    agent.children.started[0].closed = code == "engine"
    fleet.hub.submit(fields["pipeline"], make_step(**fields))
    async with asyncio.timeout(PATIENCE_S):
        frame = await answers.get()
    assert frame.type is FrameType.NACK
    assert msgspec.msgpack.decode(frame.table, type=Nack).code == code


async def test_a_child_that_dies_is_reported_and_its_stage_forgotten(
    fleet: Fleet, agent: Agent, request_of: Callable[..., LoadStage]
) -> None:
    await load(fleet, agent, request_of())
    agent.children.started[0].on_exit("The stage's child process was ended by signal 9; load the stage again.")
    await fleet.wait_for(lambda: isinstance(fleet.events[-1], StageDied))
    died = fleet.events[-1]
    assert isinstance(died, StageDied)
    assert (died.device_id, died.pipeline) == (agent.device_id, 1)
    assert "signal 9" in died.cause
    await load(fleet, agent, request_of(epoch=2))


async def test_a_new_load_of_a_pipeline_ends_the_old_stage_first(
    fleet: Fleet, agent: Agent, request_of: Callable[..., LoadStage]
) -> None:
    await load(fleet, agent, request_of())
    await load(fleet, agent, request_of(epoch=2))
    old, new = agent.children.started
    assert (old.closed, new.closed) == (True, False)
    await until(lambda: not Path(old.spec.folder).exists())
    assert Path(new.spec.folder, "manifest.json").exists()


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (StageLoadError("mismatch", "It is another model."), "mismatch"),
        (StageGone("It ended at once."), "load"),
    ],
)
async def test_a_stage_that_cannot_be_loaded_says_why(
    fleet: Fleet, agent: Agent, request_of: Callable[..., LoadStage], failure: Exception, code: str
) -> None:
    agent.children.failure = failure
    with pytest.raises(StageLoadFailed, match=str(failure)) as failed:
        await load(fleet, agent, request_of())
    assert failed.value.code == code
    agent.children.failure = None
    await load(fleet, agent, request_of())


async def test_a_library_the_console_does_not_serve_is_a_fetch_error(fleet: Fleet, agent: Agent) -> None:
    with pytest.raises(StageLoadFailed) as failed:
        await load(fleet, agent, make_load(library_digest="f" * 64))
    assert failed.value.code == "fetch"


async def test_a_stage_over_the_memory_limit_is_not_started(fleet: Fleet, request_of: Callable[..., LoadStage]) -> None:
    async with running_agent(fleet, settings=AgentSettings(memory_mb=1)) as agent:
        with pytest.raises(StageLoadFailed, match="may be used here") as failed:
            await load(fleet, agent, request_of(context_tokens=1 << 20, streams=64))
        assert failed.value.code == "memory"
        assert agent.children.started == []


async def test_what_a_stage_took_is_remembered_for_the_next_time(
    fleet: Fleet, agent: Agent, request_of: Callable[..., LoadStage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_use, "stage_bytes_now", lambda pid, device: 1 << 60)
    await load(fleet, agent, request_of())
    (known,) = msgspec.json.decode((agent.folder / "memory.json").read_bytes())
    assert (known["library"], known["device"], known["ratio"]) == (request_of().library_digest, "CPU", LARGEST_RATIO)


async def test_stages_have_ended_before_anybody_looks_whether_their_memory_is_back(
    agent: Agent, fleet: Fleet, request_of: Callable[..., LoadStage], monkeypatch: pytest.MonkeyPatch
) -> None:
    await load(fleet, agent, request_of())
    (child,) = agent.children.started
    seen: list[tuple[str, bool]] = []

    def fail(taken: list[Taken]) -> str:
        seen.extend((one.name, child.closed) for one in taken)
        raise OSError("the counters are gone")

    monkeypatch.setattr("agent.service.missing", fail)
    with pytest.raises(OSError, match="the counters are gone"):
        await agent.service.give_back()
    assert seen == [("CPU", True)]
    assert agent.service.stages_phase == "none"


async def test_a_loaded_stage_goes_on_in_another_epoch(
    fleet: Fleet, agent: Agent, request_of: Callable[..., LoadStage], expected_logs: ExpectLogs
) -> None:
    expected_logs("console.fleet.relay", "not_its_stage")
    answers: list[Frame] = []
    fleet.hub.set_frame_handler(lambda _, frame: answers.append(frame))
    await load(fleet, agent, request_of(stage=1))
    fleet.hub.set_route(1, 3, [agent.device_id])
    order = AdvanceEpoch(PipelineId(1), Epoch(1), Epoch(3), 0)
    report = await fleet.hub.advance(agent.device_id, order)
    (child,) = agent.children.started
    assert report == child.report
    assert child.orders == [order]
    fleet.hub.submit(1, make_step(stage=0, epoch=3))
    await until(lambda: fleet.hub.dropped_frames == {"not_its_stage": 1})  # it answered as a middle stage
    with pytest.raises(StageLoadFailed) as failed:
        await fleet.hub.advance(agent.device_id, order)
    assert failed.value.code == "stale"
    child.on_exit("It was killed.")
    await fleet.wait_for(lambda: isinstance(fleet.events[-1], StageDied))
    died = fleet.events[-1]
    assert isinstance(died, StageDied)
    assert (died.epoch, died.stage) == (3, 0)


async def test_a_stage_that_does_not_go_on_in_time_is_unloaded(
    fleet: Fleet, agent: Agent, request_of: Callable[..., LoadStage]
) -> None:
    await load(fleet, agent, request_of())
    (child,) = agent.children.started
    child.on_frame = lambda data: None  # frozen
    with pytest.raises(StageLoadFailed) as failed:
        await fleet.hub.advance(agent.device_id, AdvanceEpoch(PipelineId(1), Epoch(1), Epoch(2), 0), wait_s=0.05)
    assert failed.value.code == "stalled"
    await until(lambda: child.closed)


@pytest.mark.parametrize("allowed", [True, False])
async def test_orders_for_direct_links_reach_the_child_and_its_word_comes_back(tmp_path: Path, allowed: bool) -> None:
    _, digest = make_library(tmp_path / "library")
    async with running_fleet(tmp_path, direct_links=allowed) as fleet:
        fleet.distribution.register(tmp_path / "library")
        async with running_agent(fleet, "ann") as ann, running_agent(fleet, "bob") as bob:
            fleet.hub.set_route(1, 1, [ann.device_id, bob.device_id])
            for stage, agent in enumerate((ann, bob)):
                await load(fleet, agent, make_load(library_digest=digest, stage=stage))
            (head,), (tail,) = ann.children.started, bob.children.started
            if not allowed:
                assert (head.spec.direct, tail.spec.direct, head.orders, tail.orders) == (None, None, [], [])
                assert fleet.hub.stage_links(1)[1].reason == "direct links are off"
                return
            assert head.spec.direct is not None
            assert tail.spec.direct is not None
            assert (head.spec.direct.listens, tail.spec.direct.listens) == (False, True)
            await until(lambda: bool(head.orders))
            route = head.orders[0]
            assert isinstance(route, DirectRoute)
            now_s = tail.spec.direct.console_ahead_s + time.monotonic()
            ticket = unseal(route.ticket, tail.spec.direct.route_key, now_s, RouteTicket)
            assert (ticket.sender, ticket.receiver, ticket.stage) == (ann.device_id, bob.device_id, 1)
            state = DirectState(PipelineId(1), Epoch(1), 1, up=True, round_trip_ms=0.5)
            table = msgspec.msgpack.encode(state)
            head.on_frame(encode(Frame(FrameType.DIRECT, 1, 1, 0, 0, 1, table, None)))
            await until(lambda: fleet.hub.stage_links(1)[1].way == "direct")
            fleet.hub.disconnect(ann.device_id, CloseCode.NOT_APPROVED, "suspended", "An administrator did it.")
            await until(lambda: tail.orders == [CutDirect(PipelineId(1))])
            assert fleet.hub.stage_links(1)[1].way == "relay"


async def test_a_pc_may_refuse_direct_links(tmp_path: Path) -> None:
    _, digest = make_library(tmp_path / "library")
    async with running_fleet(tmp_path, direct_links=True) as fleet:
        fleet.distribution.register(tmp_path / "library")
        async with running_agent(fleet, settings=AgentSettings(direct_links=False)) as agent:
            await load(fleet, agent, make_load(library_digest=digest, stage=1))
            assert agent.children.started[0].spec.direct is None
