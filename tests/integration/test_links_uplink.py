"""A stage's own link to the console: from a real child process, and everything a stranger may try on the port."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest

from agent.link.closing import CloseCode
from agent.link.credentials import client_tls
from agent.link.frames import HEADER, MAX_PAYLOAD_BYTES, Frame, FrameType, decode, encode
from agent.link.identity import Identity, credentials_of
from agent.link.keystore import Keystore
from agent.link.messages import STAGE_PROTOCOL
from agent.link.stage_messages import AdvanceEpoch, StageReady
from agent.link.wire import Wire
from agent.stage.process import StageProcess
from agent.stage.types import Credentials, Epoch, Nack, PipelineId, StepTable, UplinkSpec
from console.fleet.events import AgentLost
from console.registry.authority import Authority
from tests.support.fleet import Fleet, ScriptedAgent, join, make_load, make_report, make_step
from tests.support.patience import PATIENCE_S
from tests.support.stage import make_row, make_spec
from tests.support.stage import make_step as make_toy_step
from tests.support.toy_library import toy_library


class Answers:
    """What the coordinator's callback was given."""

    def __init__(self, fleet: Fleet) -> None:
        self.queue: asyncio.Queue[Frame] = asyncio.Queue()
        fleet.hub.set_frame_handler(lambda _, frame: self.queue.put_nowait(frame))

    async def next(self) -> Frame:
        async with asyncio.timeout(PATIENCE_S):
            return await self.queue.get()


@pytest.fixture
async def agents(fleet: Fleet) -> AsyncIterator[list[ScriptedAgent]]:
    """Two agents that hold stages 0 and 1 of pipeline 1 in epoch 1."""
    found = [await join(fleet, fleet.enrol(name)) for name in ("ann", "bob")]
    fleet.hub.set_route(1, 1, [agent.device_id for agent in found])
    yield found
    for agent in found:
        await agent.close()


def introduction(*, stage: int = 0, epoch: int = 1, pipeline: int = 1) -> bytes:
    return encode(Frame(FrameType.TICKET, pipeline, epoch, 0, 0, stage, b"", None))


def tokens(stage: int, step: int) -> bytes:
    return encode(Frame(FrameType.TOKENS, 1, 1, step, step, stage, b"\x90", np.array([42], np.int32)))


class Stage:
    """A stage's end of its link, whose every move the test makes."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._rest = b""

    @classmethod
    async def dial(cls, fleet: Fleet, identity: Identity | None, tls: ssl.SSLContext | None = None) -> Stage:
        context = tls or client_tls(credentials_of(identity))  # type: ignore[arg-type]  # one of both is given
        context.set_alpn_protocols([STAGE_PROTOCOL])
        address, name = f"127.0.0.1:{fleet.port}", fleet.authority.server_hostname
        return cls(await asyncio.to_thread(Wire.dial, address, context, name, 5.0))

    async def send(self, data: bytes) -> None:
        await asyncio.to_thread(self.wire.send, data)

    async def receive(self) -> Frame:
        while len(self._rest) < HEADER.size or len(self._rest) < _size(self._rest):
            data = await asyncio.to_thread(self.wire.receive, 5.0)
            if not data:
                raise EOFError
            self._rest += data
        size = _size(self._rest)
        frame, self._rest = self._rest[:size], self._rest[size:]
        return decode(frame)

    async def open(self, data: bytes) -> str:
        """Introduce the stage; returns the refusal's code, empty when it was accepted."""
        await self.send(data)
        answer = await self.receive()
        if answer.type is FrameType.TAKEN:
            return ""
        await self.ended()
        return msgspec.msgpack.decode(answer.table, type=Nack).code

    async def ended(self) -> None:
        """Read until the console closes the link."""
        try:
            while await asyncio.to_thread(self.wire.receive, 5.0):
                pass
        except ssl.SSLError:
            pass
        self.wire.close()


def _size(data: bytes) -> int:
    fields = HEADER.unpack_from(data)
    return int(HEADER.size + fields[-3] + fields[-2])


async def test_steps_and_answers_use_the_stages_own_links(fleet: Fleet, agents: list[ScriptedAgent]) -> None:
    answers = Answers(fleet)
    head, tail = [await Stage.dial(fleet, agent.identity) for agent in agents]
    assert [await head.open(introduction()), await tail.open(introduction(stage=1))] == ["", ""]
    for step in range(1, 20):
        fleet.hub.submit(1, make_step(stage=0, step=step))
        assert (await head.receive()).step == step
        await head.send(make_step(stage=1, step=step, tokens=1 + 900 * (step % 5 == 0)))
        assert (await tail.receive()).step == step
        await tail.send(tokens(1, step))
        assert (await answers.next()).step == step
    head.wire.close()
    tail.wire.close()


