"""The hub over real TLS: who gets in, how links end, and what listeners hear."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from agent.link.channel import Dialler, link_error
from agent.link.closing import (
    CloseCode,
    DuplicateSession,
    FrameRefused,
    LinkCut,
    LinkDown,
    LinkDraining,
    LinkStalled,
    NotApproved,
    NotRecognised,
    UpgradeNeeded,
)
from agent.link.frames import Frame, FrameType, encode
from agent.link.identity import client_context
from agent.link.keystore import Keystore
from agent.link.messages import BULK_PATH, CONTROL_PATH, DATA_PATH, Goodbye, Heartbeat, Yield, encode_message
from agent.link.stage_messages import StageFailed, StageProgress, StageReady, UnloadStage
from agent.stage.types import Epoch, PipelineId
from console.fleet.errors import StageLoadFailed
from console.fleet.events import AgentAvailable, AgentJoined, AgentLost, AgentYielded, StageDied
from console.registry.authority import Authority
from tests.support.fleet import (
    Fleet,
    ScriptedAgent,
    anonymous_context,
    join,
    make_hello,
    make_load,
    make_report,
    make_step,
    running_fleet,
)
from tests.support.patience import PATIENCE_S


async def ending(link: object) -> LinkDown:
    """Read until the link closes and return why."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            while True:
                await link.recv(decode=False)  # type: ignore[attr-defined]  # a client connection
        except ConnectionClosed as closed:
            return link_error(closed)


async def test_an_agent_joins_with_both_links_and_is_lost_with_either(fleet: Fleet) -> None:
    identity = fleet.enrol("ann")
    agent = await join(fleet, identity, host="ann-pc")
    (view,) = fleet.hub.agents()
    assert (view.device_id, view.name, view.hello.host) == (identity.device_id, "ann", "ann-pc")
    await agent.data.close()
    await fleet.wait_for(lambda: isinstance(fleet.events[-1], AgentLost))
    assert fleet.hub.agents() == []
    assert isinstance(await ending(agent.control), LinkStalled)


async def test_what_an_agent_says_of_itself_is_one_visible_line(fleet: Fleet) -> None:
    await join(fleet, fleet.enrol("ann"), host="ann-pc\nZZZZ-ZZZZ", os="Linux\u202e", version="1\x1b", openvino="2\x07")
    (view,) = fleet.hub.agents()
    hello = view.hello
    assert (hello.host, hello.os, hello.version, hello.openvino) == ("ann-pc�ZZZZ-ZZZZ", "Linux�", "1�", "2�")


async def test_an_agent_whose_process_dies_is_lost_with_its_links_and_not_by_its_silence(fleet: Fleet) -> None:
    agent = await join(fleet, fleet.enrol("ann"))
    agent.control.transport.abort()
    agent.data.transport.abort()
    await fleet.wait_for(lambda: isinstance(fleet.events[-1], AgentLost))
    joined, lost = fleet.events
    assert isinstance(joined, AgentJoined)
    assert isinstance(lost, AgentLost)
    assert "link" in lost.reason


async def test_an_agent_without_heartbeats_is_lost(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, heartbeat_s=0.1) as fleet:
        agent = await join(fleet, fleet.enrol("ann"))
        await fleet.wait_for(lambda: isinstance(fleet.events[-1], AgentLost))
        assert isinstance(await ending(agent.data), LinkStalled)


async def test_whoever_promised_to_beat_often_is_missed_soon(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, heartbeat_s=PATIENCE_S) as fleet:
        agent = await join(fleet, fleet.enrol("ann"))
        await agent.say(Heartbeat(1, next_s=0.02))
        await fleet.wait_for(lambda: isinstance(fleet.events[-1], AgentLost))
        assert isinstance(await ending(agent.data), LinkStalled)


