from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.link.messages import (
    FromAgent,
    FromConsole,
    Goodbye,
    Heartbeat,
    MessageError,
    Welcome,
    Yield,
    decode_from_agent,
    decode_from_console,
    encode_message,
)
from agent.link.stage_messages import (
    AdvanceEpoch,
    CutDirect,
    DirectRoute,
    DirectState,
    LoadStage,
    StageFailed,
    StageProgress,
    StageReady,
    UnloadStage,
)
from agent.stage.types import Epoch, PipelineId
from tests.support.fleet import make_hello, make_load, make_report

ONE, TWO = PipelineId(1), Epoch(2)
FROM_AGENT: list[FromAgent] = [
    make_hello(held_sha256=["a" * 64]),
    Heartbeat(5, "held", ["user_input"]),
    Yield([(ONE, TWO)], ["user_input", "cpu_busy"]),
    StageProgress(ONE, TWO, 0, "fetch", 1, 2),
    StageReady(ONE, TWO, 0, make_report(make_load())),
    DirectState(ONE, TWO, 1, up=False, reason="It cannot be reached."),
    StageFailed(ONE, TWO, 0, "memory", "It has too little memory."),
    Goodbye("stopping", "The agent was stopped."),
]
FROM_CONSOLE: list[FromConsole] = [
    Welcome("d1", 1.5, 2.0), make_load(direct=True), AdvanceEpoch(ONE, TWO, Epoch(3), 1), UnloadStage(ONE),
    DirectRoute(ONE, TWO, 1, "d2", ["10.0.0.5:8470"], b"ticket"), CutDirect(ONE),
    Goodbye("draining", "The console is restarting."),
]  # fmt: skip


def name_of(message: object) -> str:
    return type(message).__name__


@pytest.mark.parametrize("message", FROM_AGENT, ids=name_of)
def test_what_an_agent_says_arrives(message: FromAgent) -> None:
    assert decode_from_agent(encode_message(message)) == message


@pytest.mark.parametrize("message", FROM_CONSOLE, ids=name_of)
def test_what_the_console_says_arrives(message: FromConsole) -> None:
    assert decode_from_console(encode_message(message)) == message


@pytest.mark.parametrize("message", [m for m in FROM_CONSOLE if not isinstance(m, Goodbye)], ids=name_of)
def test_an_agent_cannot_speak_as_the_console(message: FromConsole) -> None:
    with pytest.raises(MessageError):
        decode_from_agent(encode_message(message))


@pytest.mark.parametrize("message", [m for m in FROM_AGENT if not isinstance(m, Goodbye)], ids=name_of)
def test_the_console_cannot_speak_as_an_agent(message: FromAgent) -> None:
    with pytest.raises(MessageError):
        decode_from_console(encode_message(message))


def test_fields_of_a_newer_version_are_ignored() -> None:
    fields = msgspec.msgpack.decode(encode_message(Heartbeat(5)))
    newer = msgspec.msgpack.encode(fields | {"temperature": 80})
    assert decode_from_agent(newer) == Heartbeat(5)


@pytest.mark.parametrize(
    ("field", "value"), [("first", "zero"), ("engine", "quick"), ("numerics", None), ("context_tokens", 1.5)]
)
def test_fields_of_the_wrong_type_are_refused(field: str, value: Any) -> None:
    fields = msgspec.msgpack.decode(encode_message(make_load())) | {field: value}
    with pytest.raises(MessageError, match=field):
        decode_from_console(msgspec.msgpack.encode(fields))


@pytest.mark.parametrize("field", LoadStage.__struct_fields__[: -len(LoadStage.__struct_defaults__)])
def test_a_load_without_a_field_is_refused(field: str) -> None:
    fields = msgspec.msgpack.decode(encode_message(make_load()))
    del fields[field]
    with pytest.raises(MessageError):
        decode_from_console(msgspec.msgpack.encode(fields))


@given(st.binary(max_size=100))
def test_noise_is_refused(noise: bytes) -> None:
    for decode in (decode_from_agent, decode_from_console):
        with pytest.raises(MessageError):
            decode(noise)
