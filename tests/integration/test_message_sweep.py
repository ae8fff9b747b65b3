"""Every message and frame there is, from those who may not say it. The lists come from the protocol's own types, so a
message or path that is added without being looked at here fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed

from agent.link.bulk import Locate
from agent.link.channel import Dialler
from agent.link.closing import CloseCode
from agent.link.frames import Fetch, Frame, FrameType, encode
from agent.link.identity import client_context
from agent.link.messages import (
    BULK_PATH,
    CONTROL_PATH,
    DATA_PATH,
    ENROL_PATH,
    AskRelease,
    FromAgent,
    FromConsole,
    Goodbye,
    Heartbeat,
    Hello,
    Holding,
    LayerRange,
    LayersFetched,
    LogLines,
    MarkKept,
    Measurements,
    PolicyKept,
    Resting,
    UpdateState,
    Yield,
    encode_message,
)
from agent.link.stage_messages import DirectState, StageFailed, StageProgress, StageReady
from agent.stage.types import Epoch, Nack, PipelineId
from console.fleet.reception import PATHS
from tests.support.fleet import (
    Fleet,
    ScriptedAgent,
    anonymous_context,
    join,
    make_hello,
    make_load,
    make_report,
    running_fleet,
)
from tests.support.patience import PATIENCE_S

PIPELINE, EPOCH = PipelineId(1), Epoch(1)
OF_ANN = LayerRange("a" * 64, 0, 2)
LOAD = make_load()

# What Eve would say to pass for Ann, who runs stage 1 of pipeline 1.
SAYINGS: dict[type, msgspec.Struct] = {
    Hello: make_hello(host="ann"),
    Holding: Holding(["10.9.9.9:8470"], ["e" * 64], ["a" * 64]),
    LayersFetched: LayersFetched(OF_ANN),
    MarkKept: MarkKept("e-1"),
    Heartbeat: Heartbeat(1),
    StageProgress: StageProgress(PIPELINE, EPOCH, 0, "load", 1, 1),
    StageReady: StageReady(PIPELINE, EPOCH, 0, make_report(LOAD)),
    StageFailed: StageFailed(PIPELINE, EPOCH, 0, "died", "It ended."),
    DirectState: DirectState(PIPELINE, EPOCH, 1, True),
    Yield: Yield([(PIPELINE, EPOCH)], ["user_input"]),
    PolicyKept: PolicyKept(9),
    Resting: Resting([100] * 56, 0.0),
    Measurements: Measurements([], 1e6, 1e9),
    LogLines: LogLines(["Ann did it."]),
    AskRelease: AskRelease(),
    UpdateState: UpdateState("failed", "1.1.0", "It crashed."),
    Goodbye: Goodbye("stopping", "It stops."),
}
TABLES: dict[FrameType, bytes] = {
    FrameType.NACK: msgspec.msgpack.encode(Nack(0, "memory", "It has too little.")),
    FrameType.FETCH: msgspec.msgpack.encode(Fetch("a" * 64, 0, 100)),
    FrameType.LOCATE: msgspec.msgpack.encode(Locate(["a" * 64])),
}
FRAMES = [
    encode(Frame(kind, PIPELINE, EPOCH, 7, 7, stage, TABLES.get(kind, b""), np.zeros(1, np.int32)))
    for kind in FrameType
    for stage in (0, 1, 2)
]


def test_the_lists_have_every_message_every_frame_and_every_path() -> None:
    assert set(SAYINGS) == set(get_args(FromAgent))
    assert len(FRAMES) == 3 * len(FrameType)
    assert set(PATHS) == {ENROL_PATH, CONTROL_PATH, DATA_PATH, BULK_PATH}
    # What only a console may say is not understood from an agent; Goodbye is either's.
    assert set(get_args(FromAgent)) & set(get_args(FromConsole)) == {Goodbye}


@dataclass
class Scene:
    """Ann runs stages 0 and 1 of a pipeline, is loading another stage, and gets layers; who else acts is seen here."""

    fleet: Fleet
    ann: ScriptedAgent
    frames: list[tuple[int, Frame]]

    def state(self) -> Any:
        """Everything the console knows that a message could change, but Eve's own session."""
        hub, ann = self.fleet.hub, self.ann.device_id
        session = hub._sessions.find(ann)
        peer = hub._peers._peers[ann]
        assert session is not None
        return {
            "sessions": {agent.device_id: agent.hello.host for agent in hub.agents() if agent.device_id == ann},
            "heartbeat": session.heartbeat,
            "loads": [(load.request, load.done.done(), load.moved_s) for load in session.loads.values()],
            "deliveries": {layers: done.done() for layers, done in session.deliveries.items()},
            "held": (sorted(peer.held), list(peer.addresses)),
            "links": hub.stage_links(PIPELINE),
            "answers": len(self.frames),
            "events": [event for event in self.fleet.events if getattr(event, "device_id", "") == ann],
        }


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with running_fleet(tmp_path, direct_links=True, heartbeat_s=60) as fleet:
        ann = await join(fleet, fleet.enrol("ann"), held_sha256=["a" * 64])
        frames: list[tuple[int, Frame]] = []
        fleet.hub.set_frame_handler(lambda pipeline, frame: frames.append((pipeline, frame)))
        fleet.hub.set_route(PIPELINE, EPOCH, [ann.device_id, ann.device_id])
        works = [
            asyncio.create_task(fleet.hub.load(ann.device_id, LOAD)),
            asyncio.create_task(fleet.hub.deliver(ann.device_id, OF_ANN)),
        ]
        session = fleet.hub._sessions.find(ann.device_id)
        while session is None or not (session.loads and session.deliveries):
            await asyncio.sleep(0)
        yield Scene(fleet, ann, frames)
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        await ann.close()


