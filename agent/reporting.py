"""What tray and command line are shown: the agent's parts put together into one Status. Pure; time is a number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from agent.control.status import (
    Contribution,
    Countdown,
    DeviceShown,
    Icon,
    LinkPhase,
    PolicyRow,
    ReasonShown,
    Severity,
    StageShown,
    Status,
)
from agent.link.messages import Device
from agent.link.stage_messages import LoadStage, StageProgress
from agent.seen import ConsoleView
from agent.settings import AgentState
from agent.volunteer.explain import explain
from agent.volunteer.policy import ROWS, Merged, allows_device
from agent.volunteer.reasons import ReasonCode
from agent.volunteer.reasons import Severity as Level
from agent.volunteer.states import OFFERING, Phase, VolunteerState
from agent.volunteer.wishes import to_plain

_SEVERITIES: dict[Level, Severity] = {Level.PAUSE: "pause", Level.RELEASE: "release", Level.STOP: "stop"}
_ATTENTION = frozenset({Phase.UNENROLLED, Phase.PENDING, Phase.FAULT})
_OFFLINE = frozenset({ReasonCode.LINK_DOWN, ReasonCode.CERTIFICATE, ReasonCode.CLOCK})
_NEEDS_A_PERSON = frozenset({ReasonCode.SETTINGS, ReasonCode.CONSENT, ReasonCode.REVOKED, ReasonCode.DEVICE_LOST})


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What a Status is made of. `unix_ahead_s` turns a time of the volunteer's clock into Unix time."""

    state: VolunteerState
    merged: Merged
    revision: int
    agent: AgentState
    devices: Sequence[Device]
    loading: Sequence[tuple[LoadStage, StageProgress]]
    contribution: Contribution
    unix_ahead_s: float
    fleet_name: str = ""
    device_code: str = ""
    told: ConsoleView | None = None
    always: bool = False
    update: str = ""


def status_of(parts: Parts) -> Status:
    """Put a Status together."""
    state, policy, agent = parts.state, parts.merged.policy, parts.agent
    pause_s = state.pause_until_s
    codes = {reason.code for reason in state.reasons}
    return Status(
        now_s=state.now_s + parts.unix_ahead_s,
        phase=state.phase.value,
        icon=_icon(state, codes),
        headline=explain(state).headline,
        reasons=_reasons(parts),
        countdown=_countdown(parts),
        link=_link(agent),
        link_message=agent.message,
        console_url=agent.console_url,
        device_id=agent.device_id,
        fleet_name=parts.fleet_name,
        device_code=parts.device_code,
        devices=[_device(device, parts.merged) for device in parts.devices],
        stages=[*_stages(agent), *(_loading(*load) for load in parts.loading)],
        contribution=parts.contribution,
        policy=policy_rows(parts.merged),
        policy_revision=parts.revision,
        pause_until_s=None if pause_s is None else pause_s + parts.unix_ahead_s,
        may_contribute_now=policy.contribute_now and state.phase in (Phase.HELD, Phase.SETTLING),
        may_quit=policy.quit_allowed,
        seen_by_console={} if parts.told is None else parts.told.seen(),
        volunteer="always" if parts.always else "away",
        update=parts.update,
    )


def policy_rows(merged: Merged) -> list[PolicyRow]:
    """List every row of the policy: what holds, who set it, what was asked for."""
    rows = []
    for name, row in ROWS.items():
        asked = merged.asked[name]
        said = {"admin": to_plain(name, asked.admin), "employee": to_plain(name, asked.employee)}
        bounded = row.kind in ("number", "seconds", "bytes", "percent")
        rows.append(
            PolicyRow(
                field=name,
                kind=row.kind,
                value=to_plain(name, getattr(merged.policy, name)),
                set_by=merged.set_by[name],
                asked={"admin": said["admin"], "employee": said["employee"]},
                choices=["CPU", "GPU", "NPU"] if name == "devices" else [],
                minimum=row.low if bounded else None,
                maximum=row.high if bounded else None,
                # An administrator's switch is as tight as a switch can be, or looser than the owner's own anyway.
                locked=row.kind == "switch" and merged.set_by[name] == "admin",
            )
        )
    return rows


def _icon(state: VolunteerState, codes: set[ReasonCode]) -> Icon:
    if state.phase in _ATTENTION or codes & _NEEDS_A_PERSON:
        return "attention"
    if codes & _OFFLINE:
        return "offline"
    if ReasonCode.PAUSED_BY_USER in codes:
        return "paused"
    if state.phase in (Phase.LOADING, Phase.SERVING):
        return "contributing"
    return "away" if state.phase in OFFERING else "waiting"


def _reasons(parts: Parts) -> list[ReasonShown]:
    state = parts.state
    lines = explain(state).lines
    return [
        ReasonShown(
            code=reason.code.value,
            severity=_SEVERITIES[reason.severity],
            text=line.text,
            since_s=reason.since_s + parts.unix_ahead_s,
            clears_in_s=line.clears_in_s,
        )
        for reason, line in zip(state.reasons, lines, strict=True)
    ]


def _countdown(parts: Parts) -> Countdown | None:
    state = parts.state
    if state.releases_s is not None:
        return Countdown("releases", state.releases_s + parts.unix_ahead_s)
    if state.pause_until_s is not None:
        if math.isinf(state.pause_until_s):
            return None
        return Countdown("resumes", state.pause_until_s + parts.unix_ahead_s)
    return None if state.starts_s is None else Countdown("starts", state.starts_s + parts.unix_ahead_s)


def _link(agent: AgentState) -> LinkPhase:
    return agent.link


def _device(device: Device, merged: Merged) -> DeviceShown:
    on = allows_device(merged.policy, device.name)
    row = "devices" if device.name.partition(".")[0] not in merged.policy.devices else "devices_off"
    return DeviceShown(device.name, device.full_name, device.memory_bytes, on, "built-in" if on else merged.set_by[row])


def _stages(agent: AgentState) -> list[StageShown]:
    return [
        StageShown(stage.pipeline, stage.stage, stage.first, stage.last, stage.engine, stage.device)
        for stage in agent.stages
    ]


def _loading(request: LoadStage, progress: StageProgress) -> StageShown:
    done = progress.done / progress.total if progress.phase == "fetch" and progress.total else 0.0
    return StageShown(
        request.pipeline, request.stage, request.first, request.last, request.engine, request.device, min(done, 0.99)
    )
