"""Why a PC is held, for others than its owner: what an administrator reads where a program reads codes. Pure.

The owner's own sentences, with details that never leave the PC, are in `explain`.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.volunteer.reasons import ReasonCode

CLAUSES: dict[str, str] = {
    ReasonCode.USER_INPUT: "somebody is using it",
    ReasonCode.PROBE_UNKNOWN: "it cannot tell whether it is free",
    ReasonCode.SESSION_REMOTE: "somebody is using it from elsewhere",
    ReasonCode.SESSION_SWITCHED: "somebody else is logged in",
    ReasonCode.FULLSCREEN: "a program fills its screen",
    ReasonCode.PRESENTATION: "a presentation is running",
    ReasonCode.INHIBITED: "a program keeps it awake, such as a film or a call",
    ReasonCode.CPU_BUSY: "other programs keep its processor busy",
    ReasonCode.MEDIA_GPU_BUSY: "other programs keep its graphics processor busy",
    ReasonCode.EXCLUSIVE_APP: "a program wants it to itself",
    ReasonCode.MEM_LOW: "its memory is short",
    ReasonCode.DISK_LOW: "its disk is nearly full",
    ReasonCode.ON_BATTERY: "it runs on its battery",
    ReasonCode.BATTERY_LOW: "its battery is low",
    ReasonCode.POWER_SAVER: "it saves energy",
    ReasonCode.THERMAL: "it is hot",
    ReasonCode.METERED_NET: "its network connection is metered",
    ReasonCode.SCHEDULE: "its schedule does not allow work now",
    ReasonCode.PAUSED_BY_USER: "its owner has paused it",
    ReasonCode.RELEASED_BY_USER: "its owner wanted the memory back",
    ReasonCode.PAUSED_BY_ADMIN: "the administrator has paused it",
    ReasonCode.DRAIN: "it is being taken out of service",
    ReasonCode.DISABLED: "volunteering is switched off there",
    ReasonCode.CONSENT: "its owner has not agreed yet",
    ReasonCode.SETTINGS: "its settings cannot be read",
    ReasonCode.STARTUP_DELAY: "it has just been started or woken up",
    ReasonCode.COOL_DOWN: "it was needed back several times in a short while",
    ReasonCode.FAULT_BACKOFF: "something failed there",
    ReasonCode.DEVICE_LOST: "the device that computed is gone",
    ReasonCode.UPDATING: "an update is being installed",
    ReasonCode.SUSPENDING: "it is going to sleep",
    ReasonCode.SHUTTING_DOWN: "it is shutting down",
    ReasonCode.LINK_DOWN: "it cannot reach the console",
    ReasonCode.NOT_APPROVED: "it is not approved yet",
    ReasonCode.SUSPENDED_BY_ADMIN: "it is suspended",
    ReasonCode.REVOKED: "it is not in the fleet any more",
    ReasonCode.CERTIFICATE: "its connection to the console is not trusted",
    ReasonCode.CLOCK: "its clock is wrong",
}


def told(codes: Iterable[str]) -> str:
    """Say reasons in words, the first one first; a code of a later version is shown as it is."""
    return ", ".join(CLAUSES.get(code, code.replace("_", " ")) for code in codes)
