"""The relay's decisions, with links that only remember what they were given."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.connection import Connection

from agent.link.frames import Frame, FrameError, FrameType, encode
from agent.link.sockets import Unsendable
from agent.stage.types import Nack
from console.fleet import relay as relay_module
from console.fleet.errors import NoRoute
from console.fleet.relay import LOG_EVERY, Relay

DEVICES = ["a", "b", "c"]


class Links:
    """One remembered link per device; `gone` has none, `full` takes nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.gone: set[str] = set()
        self.full: set[str] = set()
        self.stalled: list[str] = []
        monkeypatch.setattr(relay_module, "post", self.post)

    def find(self, device: str) -> Connection | None:
        return None if device in self.gone else cast("Connection", device)

    def post(self, link: Any, data: bytes, limit: int) -> None:
        if link in self.full:
            raise Unsendable(stalled=True)
        self.sent.append((link, data))


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> Links:
    return Links(monkeypatch)


@pytest.fixture
def answers() -> list[Frame]:
    return []


@pytest.fixture
def relay(links: Links, answers: list[Frame]) -> Relay:
    relay = Relay(links.find, lambda device, pipeline: None, links.stalled.append)
    relay.set_route(1, 5, DEVICES)
    relay.set_handler(lambda pipeline, frame: answers.append(frame))
    return relay


def make_frame(type_: FrameType = FrameType.STEP, **fields: int) -> bytes:
    values = {"pipeline": 1, "epoch": 5, "step": 7, "sequence": 8, "stage": 1} | fields
    return encode(Frame(type_, table=b"\x90", tensor=None, **values))


def nack_of(frame: Frame) -> Nack:
    return msgspec.msgpack.decode(frame.table, type=Nack)


def test_each_stage_feeds_the_next(relay: Relay, links: Links) -> None:
    first = make_frame(stage=0)
    relay.submit(1, first)
    for stage in (1, 2):
        relay.take(DEVICES[stage - 1], make_frame(stage=stage))
    assert links.sent == [("a", first), ("b", make_frame(stage=1)), ("c", make_frame(stage=2))]


@given(
    st.sampled_from([FrameType.STEP, FrameType.TOKENS, FrameType.NACK]),
    st.sampled_from([*DEVICES, "stranger"]),
    st.integers(0, 4),
    st.integers(4, 6),
    st.integers(0, 2),
)
def test_only_the_holder_of_the_stage_before_gets_through(
    kind: FrameType, device: str, stage: int, epoch: int, pipeline: int
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        links, answers = Links(monkeypatch), list[Frame]()
        relay = Relay(links.find, lambda device, pipeline: None, links.stalled.append)
        relay.set_route(1, 5, DEVICES)
        relay.set_handler(lambda pipeline, frame: answers.append(frame))
        monkeypatch.setattr(relay_module.log, "log", lambda *arguments: None)
        relay.take(device, make_frame(kind, stage=stage, epoch=epoch, pipeline=pipeline))
        current = (pipeline, epoch) == (1, 5)
        feeds = current and kind is FrameType.STEP and 1 <= stage <= 2 and DEVICES[stage - 1] == device
        holds = current and stage <= 2 and DEVICES[min(stage, 2)] == device
        replies = holds and (kind is FrameType.NACK or (kind is FrameType.TOKENS and stage == 2))
        assert len(links.sent) == feeds
        assert len(answers) == replies
        assert sum(relay.dropped.values()) == (not feeds and not replies)


@pytest.mark.parametrize("kind", [FrameType.REPORT, FrameType.FETCH, FrameType.CHUNK])
def test_other_frames_do_not_belong_on_a_data_link(relay: Relay, kind: FrameType) -> None:
    with pytest.raises(FrameError, match=kind.name):
        relay.take("a", make_frame(kind))


def test_a_damaged_answer_is_refused(relay: Relay) -> None:
    data = bytearray(make_frame(FrameType.TOKENS, stage=2))
    data[-1] ^= 1
    with pytest.raises(FrameError, match="CRC"):
        relay.take("c", bytes(data))


async def test_a_slow_reader_is_reported_and_answered_for(relay: Relay, links: Links, answers: list[Frame]) -> None:
    links.full.add("b")
    relay.take("a", make_frame(stage=1))
    assert links.stalled == ["b"]
    assert answers == []
    await asyncio.sleep(0)
    assert (nack_of(answers[0]).stage, nack_of(answers[0]).code) == (1, "gone")


async def test_a_nack_for_a_route_that_is_gone_meanwhile_is_not_delivered(
    relay: Relay, links: Links, answers: list[Frame]
) -> None:
    links.gone.add("a")
    relay.submit(1, make_frame(stage=0))
    relay.set_route(1, 6, DEVICES)
    await asyncio.sleep(0)
    assert answers == []


def test_a_cleared_pipeline_takes_nothing(relay: Relay, links: Links) -> None:
    relay.clear_route(1)
    with pytest.raises(NoRoute, match="deploy"):
        relay.submit(1, make_frame(stage=0))
    relay.take("a", make_frame(stage=1))
    assert links.sent == []
    assert relay.dropped == {"stale": 1}


def test_a_flood_is_logged_once_per_thousand(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[object] = []
    monkeypatch.setattr(relay_module.log, "log", lambda *arguments: lines.append(arguments))
    for _ in range(2 * LOG_EVERY):
        relay.take("c", make_frame(stage=1))
    assert len(lines) == 2
    assert relay.dropped == {"not_its_stage": 2 * LOG_EVERY}


def test_who_could_take_a_stage_over_is_found_by_its_stage_whatever_epoch_it_was_loaded_in(relay: Relay) -> None:
    relay.set_standby(1, "d", 4, 1)
    relay.set_standby(1, "e", 5, 2)
    relay.set_route(2, 1, ["b", "f"])
    relay.set_standby(2, "g", 1, 1)
    assert relay.reserves("b") == {1: ["d"], 2: []}
    assert relay.reserves("f") == {2: ["g"]}
    assert relay.reserves("d") == {}, "it serves nothing"
    relay.drop_standby(1, "d")
    relay.clear_route(2)
    assert relay.reserves("b") == {1: []}


def test_bytes_are_counted_where_they_went_and_stay_counted_while_the_stages_are_as_many(relay: Relay) -> None:
    frame = make_frame(stage=0)
    relay.submit(1, frame)
    relay.take("a", make_frame(stage=1))
    relay.take("c", make_frame(FrameType.TOKENS, stage=2))
    size = len(frame)
    assert relay.bytes_of(1) == ([size, size, 0], [size, 0, size])
    relay.set_route(1, 6, ["d", "b", "c"])
    assert relay.bytes_of(1) == ([size, size, 0], [size, 0, size])
    relay.set_route(1, 7, ["d", "c"])
    assert relay.bytes_of(1) == ([0, 0], [0, 0])
    relay.clear_route(1)
    assert relay.bytes_of(1) == ([], [])