async def test_a_silent_pc_is_given_up_sooner_once_another_has_its_stage_loaded(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, heartbeat_s=1000.0) as fleet:

        def lost() -> list[str]:
            return [event.device_id for event in fleet.events if isinstance(event, AgentLost)]

        def was_silent_for(seconds: float, *agents: ScriptedAgent) -> None:
            for agent in agents:
                session = fleet.hub._sessions.find(agent.device_id)
                assert session is not None
                session.seen_s -= seconds

        ann, bob, eve, kim = [await join(fleet, fleet.enrol(name)) for name in ("ann", "bob", "eve", "kim")]
        for pipeline, agent in enumerate((ann, eve, kim), 1):
            await agent.say(Heartbeat(1, next_s=100.0))  # given up after 500 s, or 300 s
            fleet.hub.set_route(pipeline, 1, [agent.device_id])
        await fleet.wait_for(lambda: sum(view.heartbeat is not None for view in fleet.hub.agents()) == 3)
        fleet.hub.set_standby(1, bob.device_id, 1, 0)
        load = asyncio.create_task(fleet.hub.load(bob.device_id, request := make_load()))
        await bob.hear()
        was_silent_for(400, ann, eve)
        was_silent_for(600, kim)
        await fleet.wait_for(lambda: lost() == [kim.device_id])
        await bob.say(StageReady(request.pipeline, request.epoch, request.stage, make_report(request)))
        await load
        await fleet.wait_for(lambda: lost() == [kim.device_id, ann.device_id])
        assert fleet.hub._sessions.find(eve.device_id) is not None


async def test_a_heartbeat_is_shown_and_a_goodbye_is_a_clean_end(fleet: Fleet) -> None:
    agent = await join(fleet, fleet.enrol("ann"))
    await agent.say(Heartbeat(memory_free_bytes=5, state="held", reasons=["user"]))
    await agent.say(Goodbye("stopping", "The agent was stopped."))
    await fleet.wait_for(lambda: isinstance(fleet.events[-1], AgentLost))
    assert fleet.events[-1] == AgentLost(agent.device_id, "The agent was stopped")
    assert isinstance(await ending(agent.control), LinkCut)


@pytest.mark.parametrize("path", [CONTROL_PATH, DATA_PATH, BULK_PATH])
async def test_a_peer_without_certificate_gets_nowhere(fleet: Fleet, path: str) -> None:
    dialler = Dialler([fleet.url], anonymous_context(fleet), fleet.authority.server_hostname)
    refusal = await ending(await dialler.dial(path))
    assert isinstance(refusal, NotRecognised)
    assert refusal.code == "no_certificate"


async def test_a_certificate_of_another_fleet_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    other = Authority.open(tmp_path / "other", Keystore.files_only("other"))
    identity = fleet.enrol("eve", authority=other)
    with pytest.raises(LinkCut):
        await Dialler([fleet.url], client_context(identity), fleet.authority.server_hostname).dial(CONTROL_PATH)


async def test_the_reason_hidden_by_tls_is_asked_for(fleet: Fleet, tmp_path: Path) -> None:
    other = Authority.open(tmp_path / "other", Keystore.files_only("other"))
    identity = fleet.enrol("eve", authority=other)

    async def diagnose() -> LinkDown | None:
        return NotRecognised("This PC belongs to another fleet; enrol it here.", "other_fleet")

    dialler = Dialler([fleet.url], client_context(identity), fleet.authority.server_hostname, diagnose)
    with pytest.raises(NotRecognised, match="another fleet"):
        await dialler.dial(CONTROL_PATH)


async def test_an_unknown_path_is_not_found(fleet: Fleet) -> None:
    from websockets.asyncio.client import connect

    with pytest.raises(InvalidStatus) as refusal:
        await connect(
            f"{fleet.url}/admin", ssl=anonymous_context(fleet), server_hostname=fleet.authority.server_hostname
        )
    assert refusal.value.response.status_code == 404
    assert "Server" not in refusal.value.response.headers


async def test_a_revoked_device_loses_every_link_at_once_and_stays_out(fleet: Fleet) -> None:
    agent = await join(fleet, fleet.enrol("ann"))
    bulk = await fleet.dialler(agent.identity).dial(BULK_PATH)
    fleet.set_state(agent.device_id, "evicted")
    fleet.hub.disconnect(agent.device_id, CloseCode.NOT_APPROVED, "evicted", "An administrator removed this PC.")
    assert fleet.hub.agents() == []
    for link in (agent.control, agent.data, bulk):
        refusal = await ending(link)
        assert isinstance(refusal, NotApproved)
        assert refusal.code == "evicted"
    again = await ending(await fleet.dialler(agent.identity).dial(CONTROL_PATH))
    assert isinstance(again, NotApproved)


async def test_the_newest_session_wins(fleet: Fleet) -> None:
    identity = fleet.enrol("ann")
    old = await join(fleet, identity)
    new = await join(fleet, identity, host="copy")
    for link in (old.control, old.data):
        assert isinstance(await ending(link), DuplicateSession)
    assert [view.hello.host for view in fleet.hub.agents()] == ["copy"]
    assert [type(event) for event in fleet.events] == [AgentJoined, AgentLost, AgentJoined]
    await new.close()


