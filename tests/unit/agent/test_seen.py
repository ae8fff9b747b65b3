"""agent.seen: nothing that the console is told of a PC is kept from its owner."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from agent.link.messages import (
    AskRelease,
    Device,
    FromAgent,
    Goodbye,
    Heartbeat,
    Hello,
    Holding,
    LayersFetched,
    LogLines,
    MarkKept,
    Measurements,
    PolicyKept,
    Resting,
    UpdateState,
    Yield,
)
from agent.link.stage_messages import DirectState, StageFailed, StageProgress, StageReady
from agent.seen import ConsoleView, SaysHowItIs
from agent.stage.speeds import Measurement, UnitSpeed
from agent.stage.types import Epoch, PipelineId
from tests.support.fleet import make_hello

DEVICE = Device("GPU", "A GPU", 4 << 30, ["stateful"], "1.2")
OTHER_HELLO: dict[str, Any] = {
    "protocol": 1, "version": "9.9", "host": "other", "os": "Other 1", "cores": 99, "memory_bytes": 1 << 30,
    "devices": [DEVICE], "openvino": "2030.1", "key_protection": "credential", "held_sha256": ["a" * 64],
    "mark": "a mark", "takes_policy": True, "advances": True, "tells_log": True, "state": "held",
    "reasons": ["user_input"], "platform": "linux-x86_64", "channel": "beta",
}  # fmt: skip
MEASURED = Measurement(
    library_digest="d", unit_sha256="u", layer_bytes=2 << 20, device="CPU", driver="", openvino="2026.4",
    numerics="exact", speeds=[UnitSpeed(engine="paged", fused=True, layer_ms=1.5, layer_ms_8=2.0)], at_s=1.0,
)  # fmt: skip
OTHER_DEVICE: dict[str, Any] = {
    "name": "NPU", "full_name": "An NPU", "memory_bytes": 2 << 30, "engines": ["paged"], "driver": "1.3",
}  # fmt: skip


def seen_after(*messages: FromAgent, **hello: Any) -> dict[str, str]:
    told = ConsoleView(make_hello(**hello))
    for message in messages:
        told.note(message)
    return told.seen()


@pytest.mark.parametrize("field", Hello.__struct_fields__)
def test_every_field_of_hello_is_seen(field: str) -> None:
    assert seen_after(**{field: OTHER_HELLO[field]}) != seen_after()


@pytest.mark.parametrize("field", Device.__struct_fields__)
def test_every_field_of_a_device_is_seen(field: str) -> None:
    other = msgspec.structs.replace(DEVICE, **{field: OTHER_DEVICE[field]})
    assert seen_after(devices=[other]) != seen_after(devices=[DEVICE])


@pytest.mark.parametrize(
    ("message", "seen"),
    [
        (Heartbeat(3 << 30), {"memory_free": "3.0 GiB"}),
        (Heartbeat(0, "held", ["locked"]), {"memory_free": "0.0 GiB", "state": "held", "reasons": "locked"}),
        (Yield([(PipelineId(1), Epoch(1))], ["heat", "disk"]), {"state": "held", "reasons": "heat, disk"}),
        (Resting([], 0.0), {}),
        (Holding(["192.0.2.7:8470"], added=["b", "c"]), {"addresses": "192.0.2.7:8470", "held_files": "2"}),
        (MarkKept("m"), {"mark": "m"}),
        (Measurements([MEASURED], 3 << 20, 1.0), {"measured": "CPU paged (exact): 1.50 ms per 2.0 MiB; 3.0 MiB/s"}),
        (PolicyKept(4), {"policy": "4"}),
        (LogLines(["a", "b"]), {"log": "2"}),
        (UpdateState("failed", "1.1.0", "It crashed."), {"update": "stable, failed, 1.1.0, It crashed."}),
        (PolicyKept(4, "old", "An older policy."), {"policy": "4: old, An older policy."}),
        (Goodbye("stopping", "The agent was stopped."), {}),
    ],
)
def test_what_is_said_after_hello_is_seen_too(message: FromAgent, seen: dict[str, str]) -> None:
    before, after = seen_after(), seen_after(message)
    assert {name: text for name, text in after.items() if text != before[name]} == seen


def test_every_message_says_how_the_pc_is_or_what_became_of_work() -> None:
    work = {LayersFetched, StageProgress, StageReady, StageFailed, DirectState, AskRelease, Goodbye}
    assert {*get_args(SaysHowItIs), *work, Hello} == set(get_args(FromAgent))


def test_the_usual_rest_is_seen_day_by_day() -> None:
    text = seen_after(Resting(list(range(56)), -12_600.0))["resting"]
    assert text.startswith("0 1 2 3 4 5 6 7 | 8 9")
    assert text.endswith("48 49 50 51 52 53 54 55 (UTC-3.5 h)")
    assert seen_after(Resting([1], 0.0), Resting([], 0.0))["resting"] == ""


def test_the_last_word_counts() -> None:
    away = Heartbeat(0, "available")
    assert seen_after(Yield([], ["locked"]), away)["state"] == "available"
    assert seen_after(away, Yield([], ["locked"]))["state"] == "held"
    came_and_went = [Holding([], added=["b", "c"]), Holding([], added=["c"], removed=["a", "b"])]
    assert seen_after(*came_and_went, held_sha256=["a", "z"])["held_files"] == "2"


def test_only_what_makes_a_difference_is_news() -> None:
    news: list[str] = []
    told = ConsoleView(make_hello(), lambda: news.append(told.seen()["state"]))
    for message in (
        Heartbeat(3 << 30), Heartbeat((3 << 30) + 1), Goodbye("stopping", "."), Yield([], ["locked"]),
        Heartbeat(3 << 30, "held", ["locked"]), PolicyKept(1), PolicyKept(1), Heartbeat(3 << 30),
    ):  # fmt: skip
        told.note(message)
    assert news == ["available", "held", "held", "available"]
