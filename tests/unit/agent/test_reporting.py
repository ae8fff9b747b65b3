from __future__ import annotations

import math
from typing import Any, Literal

import msgspec
import pytest

from agent.control.status import Contribution, Countdown
from agent.link.messages import Device, Heartbeat
from agent.link.stage_messages import StageProgress
from agent.reporting import Parts, policy_rows, status_of
from agent.seen import ConsoleView
from agent.settings import AgentState, LoadedStage
from agent.stage.types import Epoch, PipelineId
from agent.volunteer.policy import ROWS, Wishes, merge
from agent.volunteer.reasons import Reason, ReasonCode, Severity
from agent.volunteer.states import Phase, VolunteerState, initial_state
from tests.support.fleet import make_hello, make_load

AHEAD_S = 1000.0
PROGRESS: list[tuple[int, Literal["fetch", "load"], int, int]] = [
    (2, "fetch", 1, 2), (3, "fetch", 0, 0), (4, "fetch", 2, 2), (5, "load", 0, 1),
]  # fmt: skip


def make_state(phase: Phase = Phase.HELD, *codes: ReasonCode, **fields: Any) -> VolunteerState:
    reasons = tuple(Reason(code, Severity.PAUSE, since_s=5.0, detail="a secret name") for code in codes)
    state = initial_state(10.0, startup_delay_s=0.0, jitter_s=0.0)
    return msgspec.structs.replace(state, phase=phase, reasons=reasons, **fields)


def make_parts(state: VolunteerState | None = None, **fields: Any) -> Parts:
    values: dict[str, Any] = {
        "state": state or make_state(), "merged": merge(Wishes(), Wishes()), "revision": 0,
        "agent": AgentState("connected", 1, 0.0, device_id="d1", console_url="wss://c"), "devices": [], "loading": [],
        "contribution": Contribution(), "unix_ahead_s": AHEAD_S,
    }  # fmt: skip
    return Parts(**(values | fields))


@pytest.mark.parametrize(
    ("state", "icon"),
    [
        (make_state(Phase.SERVING), "contributing"),
        (make_state(Phase.AVAILABLE), "away"),
        (make_state(Phase.HELD, ReasonCode.USER_INPUT), "waiting"),
        (make_state(Phase.HELD, ReasonCode.PAUSED_BY_USER), "paused"),
        (make_state(Phase.HELD, ReasonCode.LINK_DOWN), "offline"),
        (make_state(Phase.UNENROLLED, ReasonCode.NOT_APPROVED), "attention"),
        (make_state(Phase.HELD, ReasonCode.SETTINGS), "attention"),
    ],
)
def test_each_state_has_its_icon(state: VolunteerState, icon: str) -> None:
    assert status_of(make_parts(state)).icon == icon


def test_times_are_told_in_unix_time() -> None:
    status = status_of(make_parts(make_state(Phase.HELD, ReasonCode.USER_INPUT, starts_s=310.0)))
    assert status.now_s == 10.0 + AHEAD_S
    assert status.reasons[0].since_s == 5.0 + AHEAD_S
    assert status.countdown == Countdown("starts", 310.0 + AHEAD_S)
    paused = status_of(make_parts(make_state(Phase.HELD, ReasonCode.PAUSED_BY_USER, pause_until_s=70.0)))
    assert (paused.countdown, paused.pause_until_s) == (Countdown("resumes", 1070.0), 1070.0)
    forever = status_of(make_parts(make_state(Phase.HELD, ReasonCode.PAUSED_BY_USER, pause_until_s=math.inf)))
    assert (forever.countdown, forever.pause_until_s) == (None, math.inf)
    releasing = status_of(make_parts(make_state(Phase.PAUSED, ReasonCode.USER_INPUT, releases_s=15.0)))
    assert releasing.countdown == Countdown("releases", 15.0 + AHEAD_S)


def test_what_the_console_sees_holds_codes_and_no_details() -> None:
    state, told = make_state(Phase.HELD, ReasonCode.EXCLUSIVE_APP), ConsoleView(make_hello())
    told.note(Heartbeat(0, "held", state.codes()))
    seen = status_of(make_parts(state, told=told)).seen_by_console
    assert (seen["state"], seen["reasons"]) == ("held", "exclusive_app")
    assert "secret" not in str(seen)
    assert status_of(make_parts(agent=AgentState("stopped", 0, 0.0))).seen_by_console == {}


def test_every_row_of_the_policy_is_shown_with_who_set_it() -> None:
    merged = merge(Wishes(idle_start_s=600.0, fullscreen=False), Wishes(idle_start_s=900.0))
    rows = {row.field: row for row in policy_rows(merged)}
    assert list(rows) == list(ROWS)
    idle = rows["idle_start_s"]
    assert (idle.value, idle.set_by, idle.asked) == (900.0, "employee", {"admin": 600.0, "employee": 900.0})
    assert (idle.minimum, idle.maximum) == (0.0, 86_400.0)
    assert rows["fullscreen"].locked
    assert not idle.locked


def test_devices_and_stages_are_shown() -> None:
    agent = AgentState("connected", 1, 0.0, device_id="d", stages=[LoadedStage(1, 0, 0, 4, "paged", "CPU")])
    loading = [
        (make_load(pipeline=pipeline), StageProgress(PipelineId(pipeline), Epoch(1), 0, phase, done, total))
        for pipeline, phase, done, total in PROGRESS
    ]
    status = status_of(
        make_parts(
            agent=agent,
            merged=merge(Wishes(), Wishes(devices_off=frozenset({"GPU.0"}))),
            devices=[Device("CPU", "A processor", 1 << 30, []), Device("GPU.0", "Graphics", 1 << 30, [])],
            loading=loading,
        )
    )
    assert [(device.name, device.on, device.set_by) for device in status.devices] == [
        ("CPU", True, "built-in"), ("GPU.0", False, "employee"),
    ]  # fmt: skip
    assert [(stage.pipeline, stage.done) for stage in status.stages] == [
        (1, 1.0), (2, 0.5), (3, 0.0), (4, 0.99), (5, 0.0),
    ]  # fmt: skip