def contexts(fleet: Fleet) -> dict[str, tuple[ssl.SSLContext, int]]:
    """TLS of those who may say nothing, with the code their links are closed with."""
    found = {"nobody": (anonymous_context(fleet), int(CloseCode.NOT_RECOGNISED))}
    for state in ("pending", "suspended", "evicted", "banned"):
        identity = fleet.enrol(f"eve-{state}")
        fleet.set_state(identity.device_id, state)
        found[state] = (client_context(identity), int(CloseCode.NOT_APPROVED))
    forgotten = fleet.enrol("eve-forgotten")
    del fleet.records[forgotten.device_id]
    return found | {"forgotten": (client_context(forgotten), int(CloseCode.NOT_RECOGNISED))}


async def test_nothing_is_heard_from_those_who_are_not_let_in(scene: Scene) -> None:
    fleet, before = scene.fleet, scene.state()
    said = [encode_message(message) for message in SAYINGS.values()]  # type: ignore[arg-type]  # all of them are FromAgent
    for who, (tls, code) in contexts(fleet).items():
        dialler = Dialler([fleet.url], tls, fleet.authority.server_hostname)
        for path, messages in ((CONTROL_PATH, said), (DATA_PATH, FRAMES), (BULK_PATH, FRAMES)):
            # Each message as the first that is said, by one of them; the others say all of them at once.
            for batch in [[message] for message in messages] if who == "banned" else [messages]:
                assert await refusal(dialler, path, batch) == code, (who, path)
    assert scene.state() == before
    assert [agent.device_id for agent in fleet.hub.agents()] == [scene.ann.device_id]


async def refusal(dialler: Dialler, path: str, messages: list[bytes]) -> int:
    """Say these things and return the code the link is closed with."""
    link = await dialler.dial(path)
    with contextlib.suppress(ConnectionClosed):
        for message in messages:
            await link.send(message)
    with pytest.raises(ConnectionClosed) as closed:
        await link.recv()
    assert closed.value.rcvd is not None
    return int(closed.value.rcvd.code)


@pytest.mark.expected_logs("console.fleet.reception", "4400", required=False)
@pytest.mark.expected_logs("console.fleet.direct", "not its own", required=False)
@pytest.mark.parametrize("kind", list(SAYINGS), ids=lambda kind: kind.__name__)
async def test_a_member_cannot_speak_for_another(scene: Scene, kind: type) -> None:
    eve = await join(scene.fleet, scene.fleet.enrol("eve"))
    before = scene.state()
    await eve.control.send(encode_message(SAYINGS[kind]))  # type: ignore[arg-type]  # all of them are FromAgent
    await heard(scene.fleet, eve)
    assert scene.state() == before
    await eve.close()


async def heard(fleet: Fleet, agent: ScriptedAgent) -> None:
    """Wait until everything an agent said on its control link was taken, or the link is closed."""
    with contextlib.suppress(ConnectionClosed):
        await agent.say(Heartbeat(4711))
    async with asyncio.timeout(PATIENCE_S):
        while True:
            session = fleet.hub._sessions.find(agent.device_id)
            if session is None or (session.heartbeat is not None and session.heartbeat.memory_free_bytes == 4711):
                return
            await asyncio.sleep(0.001)


