"""The volunteer machine: from one state to the next. Pure; `now_s` is the steady clock that also counts sleep.

Leaving takes one reason and no time. Coming back takes every probe's consent for its whole window, then a settling
time, and longer after each time the PC was given back in a hurry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from agent.volunteer import presence as presences
from agent.volunteer.backoff import after_event
from agent.volunteer.facts import Facts
from agent.volunteer.holds import find_reasons, judge_signals
from agent.volunteer.policy import Policy
from agent.volunteer.reasons import Reason, ReasonCode, Severity
from agent.volunteer.states import (
    ContributeNow,
    Order,
    OwnerSeen,
    Pause,
    Phase,
    Release,
    Resume,
    Situation,
    StageFault,
    VolunteerState,
)

GAP_S = 10.0
"""A longer time between two steps means the PC slept or stood still: what was known before is worth nothing."""
QUICK_START_S = 120.0
"""How long ContributeNow waits for the owner to leave."""
COOL_DOWNS_S = tuple(60.0 * minutes for minutes in (2, 4, 8, 16, 30))
YIELDS_ALLOWED, YIELD_WINDOW_S = 2, 600.0
"""The third yield within the window costs a cool-down, so that there is never a fourth."""
FAULT_WAITS_S = tuple(60.0 * minutes for minutes in (1, 2, 5, 15, 60))

_NO_YIELD = frozenset(
    {
        ReasonCode.LINK_DOWN,
        ReasonCode.CERTIFICATE,
        ReasonCode.CLOCK,
        ReasonCode.SUSPENDED_BY_ADMIN,
        ReasonCode.REVOKED,
        ReasonCode.FAULT_BACKOFF,
    }
)
"""Leaving for these alone is no yield: nobody wanted the PC back."""


def step(
    state: VolunteerState,
    facts: Facts,
    policy: Policy,
    situation: Situation,
    *,
    now_s: float,
    orders: Sequence[Order] = (),
) -> VolunteerState:
    """Take the next look. Never raises; a clock that goes backwards stands still.

    Call it at every change of a probe, at every order, and at least every 2 s (every 250 ms while serving).
    """
    now_s = max(now_s, state.now_s)
    slept = max(now_s - state.now_s, facts.suspend_gap_s.within(GAP_S) or 0.0) > GAP_S
    if slept:
        state = _wake(state, policy, now_s)
    for order in orders:
        state = _obey(state, order, policy, now_s)
    if state.pause_until_s is not None and state.pause_until_s <= now_s:
        state = msgspec.structs.replace(state, pause_until_s=None)
    presence = presences.observe(state.presence, facts, now_s, unattended=policy.unattended)
    needed_s = _away_after_s(state, presence, policy, now_s)
    presence = presences.leave(presence, now_s, needed_s)
    signals = judge_signals(state, facts, policy, now_s)
    state = msgspec.structs.replace(state, now_s=now_s, presence=presence, signals=signals)
    reasons = find_reasons(state, facts, policy, situation, needed_s)
    clear_since_s = None if reasons else now_s if state.clear_since_s is None else state.clear_since_s
    state = msgspec.structs.replace(state, reasons=reasons, clear_since_s=clear_since_s)
    state = _enter(state, _next_phase(state, policy, situation), policy)
    return msgspec.structs.replace(state, starts_s=_starts_s(state, policy))


def _away_after_s(state: VolunteerState, presence: presences.Presence, policy: Policy, now_s: float) -> float:
    """Return how long nobody may touch the PC for its owner to count as away."""
    if now_s < state.quick_start_until_s and policy.contribute_now:
        return policy.settle_s
    usual_s = policy.idle_resume_s if state.phase is Phase.PAUSED else policy.idle_start_s
    return min(usual_s, policy.idle_locked_s) if presences.is_resting(presence) else usual_s


def _wake(state: VolunteerState, policy: Policy, now_s: float) -> VolunteerState:
    """After a gap: forget the samples, and suppose that somebody woke the PC up to use it."""
    return msgspec.structs.replace(
        state,
        presence=presences.seen(state.presence, now_s, "wake"),
        startup_until_s=now_s + policy.startup_delay_s + state.jitter_s,
        quick_start_until_s=0.0,
        signals={},
    )


def _obey(state: VolunteerState, order: Order, policy: Policy, now_s: float) -> VolunteerState:
    match order:
        case Pause(until_s):
            until_s = math.inf if until_s is None or math.isnan(until_s) else until_s
            return msgspec.structs.replace(state, pause_until_s=until_s, quick_start_until_s=0.0)
        case Resume():
            return msgspec.structs.replace(state, pause_until_s=None, released_until_s=now_s)
        case Release():
            return msgspec.structs.replace(state, released_until_s=now_s + policy.idle_start_s, quick_start_until_s=0.0)
        case ContributeNow() if policy.contribute_now:
            return msgspec.structs.replace(
                state,
                quick_start_until_s=now_s + QUICK_START_S,
                startup_until_s=now_s,
                released_until_s=now_s,
            )
        case OwnerSeen(source):
            return msgspec.structs.replace(state, presence=presences.seen(state.presence, now_s, source))
        case StageFault(detail):
            return msgspec.structs.replace(
                state, faults=after_event(state.faults, now_s, FAULT_WAITS_S), fault_detail=detail
            )
    return state


def _next_phase(state: VolunteerState, policy: Policy, situation: Situation) -> Phase:
    busy = situation.stage != "none"
    if state.reasons and busy:
        return _giving_way(state, policy, situation)
    if state.reasons:
        return _waiting(state, situation)
    if busy and state.gives_back:
        return state.phase
    clear_s = state.now_s - (state.clear_since_s if state.clear_since_s is not None else state.now_s)
    if not state.offers and clear_s < policy.settle_s:
        return Phase.PAUSED if busy and state.phase is Phase.PAUSED else Phase.SETTLING
    return {"loading": Phase.LOADING, "ready": Phase.SERVING}.get(situation.stage, Phase.AVAILABLE)


def _giving_way(state: VolunteerState, policy: Policy, situation: Situation) -> Phase:
    """Say how a loaded stage gives way: computing stops at once in either phase, the memory goes back later or now."""
    codes = {reason.code for reason in state.reasons}
    back = Phase.DRAINING if codes & {ReasonCode.DRAIN, ReasonCode.UPDATING} else Phase.RELEASING
    hurry = state.reasons[0].severity >= Severity.RELEASE
    if hurry or state.gives_back or situation.stage != "ready":
        return back
    if state.phase is Phase.PAUSED and state.now_s - state.since_s < policy.release_after_s:
        return Phase.PAUSED
    return Phase.PAUSED if state.phase is Phase.SERVING and policy.release_after_s > 0 else back


def _waiting(state: VolunteerState, situation: Situation) -> Phase:
    codes = {reason.code for reason in state.reasons}
    if situation.link in ("unenrolled", "pending"):
        return Phase.UNENROLLED if situation.link == "unenrolled" else Phase.PENDING
    if codes & {ReasonCode.DISABLED, ReasonCode.SUSPENDED_BY_ADMIN, ReasonCode.REVOKED}:
        return Phase.OFF
    return Phase.FAULT if ReasonCode.FAULT_BACKOFF in codes else Phase.HELD


def _enter(state: VolunteerState, phase: Phase, policy: Policy) -> VolunteerState:
    now_s, before = state.now_s, state.phase
    since_s = state.since_s if phase is before else now_s
    releases_s = since_s + policy.release_after_s if phase is Phase.PAUSED and state.reasons else None
    state = msgspec.structs.replace(state, phase=phase, since_s=since_s, releases_s=releases_s)
    if state.offers:
        return msgspec.structs.replace(state, quick_start_until_s=0.0)
    if before in (Phase.LOADING, Phase.SERVING) and not _is_no_yield(state.reasons):
        yields = after_event(state.yields, now_s, COOL_DOWNS_S, allowed=YIELDS_ALLOWED, window_s=YIELD_WINDOW_S)
        return msgspec.structs.replace(state, yields=yields)
    return state


def _is_no_yield(reasons: Sequence[Reason]) -> bool:
    return all(reason.code in _NO_YIELD for reason in reasons)


def _starts_s(state: VolunteerState, policy: Policy) -> float | None:
    if state.offers or state.gives_back:
        return None
    if state.clear_since_s is not None:
        return state.clear_since_s + policy.settle_s
    ends = [reason.clears_s for reason in state.reasons]
    known = [clears_s for clears_s in ends if clears_s is not None]
    return max(known) + policy.settle_s if known and len(known) == len(ends) else None