async def test_a_link_goes_on_with_its_stage_in_another_epoch(fleet: Fleet, agents: list[ScriptedAgent]) -> None:
    stage = await Stage.dial(fleet, agents[0].identity)
    assert await stage.open(introduction()) == ""
    fleet.hub.set_route(1, 2, [agents[1].device_id, agents[0].device_id])
    order = AdvanceEpoch(PipelineId(1), Epoch(1), Epoch(2), 1)
    advancing = asyncio.create_task(fleet.hub.advance(agents[0].device_id, order))
    assert await agents[0].hear() == order
    await agents[0].say(StageReady(PipelineId(1), Epoch(2), 1, make_report(make_load())))
    await advancing
    await agents[1].data.send(make_step(stage=1, epoch=2))
    assert (await stage.receive()).epoch == 2
    stage.wire.close()


async def test_a_standby_has_its_link_before_it_is_needed(
    fleet: Fleet, agents: list[ScriptedAgent], expected_logs: Any
) -> None:
    expected_logs("console.fleet.relay", "not_its_stage")
    cyd = await join(fleet, fleet.enrol("cyd"))
    fleet.hub.set_standby(1, cyd.device_id, 1, 1)
    assert await (await Stage.dial(fleet, cyd.identity)).open(introduction()) == "other_stage"
    stage = await Stage.dial(fleet, cyd.identity)
    assert await stage.open(introduction(stage=1)) == ""
    await stage.send(tokens(1, 7))
    fleet.hub.drop_standby(1, cyd.device_id)
    assert await (await Stage.dial(fleet, cyd.identity)).open(introduction(stage=1)) == "other_stage"
    assert fleet.hub.dropped_frames == {"not_its_stage": 1}
    stage.wire.close()
    await cyd.close()


async def test_a_stage_of_an_older_epoch_is_fed_by_its_agent(fleet: Fleet, agents: list[ScriptedAgent]) -> None:
    stage = await Stage.dial(fleet, agents[0].identity)
    assert await stage.open(introduction()) == ""
    fleet.hub.set_route(1, 2, [agent.device_id for agent in agents])
    fleet.hub.submit(1, make_step(stage=0, epoch=2))
    assert await agents[0].receive() == make_step(stage=0, epoch=2)
    stage.wire.close()


async def test_only_the_device_that_holds_a_stage_may_link_it(
    fleet: Fleet, agents: list[ScriptedAgent], tmp_path: Path
) -> None:
    head = agents[0].identity
    cases: dict[str, tuple[Identity, bytes, str]] = {
        "another's stage": (head, introduction(stage=1), "other_stage"),
        "old epoch": (head, introduction(epoch=0), "other_stage"),
        "next epoch": (head, introduction(epoch=2), "other_stage"),
        "no such pipeline": (head, introduction(pipeline=2), "other_stage"),
        "no agent connected": (fleet.enrol("cyd"), introduction(), "control_first"),
    }
    codes = {}
    for name, (identity, data, _) in cases.items():
        codes[name] = await (await Stage.dial(fleet, identity)).open(data)
    fleet.set_state(agents[0].device_id, "banned")
    codes["banned"] = await (await Stage.dial(fleet, head)).open(introduction())
    assert codes == {name: code for name, (_, _, code) in cases.items()} | {"banned": "banned"}


async def test_no_certificate_and_another_fleets_get_nowhere(
    fleet: Fleet, agents: list[ScriptedAgent], tmp_path: Path
) -> None:
    anonymous = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anonymous.load_verify_locations(cadata=fleet.authority.authorities_pem.decode())
    assert await (await Stage.dial(fleet, None, anonymous)).open(introduction()) == "no_certificate"
    other = Authority.open(tmp_path / "other", Keystore.files_only("other"))
    stranger = await Stage.dial(fleet, fleet.enrol("eve", authority=other))
    with pytest.raises((OSError, EOFError)):
        await stranger.open(introduction())
    stranger.wire.close()


def oversized() -> bytes:
    frame = bytearray(make_step(stage=0))
    frame[HEADER.size - 8 : HEADER.size - 4] = MAX_PAYLOAD_BYTES.to_bytes(4, "little")
    return bytes(frame[: HEADER.size])


