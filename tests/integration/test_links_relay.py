"""Frames through the hub over real TLS: order, routes, epochs, and readers that are slow or gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import numpy as np
import pytest

from agent.link.frames import Frame, FrameType, decode, encode
from agent.link.sockets import post
from agent.stage.types import Nack
from console.fleet.errors import NoRoute
from console.fleet.events import AgentLost
from tests.support.fleet import Fleet, ScriptedAgent, join, make_step, running_fleet
from tests.support.patience import PATIENCE_S


class Answers:
    """What the coordinator's callback was given."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[int, Frame]] = asyncio.Queue()

    def __call__(self, pipeline: int, frame: Frame) -> None:
        self.queue.put_nowait((pipeline, frame))

    async def next(self) -> Frame:
        async with asyncio.timeout(PATIENCE_S):
            return (await self.queue.get())[1]


@pytest.fixture
async def agents(fleet: Fleet) -> list[ScriptedAgent]:
    """Two agents that hold stages 0 and 1 of pipeline 1 in epoch 1."""
    found = [await join(fleet, fleet.enrol(name)) for name in ("ann", "bob")]
    fleet.hub.set_route(1, 1, [agent.device_id for agent in found])
    return found


@pytest.fixture
def answers(fleet: Fleet) -> Answers:
    answers = Answers()
    fleet.hub.set_frame_handler(answers)
    return answers


def make_tokens(*, stage: int = 1, epoch: int = 1, step: int = 7) -> bytes:
    return encode(Frame(FrameType.TOKENS, 1, epoch, step, 9, stage, b"\x90", np.array([42], np.int32)))


async def test_a_step_goes_through_every_stage_and_its_tokens_come_back(
    fleet: Fleet, agents: list[ScriptedAgent], answers: Answers
) -> None:
    head, tail = agents
    fleet.hub.submit(1, make_step(stage=0))
    assert await head.receive() == make_step(stage=0)
    await head.data.send(make_step(stage=1, tokens=8))
    assert await tail.receive() == make_step(stage=1, tokens=8)
    await tail.data.send(make_tokens())
    frame = await answers.next()
    assert frame.type is FrameType.TOKENS
    assert frame.tensor is not None
    assert frame.tensor.tolist() == [42]


async def test_frames_keep_their_order_whatever_their_size(fleet: Fleet, agents: list[ScriptedAgent]) -> None:
    head, tail = agents
    sent = [make_step(step=number, tokens=1 + 900 * (number % 5 == 0)) for number in range(40)]
    for data in sent:
        post(head.data, data)
    assert [await tail.receive() for _ in sent] == sent


async def test_frames_of_the_wrong_sender_or_epoch_go_nowhere(
    fleet: Fleet, agents: list[ScriptedAgent], answers: Answers, expected_logs: object
) -> None:
    expected_logs("console.fleet.relay", "not_its_stage")  # type: ignore[operator]  # a fixture's callable
    head, tail = agents
    await tail.data.send(make_step(stage=1))  # stage 1 cannot speak for stage 0
    await tail.data.send(make_step(stage=2))  # there is no stage 2
    await head.data.send(make_step(stage=0))  # nobody but the console feeds stage 0
    await head.data.send(make_tokens(stage=1))  # only the tail answers for the tail
    await head.data.send(make_tokens(stage=0))  # only the tail has tokens
    await head.data.send(make_step(stage=1, epoch=0))  # old epoch
    await tail.data.send(make_tokens(epoch=2))  # future epoch
    await head.data.send(make_step(stage=1, step=99))
    await tail.data.send(make_tokens(step=99))
    assert decode(await tail.receive()).step == 99
    assert (await answers.next()).step == 99
    assert fleet.hub.dropped_frames == {"not_its_stage": 5, "stale": 2}


async def test_a_nack_of_any_stage_reaches_the_coordinator(
    fleet: Fleet, agents: list[ScriptedAgent], answers: Answers
) -> None:
    table = msgspec.msgpack.encode(Nack(0, "engine", "The inference failed."))
    await agents[0].data.send(encode(Frame(FrameType.NACK, 1, 1, 7, 9, 0, table, None)))
    assert (await answers.next()).table == table


@pytest.mark.parametrize("lost", [0, 1])
async def test_a_stage_that_is_gone_answers_with_a_nack(
    fleet: Fleet, agents: list[ScriptedAgent], answers: Answers, lost: int
) -> None:
    await agents[lost].close()
    await fleet.wait_for(lambda: isinstance(fleet.events[-1], AgentLost))
    if lost == 0:
        fleet.hub.submit(1, make_step(stage=0))
        assert answers.queue.empty()  # never inside the call to submit
    else:
        await agents[0].data.send(make_step(stage=1))
    frame = await answers.next()
    nack = msgspec.msgpack.decode(frame.table, type=Nack)
    assert (frame.type, frame.step, frame.sequence, frame.stage) == (FrameType.NACK, 7, 9, lost)
    assert (nack.stage, nack.code) == (lost, "gone")


async def test_without_a_route_nothing_can_be_submitted(fleet: Fleet, agents: list[ScriptedAgent]) -> None:
    fleet.hub.clear_route(1)
    with pytest.raises(NoRoute):
        fleet.hub.submit(1, make_step(stage=0))


async def test_a_pipeline_may_have_a_handler_of_its_own(fleet: Fleet, agents: list[ScriptedAgent]) -> None:
    every, own = Answers(), Answers()
    fleet.hub.set_frame_handler(every)
    fleet.hub.set_frame_handler(own, 1)
    await agents[1].data.send(make_tokens())
    assert (await own.next()).type is FrameType.TOKENS
    assert every.queue.empty()


async def test_a_reader_that_stalls_is_cut_off_and_holds_up_nobody_else(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, max_unsent_bytes=8 << 20) as fleet:
        head, slow, other = [await join(fleet, fleet.enrol(name)) for name in ("ann", "bob", "cyd")]
        fleet.hub.set_route(1, 1, [head.device_id, slow.device_id])
        fleet.hub.set_route(2, 1, [head.device_id, other.device_id])
        answers = Answers()
        fleet.hub.set_frame_handler(answers)
        slow.data.transport.pause_reading()
        big = make_step(stage=1, tokens=400)
        while answers.queue.empty():
            await head.data.send(big)
            await head.data.send(make_step(stage=1, pipeline=2))
            assert await other.receive() == make_step(stage=1, pipeline=2)
        assert msgspec.msgpack.decode((await answers.next()).table, type=Nack).code == "gone"
        assert fleet.events[-1] == AgentLost(slow.device_id, "it reads its data link too slowly")
        assert len(fleet.hub.agents()) == 2
        slow.data.transport.abort()
