"""The sentences for people: why nothing happens, and when it will. Pure; names of programs stay on this PC.

Every code has a sentence, which may use `{detail}`. What follows it says when the PC starts, where that is known.
"""

from __future__ import annotations

import msgspec

from agent.volunteer.reasons import Reason, ReasonCode
from agent.volunteer.rules import WATCHES
from agent.volunteer.states import Phase, VolunteerState

ACTIVE_S = 15.0
"""An input younger than this means the person is at it right now."""

SENTENCES: dict[ReasonCode, str] = {
    ReasonCode.USER_INPUT: "You are using this PC.",
    ReasonCode.PROBE_UNKNOWN: "This PC cannot tell whether it is free ({detail} unknown), so it counts as in use.",
    ReasonCode.SESSION_REMOTE: "Somebody is using this PC from elsewhere.",
    ReasonCode.SESSION_SWITCHED: "Somebody else is logged in at this PC.",
    ReasonCode.FULLSCREEN: "A program fills the whole screen.",
    ReasonCode.PRESENTATION: "A presentation is running.",
    ReasonCode.INHIBITED: "A program keeps the PC awake, such as a film or a call ({detail}).",
    ReasonCode.CPU_BUSY: "Other programs keep the processor busy ({detail}).",
    ReasonCode.MEDIA_GPU_BUSY: "Other programs keep the graphics processor busy ({detail}).",
    ReasonCode.EXCLUSIVE_APP: "A program that wants this PC to itself is running ({detail}).",
    ReasonCode.MEM_LOW: "Memory is short ({detail}).",
    ReasonCode.DISK_LOW: "The disk is nearly full ({detail}).",
    ReasonCode.ON_BATTERY: "This PC runs on its battery.",
    ReasonCode.BATTERY_LOW: "The battery is low ({detail}).",
    ReasonCode.POWER_SAVER: "This PC saves energy.",
    ReasonCode.THERMAL: "This PC is hot ({detail}).",
    ReasonCode.METERED_NET: "The network connection is metered.",
    ReasonCode.SCHEDULE: "The schedule does not allow work now.",
    ReasonCode.PAUSED_BY_USER: "Paused by you.",
    ReasonCode.RELEASED_BY_USER: "You asked for the memory back.",
    ReasonCode.PAUSED_BY_ADMIN: "Paused by the administrator.",
    ReasonCode.DRAIN: "The administrator takes this PC out of service.",
    ReasonCode.DISABLED: "Volunteering is switched off.",
    ReasonCode.CONSENT: "You have not said yet whether this PC may contribute; answer in the settings.",
    ReasonCode.SETTINGS: "The settings of this PC cannot be read; open the settings and save them again.",
    ReasonCode.STARTUP_DELAY: "This PC has just been started or woken up.",
    ReasonCode.COOL_DOWN: "This PC was needed back several times in a short while, so it waits longer.",
    ReasonCode.FAULT_BACKOFF: "Something failed here ({detail}); it is tried again later.",
    ReasonCode.DEVICE_LOST: "The device that computed is gone; restart the agent if it does not come back.",
    ReasonCode.UPDATING: "An update is being installed.",
    ReasonCode.SUSPENDING: "This PC is going to sleep.",
    ReasonCode.SHUTTING_DOWN: "This PC is shutting down.",
    ReasonCode.LINK_DOWN: "The console cannot be reached.",
    ReasonCode.NOT_APPROVED: "This PC is not a member of a fleet yet.",
    ReasonCode.SUSPENDED_BY_ADMIN: "This PC is suspended; it takes part again once the administrator resumes it.",
    ReasonCode.REVOKED: "This PC is not in the fleet any more; to come back, leave it and join with a new invite.",
    ReasonCode.CERTIFICATE: "The connection to the console is not trusted; run the doctor.",
    ReasonCode.CLOCK: "This PC's clock is wrong; correct it.",
}

PHASES: dict[Phase, str] = {
    Phase.UNENROLLED: "Not a member of a fleet",
    Phase.PENDING: "Waiting for the administrator's approval",
    Phase.HELD: "Waiting",
    Phase.SETTLING: "Getting ready",
    Phase.AVAILABLE: "Ready to contribute",
    Phase.LOADING: "Loading a part of the model",
    Phase.SERVING: "Contributing",
    Phase.PAUSED: "Waiting",
    Phase.RELEASING: "Giving the memory back",
    Phase.DRAINING: "Handing its work over",
    Phase.FAULT: "Something failed",
    Phase.OFF: "Switched off",
}


class Line(msgspec.Struct, frozen=True):
    """One reason for people: `text` in English; `code` and `detail` are what a translation goes by."""

    code: ReasonCode
    text: str
    detail: str
    clears_in_s: float | None


class Explanation(msgspec.Struct, frozen=True):
    """`headline` is one line with the phase, the main reason and the countdown; `starts_in_s` is that countdown."""

    headline: str
    lines: tuple[Line, ...]
    starts_in_s: float | None = None


def explain(state: VolunteerState) -> Explanation:
    """Say why this PC does what it does now, as of the state's own time. Never raises."""
    now_s = state.now_s
    lines = tuple(
        Line(reason.code, sentence(reason), reason.detail, _left_s(reason.clears_s, now_s)) for reason in state.reasons
    )
    starts_in_s = _left_s(state.starts_s, now_s)
    return Explanation(_headline(state, starts_in_s), lines, starts_in_s)


def _headline(state: VolunteerState, starts_in_s: float | None) -> str:
    if not state.reasons:
        return f"{PHASES[state.phase]}. {_ending(state, starts_in_s)}".rstrip()
    main = state.reasons[0]
    if main.code is ReasonCode.PAUSED_BY_USER and not state.gives_back:
        left_s = _left_s(main.clears_s, state.now_s)
        return "Paused by you until you resume." if left_s is None else f"Paused by you for another {duration(left_s)}."
    text = sentence(main)
    return f"{PHASES[state.phase]}: {text[0].lower()}{text[1:]} {_ending(state, starts_in_s)}".rstrip()


def sentence(reason: Reason) -> str:
    """Return a reason's sentence; brackets for a detail that is not known are left out."""
    text = SENTENCES[reason.code]
    return (
        text.format(detail=reason.detail) if reason.detail else text.replace(" ({detail})", "").format(detail="it is")
    )


def _ending(state: VolunteerState, starts_in_s: float | None) -> str:
    if state.offers or state.gives_back:
        return ""
    if starts_in_s is None:
        return _open_ending(state.reasons[0]) if state.reasons else ""
    if all(reason.code is not ReasonCode.USER_INPUT for reason in state.reasons):
        return f"Starts in about {duration(starts_in_s)}."
    if state.now_s - state.presence.input_s < ACTIVE_S:
        return f"Starts about {duration(starts_in_s)} after you leave."
    return f"Starts in about {duration(starts_in_s)} if you stay away."


def _open_ending(main: Reason) -> str:
    """Say when it starts, where nobody knows how long that takes."""
    if main.code is ReasonCode.USER_INPUT:
        return "Starts after you leave, once nothing else holds this PC."
    if main.code in WATCHES:
        return "Starts when that is over."
    return "" if main.clears_s is None else "Starts once nothing else holds this PC."


def duration(seconds: float) -> str:
    """Write a duration as people say it: "40 s", "4 min", "3 h", "2 days"."""
    if seconds < 60:
        return f"{max(round(seconds), 1)} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h" if seconds < 36 * 3600 else f"{round(seconds / 86_400)} days"


def _left_s(moment_s: float | None, now_s: float) -> float | None:
    return None if moment_s is None else max(moment_s - now_s, 0.0)