async def test_a_bad_start_is_refused(fleet: Fleet, agents: list[ScriptedAgent], expected_logs: Any) -> None:
    expected_logs("console.fleet.uplinks", "Closed")
    starts = [make_step(stage=1, width=4), tokens(0, 1), oversized(), b"GET / HTTP/1.1\r\n\r\n" + b" " * HEADER.size]
    for start in starts:
        assert await (await Stage.dial(fleet, agents[0].identity)).open(start) == "bad_frame"
    hasty = await Stage.dial(fleet, agents[0].identity)
    assert await hasty.open(introduction() + make_step(stage=1)) == "bad_frame"


async def test_a_silent_stranger_is_closed(
    fleet: Fleet, agents: list[ScriptedAgent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.fleet.uplinks.INTRODUCTION_WAIT_S", 0.1)
    stage = await Stage.dial(fleet, agents[0].identity)
    await stage.send(introduction()[:20])
    await stage.ended()


async def test_a_stage_that_sends_garbage_costs_its_pc_the_session(
    fleet: Fleet, agents: list[ScriptedAgent], expected_logs: Any
) -> None:
    expected_logs("console.fleet.uplinks", "Closed")
    stage = await Stage.dial(fleet, agents[0].identity)
    assert await stage.open(introduction()) == ""
    await stage.send(b"x" * 200)
    await fleet.wait_for(lambda: isinstance(fleet.events[-1], AgentLost))
    await stage.ended()


@pytest.mark.parametrize("how", ["revoked", "agent gone"])
async def test_a_stages_link_ends_with_its_pcs_session(fleet: Fleet, agents: list[ScriptedAgent], how: str) -> None:
    stage = await Stage.dial(fleet, agents[0].identity)
    assert await stage.open(introduction()) == ""
    if how == "revoked":
        message = "An administrator did it."
        fleet.hub.disconnect(agents[0].device_id, CloseCode.NOT_APPROVED, "suspended", message)
    else:
        await agents[0].close()
    async with asyncio.timeout(PATIENCE_S):
        await stage.ended()


# A real child process


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    toy_library(folder)
    return folder


@pytest.fixture
def spec_of(fleet: Fleet, agents: list[ScriptedAgent], library: Path) -> Callable[..., Any]:
    """Describe a stage that runs the whole toy for `ann`: pipeline 7, epoch 2."""
    fleet.hub.set_route(7, 2, [agents[0].device_id])

    def make(**fields: Any) -> Any:
        uplink = UplinkSpec(
            [f"127.0.0.1:{fields.pop('port', fleet.port)}"], fleet.authority.server_hostname,
            credentials_of(agents[0].identity),
        )  # fmt: skip
        return make_spec(library, uplink=uplink, **fields)

    return make


async def test_a_child_links_itself_answers_there_and_ends_with_the_link(
    fleet: Fleet, agents: list[ScriptedAgent], spec_of: Callable[..., Any]
) -> None:
    answers, by_pipe = Answers(fleet), asyncio.Queue[bytes]()
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    child = await StageProcess.start(spec_of(), on_frame=by_pipe.put_nowait, on_exit=ended.set_result)
    try:
        fleet.hub.submit(7, make_toy_step([make_row(1, 0, 4)], np.arange(4)))
        frame = await answers.next()
        assert frame.type is FrameType.TOKENS
        assert len(msgspec.msgpack.decode(frame.table, type=StepTable).timings) == 1
        assert by_pipe.empty()
        shown = psutil.Process(child.pid)
        secret = agents[0].identity.passphrase.value
        assert secret not in " ".join([*shown.cmdline(), *shown.environ().values()])
        uplink = fleet.hub._sessions.uplink(agents[0].device_id, 7)
        assert uplink is not None
        uplink.close()
        async with asyncio.timeout(PATIENCE_S):
            assert "link to the console broke" in await ended
    finally:
        await child.close()


async def test_a_child_without_a_link_answers_through_its_agent(spec_of: Callable[..., Any]) -> None:
    by_pipe: asyncio.Queue[bytes] = asyncio.Queue()
    child = await StageProcess.start(spec_of(port=1), on_frame=by_pipe.put_nowait, on_exit=lambda cause: None)
    try:
        await child.send(make_toy_step([make_row(1, 0, 4)], np.arange(4)))
        async with asyncio.timeout(PATIENCE_S):
            assert decode(await by_pipe.get()).type is FrameType.TOKENS
    finally:
        await child.close()


def test_credentials_show_no_passphrase(tmp_path: Path) -> None:
    uplink = UplinkSpec(["127.0.0.1:1"], "console", Credentials("a.pem", "b.pem", "s3cret", b""))
    assert "s3cret" not in repr(make_spec(tmp_path, uplink=uplink))
