"""A PC that goes back to its owner: the agent's service and volunteer against a real hub, and real child processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest

from agent import stages, watchdog
from agent.devices import find_runtime
from agent.link.channel import Backoff
from agent.link.frames import FrameType, decode
from agent.link.stage_messages import LoadStage
from agent.seen import ConsoleView
from agent.service import AgentService
from agent.settings import AgentSettings
from agent.stage.gate import Gate, Gates
from agent.stage.process import StageProcess
from agent.stage.types import Nack
from agent.volunteer.clock import steady_s
from agent.volunteer.duty import Volunteer
from agent.volunteer.keeping import PolicyKeeper
from agent.volunteer.presence import Presence
from agent.volunteer.states import Phase, Release
from console.fleet.errors import StageLoadFailed
from console.fleet.events import AgentAvailable, AgentYielded, StageDied
from tests.support.agents import Children, FakeChild, running_agent
from tests.support.fleet import Fleet, join
from tests.support.fleet import make_step as passed_on
from tests.support.patience import until
from tests.support.stage import make_row, make_spec, make_step
from tests.support.toy_library import toy_library
from tests.support.volunteers import PlayedBoard, quick

WAIT_S = 60
FOUR_MIB = 4 << 20


@dataclass
class OwnersPC:
    service: AgentService
    volunteer: Volunteer
    board: PlayedBoard
    children: Children
    device_id: str

    async def reach(self, phase: Phase) -> None:
        await until(lambda: self.volunteer.state.phase is phase)

    def come_back(self) -> None:
        """The owner touches the PC and stays at it."""
        self.board.idle_s = 0.0
        self.volunteer.seen("played")

    def go_away(self) -> None:
        """The owner has left."""
        self.board.idle_s = 1e6
        self.volunteer.look_again()


@pytest.fixture
async def pc(fleet: Fleet) -> AsyncIterator[OwnersPC]:
    """An agent that minds its owner, who has been away for long."""
    folder = fleet.folder / "data"
    folder.mkdir()
    identity = fleet.enrol("data/identity")
    children, board = Children(), PlayedBoard()
    keeper = PolicyKeeper(folder, now_s=time.time())
    volunteer = Volunteer(keeper, Gates(folder / "gates"), board, adjust=quick, jitter_s=0.0)
    volunteer.state = msgspec.structs.replace(volunteer.state, presence=Presence(steady_s() - 1e6, None))
    service = AgentService(
        folder, identity, AgentSettings(), volunteer, start_child=children, list_devices=find_runtime,
        backoff=Backoff(uniform=lambda low, high: 0.05),
    )  # fmt: skip
    tasks = [asyncio.create_task(service.run()), asyncio.create_task(volunteer.run(service))]
    try:
        await fleet.wait_for(lambda: AgentAvailable(identity.device_id) in fleet.events)
        yield OwnersPC(service, volunteer, board, children, identity.device_id)
    finally:
        service.stop()
        await tasks[0]
        tasks[1].cancel()
        await asyncio.gather(tasks[1], return_exceptions=True)


async def test_input_yields_ends_the_stage_and_keeps_the_link(
    fleet: Fleet, pc: OwnersPC, request_of: Callable[..., LoadStage]
) -> None:
    await fleet.hub.load(pc.device_id, request_of())
    await pc.reach(Phase.SERVING)
    pc.come_back()
    await until(lambda: pc.children.started[0].closed)
    await fleet.wait_for(lambda: AgentYielded(pc.device_id, [(1, 1)], ["user_input"]) in fleet.events)  # type: ignore[list-item]
    (view,) = fleet.hub.agents()
    assert view.heartbeat is not None
    assert view.heartbeat.state == "held"
    assert pc.volunteer.gates.all() == []
    with pytest.raises(StageLoadFailed, match="not available now") as refused:
        await fleet.hub.load(pc.device_id, request_of(epoch=2))
    assert refused.value.code == "held"
    pc.go_away()
    await pc.reach(Phase.AVAILABLE)
    await fleet.hub.load(pc.device_id, request_of(epoch=3))


async def test_input_during_a_large_send_over_a_slow_link_shuts_the_gate_and_reaches_the_console_before_it(
    fleet: Fleet, pc: OwnersPC, request_of: Callable[..., LoadStage]
) -> None:
    await fleet.hub.load(pc.device_id, request_of())
    await pc.reach(Phase.SERVING)
    tail = await join(fleet, fleet.enrol("tail"))
    fleet.hub.set_route(1, 1, [pc.device_id, tail.device_id])
    session, slow = pc.service._session, fleet.hub._sessions.data_link(pc.device_id)
    assert session is not None
    assert slow is not None
    for link, buffer in ((slow, socket.SO_RCVBUF), (session._links.data, socket.SO_SNDBUF)):
        link.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, buffer, 1 << 16)
    slow.transport.pause_reading()
    states = passed_on(stage=1, tokens=FOUR_MIB // (4 * 576) + 1)
    for _ in range(4):  # the systems' buffers take some of it, whatever they were told
        pc.children.started[0].on_frame(states)
    await asyncio.to_thread(pc.volunteer.seen, "played")
    # Not a gate of its own: the stage may have ended by now, and its gate with it.
    assert pc.volunteer.gates.are_shut
    await fleet.wait_for(lambda: AgentYielded(pc.device_id, [(1, 1)], ["user_input"]) in fleet.events)  # type: ignore[list-item]
    assert session._links.data.transport.get_write_buffer_size() >= FOUR_MIB
    await until(lambda: pc.children.started[0].closed)
    slow.transport.resume_reading()
    assert await tail.receive() == states
    await tail.close()


async def test_the_owner_is_shown_what_the_console_was_told(fleet: Fleet, pc: OwnersPC) -> None:
    def seen() -> dict[str, str]:
        return {} if pc.service.told is None else pc.service.told.seen()

    await pc.reach(Phase.AVAILABLE)
    await until(lambda: (seen().get("state"), seen().get("reasons")) == ("available", ""))
    (view,) = fleet.hub.agents()
    later = {"state", "reasons", "memory_free", "mark", "policy", "resting", "held_files", "addresses", "measured"}
    said = ConsoleView(view.hello).seen()
    assert {name: seen()[name] for name in said.keys() - later} == {name: said[name] for name in said.keys() - later}
    pc.come_back()
    await pc.reach(Phase.HELD)
    await until(lambda: seen()["state"] == "held")
    assert seen()["reasons"] == "user_input"
    assert seen()["memory_free"].endswith(" GiB")


async def test_an_order_to_unload_during_the_release_cuts_nothing_short(
    fleet: Fleet, pc: OwnersPC, request_of: Callable[..., LoadStage], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of()
    await fleet.hub.load(pc.device_id, request)
    await pc.reach(Phase.SERVING)
    closing = asyncio.Event()

    async def close(child: FakeChild) -> None:
        await closing.wait()
        child.closed = True

    monkeypatch.setattr(FakeChild, "close", close)
    pc.volunteer.seen("played")
    await pc.reach(Phase.RELEASING)
    for _ in range(3):
        await fleet.hub.unload(pc.device_id, request.pipeline)  # what the console answers a yield with
    await asyncio.sleep(0.1)
    closing.set()
    await until(lambda: pc.service.stages_phase == "none")
    assert pc.volunteer.gates.all() == []
    assert list((fleet.folder / "data" / "gates").iterdir()) == []
    await until(lambda: list((fleet.folder / "data" / "stages").iterdir()) == [])


async def test_input_during_loading_ends_the_load_and_leaves_no_child(
    fleet: Fleet, pc: OwnersPC, request_of: Callable[..., LoadStage]
) -> None:
    pc.children.hold = asyncio.Event()
    loading = asyncio.create_task(fleet.hub.load(pc.device_id, request_of()))
    await pc.reach(Phase.LOADING)
    pc.come_back()
    with pytest.raises(StageLoadFailed) as failed:
        await loading
    assert failed.value.code == "held"
    assert pc.children.started == []
    await until(lambda: pc.service.stages_phase == "none")


async def test_twenty_yields_in_a_row_leave_nothing_behind(
    fleet: Fleet, pc: OwnersPC, request_of: Callable[..., LoadStage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.volunteer.machine.YIELDS_ALLOWED", 1000)
    # How soon it is looked again at a PC without a stage is not what this is about.
    monkeypatch.setattr("agent.volunteer.duty.LOOK_S", 0.1)
    for epoch in range(1, 21):
        await pc.reach(Phase.AVAILABLE)
        await fleet.wait_for(lambda: all(v.heartbeat and v.heartbeat.state == "available" for v in fleet.hub.agents()))
        await fleet.hub.load(pc.device_id, request_of(epoch=epoch))
        await pc.reach(Phase.SERVING)
        pc.volunteer.order(Release())
        pc.volunteer.state = msgspec.structs.replace(pc.volunteer.state, released_until_s=0.0)
        await until(lambda: pc.children.started[-1].closed)
    assert len(pc.children.started) == 20
    assert all(child.closed for child in pc.children.started)


async def test_a_console_that_is_down_does_not_delay_giving_back(
    fleet: Fleet, pc: OwnersPC, request_of: Callable[..., LoadStage]
) -> None:
    await fleet.hub.load(pc.device_id, request_of())
    await pc.reach(Phase.SERVING)
    await fleet.hub.stop()
    pc.come_back()
    await until(lambda: pc.children.started[0].closed)
    await pc.reach(Phase.HELD)


async def test_a_child_that_does_not_get_on_is_ended_and_reported(
    fleet: Fleet, request_of: Callable[..., LoadStage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "INFERENCE_S", 0.1)
    monkeypatch.setattr(stages, "LOOK_S", 0.02)
    async with running_agent(fleet) as agent:
        await fleet.hub.load(agent.device_id, request_of())
        gate = Gate.open(Path(agent.children.started[0].spec.gate))
        gate.enter()
        await fleet.wait_for(lambda: isinstance(fleet.events[-1], StageDied))
        await until(lambda: agent.children.started[0].closed)
        gate.close()


# Real children


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    toy_library(folder)
    return folder


@contextlib.asynccontextmanager
async def child(library: Path, gate: Gate, **fields: Any) -> AsyncIterator[tuple[StageProcess, asyncio.Queue[bytes]]]:
    frames: asyncio.Queue[bytes] = asyncio.Queue()
    process = await StageProcess.start(
        make_spec(library, gate=str(gate.path), **fields), on_frame=frames.put_nowait, on_exit=lambda cause: None
    )
    try:
        yield process, frames
    finally:
        await process.close()


async def test_behind_a_shut_gate_nothing_is_computed_and_every_step_is_answered(tmp_path: Path, library: Path) -> None:
    gates = Gates(tmp_path / "gates")
    gate = gates.make()
    async with child(library, gate) as (process, frames):

        async def answer(at: int) -> Any:
            await process.send(make_step([make_row(1, at)], np.arange(1)))
            return decode(await asyncio.wait_for(frames.get(), WAIT_S))

        assert (await answer(0)).type is FrameType.TOKENS
        assert (gate.entered, gate.tokens, gate.is_inside) == (1, 1, False)
        gates.shut()
        refused = await answer(1)
        assert refused.type is FrameType.NACK
        assert msgspec.msgpack.decode(refused.table, type=Nack).code == "yielded"
        assert gate.entered == 1
        gates.reopen()
        assert (await answer(1)).type is FrameType.TOKENS
        assert gate.beat_ns > 0
    gates.remove(gate)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at Linux's own priorities")
async def test_a_gentle_child_makes_way_for_everybody_else(tmp_path: Path, library: Path) -> None:
    gate = Gate.create(tmp_path / "1.gate")
    async with child(library, gate, gentle=True) as (process, _):
        stage = psutil.Process(process.pid)
        assert stage.nice() == 19
        assert stage.ionice().ioclass == psutil.IOPRIO_CLASS_IDLE
        assert os.getsid(process.pid) == process.pid
        nices = {os.getpriority(os.PRIO_PROCESS, thread.id) for thread in stage.threads()}
        assert nices == {19}
    gate.close()


@pytest.mark.skipif(sys.platform == "win32", reason="stops a process with a signal")
async def test_a_frozen_child_beats_no_more_and_is_still_ended(tmp_path: Path, library: Path) -> None:
    gate = Gate.create(tmp_path / "1.gate")
    async with child(library, gate) as (process, _):
        os.kill(process.pid, signal.SIGSTOP)
        pulse = watchdog.Pulse()
        while not pulse.is_frozen(starved=watchdog.waits_for_the_pc(process.pid)):
            pulse.look(gate.beat_ns)
            await asyncio.sleep(0.001)
        async with asyncio.timeout(WAIT_S):  # by itself it would never end
            await process.close()
        assert not psutil.pid_exists(process.pid)
    gate.close()


async def test_a_child_without_its_gate_says_so(tmp_path: Path, library: Path) -> None:
    gate = Gate.create(tmp_path / "1.gate")
    (tmp_path / "1.gate").unlink()
    with pytest.raises(Exception, match="gate cannot be used"):
        async with child(library, gate):
            pass
    gate.close()