async def test_a_newer_data_link_replaces_the_old_one(fleet: Fleet) -> None:
    agent = await join(fleet, fleet.enrol("ann"))
    fleet.hub.set_route(1, 1, [agent.device_id])
    newer = await fleet.dialler(agent.identity).dial(DATA_PATH)
    assert isinstance(await ending(agent.data), DuplicateSession)
    fleet.hub.submit(1, make_step(stage=0))
    assert await newer.recv(decode=False) == make_step(stage=0)
    await newer.close()


async def test_a_data_link_without_a_control_link_is_refused(fleet: Fleet) -> None:
    refusal = await ending(await fleet.dialler(fleet.enrol("ann")).dial(DATA_PATH))
    assert isinstance(refusal, LinkStalled)
    assert refusal.code == "control_first"


@pytest.mark.parametrize(
    "message",
    [b"noise", encode_message(Heartbeat(1)), encode_message(make_hello())[:-3]],
    ids=["noise", "heartbeat", "torn"],
)
@pytest.mark.expected_logs("console.fleet.reception", "4400")
async def test_a_control_link_must_begin_with_hello(fleet: Fleet, message: bytes) -> None:
    link = await fleet.dialler(fleet.enrol("ann")).dial(CONTROL_PATH)
    await link.send(message)
    assert isinstance(await ending(link), FrameRefused)


