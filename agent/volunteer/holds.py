"""Which reasons hold this PC now, from what is known, ordered and ruled. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from agent.volunteer.facts import Facts
from agent.volunteer.hysteresis import Signal, judge
from agent.volunteer.policy import Policy
from agent.volunteer.reasons import SEVERITY, Reason, ReasonCode
from agent.volunteer.rules import WATCHES, look, missing
from agent.volunteer.schedule import is_open, minute_of_week, opens_in_min
from agent.volunteer.states import Situation, VolunteerState

_LINK_REASONS = {
    "down": ReasonCode.LINK_DOWN,
    "unenrolled": ReasonCode.NOT_APPROVED,
    "pending": ReasonCode.NOT_APPROVED,
    "suspended": ReasonCode.SUSPENDED_BY_ADMIN,
    "revoked": ReasonCode.REVOKED,
    "certificate": ReasonCode.CERTIFICATE,
    "clock": ReasonCode.CLOCK,
}


def judge_signals(state: VolunteerState, facts: Facts, policy: Policy, now_s: float) -> dict[ReasonCode, Signal]:
    """Take the facts into account, reason by reason."""
    return {
        sighting.code: judge(
            state.signals.get(sighting.code, Signal()),
            WATCHES[sighting.code],
            now_s,
            busy=sighting.busy,
            calm=sighting.calm,
            known=sighting.known,
            source=sighting.source,
            detail=sighting.detail,
        )
        for sighting in look(facts, policy)
    }


def find_reasons(
    state: VolunteerState, facts: Facts, policy: Policy, situation: Situation, needed_s: float
) -> tuple[Reason, ...]:
    """List the reasons, the most severe first, then the oldest. `needed_s` without input make the owner away."""
    since_s = {reason.code: reason.since_s for reason in state.reasons}
    found = (
        *_owner_reasons(state, facts, policy, needed_s),
        *_signal_reasons(state),
        *_time_reasons(state, facts, policy),
        *_rule_reasons(policy, situation, state.now_s),
    )
    dated = (msgspec.structs.replace(reason, since_s=since_s.get(reason.code, reason.since_s)) for reason in found)
    return tuple(sorted(dated, key=lambda reason: (-reason.severity, reason.since_s)))


def _owner_reasons(state: VolunteerState, facts: Facts, policy: Policy, needed_s: float) -> Iterator[Reason]:
    presence, now_s = state.presence, state.now_s
    if presence.since_s is not None:
        yield _reason(
            ReasonCode.USER_INPUT, presence.since_s, clears_s=presence.input_s + needed_s, source=presence.source
        )
    unknown = ([] if presence.known else ["presence"]) + ([] if policy.unattended else missing(facts))
    if unknown:
        yield _reason(ReasonCode.PROBE_UNKNOWN, now_s, detail=", ".join(unknown))
    if state.pause_until_s is not None:
        clears_s = state.pause_until_s if math.isfinite(state.pause_until_s) else None
        yield _reason(ReasonCode.PAUSED_BY_USER, now_s, clears_s=clears_s)
    if state.released_until_s > now_s:
        yield _reason(ReasonCode.RELEASED_BY_USER, now_s, clears_s=state.released_until_s)


def _signal_reasons(state: VolunteerState) -> Iterator[Reason]:
    for code, signal in state.signals.items():
        if signal.on_since_s is not None:
            clears_s = signal.clears_s(WATCHES[code])
            yield _reason(code, signal.on_since_s, clears_s=clears_s, source=signal.source, detail=signal.detail)


def _time_reasons(state: VolunteerState, facts: Facts, policy: Policy) -> Iterator[Reason]:
    now_s = state.now_s
    if state.startup_until_s > now_s:
        yield _reason(ReasonCode.STARTUP_DELAY, now_s, clears_s=state.startup_until_s)
    if state.yields.until_s > now_s:
        yield _reason(ReasonCode.COOL_DOWN, now_s, clears_s=state.yields.until_s)
    if state.faults.until_s > now_s:
        yield _reason(ReasonCode.FAULT_BACKOFF, now_s, clears_s=state.faults.until_s, detail=state.fault_detail)
    minute = minute_of_week(facts.unix_s, facts.utc_offset_s)
    if not is_open(policy.schedule, minute):
        wait_min = opens_in_min(policy.schedule, minute)
        yield _reason(ReasonCode.SCHEDULE, now_s, clears_s=None if wait_min is None else now_s + wait_min * 60)


def _rule_reasons(policy: Policy, situation: Situation, now_s: float) -> Iterator[Reason]:
    holds = {
        ReasonCode.DISABLED: not policy.enabled,
        ReasonCode.CONSENT: policy.consent_needed and situation.unanswered,
        ReasonCode.PAUSED_BY_ADMIN: policy.paused,
        ReasonCode.DRAIN: policy.drain,
        ReasonCode.SETTINGS: situation.settings_unreadable,
        ReasonCode.DEVICE_LOST: situation.device_lost,
        ReasonCode.UPDATING: situation.updating,
        ReasonCode.SUSPENDING: situation.suspending,
        ReasonCode.SHUTTING_DOWN: situation.shutting_down,
    }
    link = _LINK_REASONS.get(situation.link)
    if link is not None:
        holds[link] = True
    for code, so in holds.items():
        if so:
            yield _reason(code, now_s)


def _reason(
    code: ReasonCode, since_s: float, *, clears_s: float | None = None, source: str = "", detail: str = ""
) -> Reason:
    return Reason(code, SEVERITY[code], since_s, clears_s, source, detail)