@pytest.mark.expected_logs("console.fleet.reception", "4400", required=False)
@pytest.mark.expected_logs("console.fleet.relay", "not_its_stage", required=False)
async def test_a_member_cannot_take_another_s_place_in_a_pipeline(scene: Scene) -> None:
    fleet, before = scene.fleet, scene.state()
    identity = fleet.enrol("eve")
    own = encode(Frame(FrameType.TOKENS, 2, 1, 1, 1, 0, b"", np.zeros(1, np.int32)))
    answered: list[Frame] = []
    fleet.hub.set_frame_handler(lambda pipeline, frame: answered.append(frame), 2)
    fleet.hub.set_route(2, 1, [identity.device_id])
    eve = await join(fleet, identity)
    for frame in FRAMES:
        if not is_open(fleet, eve):
            eve = await join(fleet, identity)
        answered.clear()
        with contextlib.suppress(ConnectionClosed):
            await eve.data.send(frame)
            await eve.data.send(own)
        async with asyncio.timeout(PATIENCE_S):
            while is_open(fleet, eve) and not answered:
                await asyncio.sleep(0.001)
    assert scene.state() == before
    await eve.close()


def is_open(fleet: Fleet, agent: ScriptedAgent) -> bool:
    return any(view.device_id == agent.device_id for view in fleet.hub.agents())


async def test_a_revoked_pc_says_nothing_more_that_counts_on_links_it_keeps_open(scene: Scene) -> None:
    fleet, ann = scene.fleet, scene.ann
    answer = encode(Frame(FrameType.TOKENS, PIPELINE, EPOCH, 7, 7, 1, b"", np.zeros(1, np.int32)))
    await ann.data.send(answer)
    async with asyncio.timeout(PATIENCE_S):
        while not scene.frames:
            await asyncio.sleep(0.001)
    # Reads nothing any more, so it does not answer the closing either.
    for link in (ann.control, ann.data):
        link.transport.pause_reading()
    server_links = [link for links in fleet.hub._reception._links.values() for link in links]
    for server_link in server_links:
        server_link.close_timeout = 10 * PATIENCE_S  # they stay open for so long, unless they are cut
    fleet.set_state(ann.device_id, "banned")
    fleet.hub.disconnect(ann.device_id, CloseCode.NOT_APPROVED, "revoked", "An administrator removed this PC.")
    events = len(fleet.events)
    for _ in range(50):
        with contextlib.suppress(ConnectionClosed, OSError):
            await ann.data.send(answer)
            await ann.say(StageFailed(PIPELINE, EPOCH, 0, "died", "It ended."))
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(link.wait_closed() for link in server_links))
    for link in (ann.control, ann.data):
        link.transport.abort()
    assert len(server_links) == 2
    assert len(scene.frames) == 1
    assert len(fleet.events) == events


async def test_a_pc_that_is_revoked_between_coming_in_and_saying_hello_is_cut_off(scene: Scene) -> None:
    fleet = scene.fleet
    eve = fleet.enrol("eve")
    link = await fleet.dialler(eve).dial(CONTROL_PATH)
    async with asyncio.timeout(PATIENCE_S):
        while eve.device_id not in fleet.hub._reception._links:
            await asyncio.sleep(0.001)
    fleet.set_state(eve.device_id, "banned")
    fleet.hub.disconnect(eve.device_id, CloseCode.NOT_APPROVED, "revoked", "An administrator removed this PC.")
    with contextlib.suppress(ConnectionClosed):
        await link.send(encode_message(make_hello()))
    with pytest.raises(ConnectionClosed) as closed:
        await link.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == CloseCode.NOT_APPROVED
    assert not any(agent.device_id == eve.device_id for agent in fleet.hub.agents())


async def test_a_revocation_during_the_look_up_is_not_missed(scene: Scene) -> None:
    fleet = scene.fleet
    doorkeeper, eve = fleet.hub._reception._doorkeeper, fleet.enrol("eve")
    look_up, looking, go_on = doorkeeper._authorise, asyncio.Event(), asyncio.Event()

    async def slow(certificate: bytes | None) -> Any:
        record = look_up(certificate)
        looking.set()
        await go_on.wait()
        return record

    doorkeeper._authorise = slow
    link = await fleet.dialler(eve).dial(CONTROL_PATH)
    await looking.wait()
    fleet.set_state(eve.device_id, "banned")
    fleet.hub.disconnect(eve.device_id, CloseCode.NOT_APPROVED, "revoked", "An administrator removed this PC.")
    go_on.set()
    with pytest.raises(ConnectionClosed) as closed:
        await link.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == CloseCode.NOT_APPROVED