async def test_a_peer_that_says_nothing_is_cut_off(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.fleet.reception.HELLO_WAIT_S", 0.05)
    assert isinstance(await ending(await fleet.dialler(fleet.enrol("ann")).dial(CONTROL_PATH)), LinkStalled)


@pytest.mark.expected_logs("console.fleet.reception", "Serving /data failed")
async def test_a_fault_of_the_console_costs_one_session_and_not_the_hub(fleet: Fleet) -> None:
    agent = await join(fleet, fleet.enrol("ann"))

    def broken(pipeline: int, frame: Frame) -> None:
        raise RuntimeError("a fault")

    fleet.hub.set_frame_handler(broken)
    fleet.hub.set_route(1, 1, [agent.device_id])
    await agent.data.send(encode(Frame(FrameType.TOKENS, 1, 1, 0, 0, 0, b"", None)))
    await fleet.wait_for(lambda: isinstance(fleet.events[-1], AgentLost))
    await join(fleet, agent.identity)


async def test_an_agent_that_yields_is_held_at_once_and_available_when_it_says_so(fleet: Fleet) -> None:
    agent = await join(fleet, fleet.enrol("ann"))
    load = asyncio.create_task(fleet.hub.load(agent.device_id, make_load()))
    await agent.hear()
    await agent.say(Yield([(PipelineId(1), Epoch(1))], ["user_input"]))
    with pytest.raises(StageLoadFailed, match="its owner needs it") as failure:
        await load
    assert failure.value.code == "held"
    assert fleet.events[-1] == AgentYielded(agent.device_id, [(PipelineId(1), Epoch(1))], ["user_input"])
    (view,) = fleet.hub.agents()
    assert view.heartbeat is not None
    assert (view.heartbeat.state, view.heartbeat.reasons) == ("held", ["user_input"])
    await agent.say(Heartbeat(5, "held", ["user_input"]))
    await agent.say(Heartbeat(5))
    await fleet.wait_for(lambda: fleet.events[-1] == AgentAvailable(agent.device_id))


async def test_an_agent_may_join_held(fleet: Fleet) -> None:
    await join(fleet, fleet.enrol("ann"), state="held", reasons=["on_battery"])
    (view,) = fleet.hub.agents()
    assert view.heartbeat == Heartbeat(0, "held", ["on_battery"])


@pytest.mark.parametrize(("protocol", "update"), [(4, "agent"), (7, "console"), (99, "console"), (-1, "agent")])
async def test_a_protocol_that_is_too_old_or_too_new_is_told_to_update(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, protocol: int, update: str
) -> None:
    monkeypatch.setattr("console.fleet.reception.PROTOCOL", 6)
    monkeypatch.setattr("console.fleet.reception.OLDEST_PROTOCOL", 5)
    link = await fleet.dialler(fleet.enrol("ann")).dial(CONTROL_PATH)
    await link.send(encode_message(make_hello(protocol=protocol)))
    refusal = await ending(link)
    assert isinstance(refusal, UpgradeNeeded)
    assert f"protocol 6, the agent {protocol}; update the {update}" in str(refusal)
    assert fleet.hub.agents() == []


@pytest.mark.parametrize("protocol", [5, 6])
async def test_the_present_protocol_and_the_one_before_are_served(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    monkeypatch.setattr("console.fleet.reception.PROTOCOL", 6)
    monkeypatch.setattr("console.fleet.reception.OLDEST_PROTOCOL", 5)
    await join(fleet, fleet.enrol("ann"), protocol=protocol)
    assert [view.hello.protocol for view in fleet.hub.agents()] == [protocol]


@pytest.mark.expected_logs("console.fleet.reception", "4400")
async def test_a_malformed_frame_closes_the_data_link_with_4400_and_loses_the_agent(fleet: Fleet) -> None:
    agent = await join(fleet, fleet.enrol("ann"))
    await agent.data.send(b"FLW1" + bytes(100))
    assert isinstance(await ending(agent.data), FrameRefused)
    await fleet.wait_for(lambda: isinstance(fleet.events[-1], AgentLost))


async def test_an_oversized_control_message_is_refused(fleet: Fleet) -> None:
    agent = await join(fleet, fleet.enrol("ann"))
    await agent.control.send(bytes(300 * 1024))
    assert isinstance(await ending(agent.control), FrameRefused)
    await fleet.wait_for(lambda: isinstance(fleet.events[-1], AgentLost))


async def test_stopping_the_hub_says_goodbye_and_closes_with_4503(fleet: Fleet) -> None:
    agent = await join(fleet, fleet.enrol("ann"))
    stopping = asyncio.create_task(fleet.hub.stop())
    assert isinstance(await agent.hear(), Goodbye)
    for link in (agent.control, agent.data):
        assert isinstance(await ending(link), LinkDraining)
    await stopping


async def test_a_load_reports_progress_and_returns_the_report(fleet: Fleet) -> None:
    agent = await join(fleet, fleet.enrol("ann"))
    request, seen = make_load(), list[StageProgress]()
    load = asyncio.create_task(fleet.hub.load(agent.device_id, request, seen.append))
    assert msgspec.structs.replace(await agent.hear(), signature=b"") == request
    progress = StageProgress(request.pipeline, request.epoch, request.stage, "fetch", 5, 10)
    stale = StageReady(request.pipeline, Epoch(request.epoch + 1), request.stage, make_report(request))
    report = make_report(request)
    for message in (progress, stale, StageReady(request.pipeline, request.epoch, request.stage, report)):
        await agent.say(message)
    assert await load == report
    assert seen == [progress]

    await agent.say(StageFailed(request.pipeline, request.epoch, request.stage, "died", "The stage ended."))
    await fleet.wait_for(lambda: isinstance(fleet.events[-1], StageDied))
    await fleet.hub.unload(agent.device_id, request.pipeline)
    assert await agent.hear() == UnloadStage(request.pipeline)


async def test_a_failed_load_names_the_device_and_the_code(fleet: Fleet) -> None:
    agent = await join(fleet, fleet.enrol("ann"))
    request = make_load()
    load = asyncio.create_task(fleet.hub.load(agent.device_id, request))
    await agent.hear()
    await agent.say(StageFailed(request.pipeline, request.epoch, request.stage, "memory", "It has too little memory."))
    with pytest.raises(StageLoadFailed, match="ann could not load its stage") as failure:
        await load
    assert failure.value.code == "memory"


async def test_a_report_about_something_else_is_a_mismatch(fleet: Fleet) -> None:
    agent = await join(fleet, fleet.enrol("ann"))
    request = make_load()
    load = asyncio.create_task(fleet.hub.load(agent.device_id, request))
    await agent.hear()
    await agent.say(StageReady(request.pipeline, request.epoch, request.stage, make_report(request, last=99)))
    with pytest.raises(StageLoadFailed) as failure:
        await load
    assert failure.value.code == "mismatch"


async def test_a_load_ends_when_the_agent_leaves_is_gone_or_stalls(fleet: Fleet) -> None:
    agent = await join(fleet, fleet.enrol("ann"))
    with pytest.raises(StageLoadFailed) as failure:
        await fleet.hub.load(agent.device_id, make_load(), stall_s=0.05)
    assert failure.value.code == "stalled"
    assert msgspec.structs.replace(await agent.hear(), signature=b"") == make_load()
    assert await agent.hear() == UnloadStage(make_load().pipeline)
    load = asyncio.create_task(fleet.hub.load(agent.device_id, make_load()))
    await agent.hear()
    await agent.control.close()
    for attempt in (load, fleet.hub.load(agent.device_id, make_load())):
        with pytest.raises(StageLoadFailed) as failure:
            await attempt
        assert failure.value.code == "gone"
