"""Why this PC does not work now: codes, how hard each one presses, and since when.

Reasons are a set: a PC can be held by its owner, its battery and its schedule at once, and the set is what people and
programs are shown. Only the codes leave the PC.
"""

from __future__ import annotations

import enum

import msgspec


class Severity(enum.IntEnum):
    """PAUSE: no new work at once, memory back after a grace. RELEASE: memory back at once. STOP: nothing to do here."""

    PAUSE = 1
    RELEASE = 2
    STOP = 3


class ReasonCode(enum.StrEnum):
    """Stable names: sent to the console and translated by the tray. Do not rename."""

    USER_INPUT = "user_input"
    PROBE_UNKNOWN = "probe_unknown"
    SESSION_REMOTE = "session_remote"
    SESSION_SWITCHED = "session_switched"
    FULLSCREEN = "fullscreen"
    PRESENTATION = "presentation"
    INHIBITED = "inhibited"
    CPU_BUSY = "cpu_busy"
    MEDIA_GPU_BUSY = "media_gpu_busy"
    EXCLUSIVE_APP = "exclusive_app"
    MEM_LOW = "mem_low"
    DISK_LOW = "disk_low"
    ON_BATTERY = "on_battery"
    BATTERY_LOW = "battery_low"
    POWER_SAVER = "power_saver"
    THERMAL = "thermal"
    METERED_NET = "metered_net"
    SCHEDULE = "schedule"
    PAUSED_BY_USER = "paused_by_user"
    RELEASED_BY_USER = "released_by_user"
    PAUSED_BY_ADMIN = "paused_by_admin"
    DRAIN = "drain"
    DISABLED = "disabled"
    CONSENT = "consent"
    SETTINGS = "settings"
    STARTUP_DELAY = "startup_delay"
    COOL_DOWN = "cool_down"
    FAULT_BACKOFF = "fault_backoff"
    DEVICE_LOST = "device_lost"
    UPDATING = "updating"
    SUSPENDING = "suspending"
    SHUTTING_DOWN = "shutting_down"
    LINK_DOWN = "link_down"
    NOT_APPROVED = "not_approved"
    SUSPENDED_BY_ADMIN = "suspended_by_admin"
    REVOKED = "revoked"
    CERTIFICATE = "certificate"
    CLOCK = "clock"


SEVERITY: dict[ReasonCode, Severity] = {
    **dict.fromkeys(ReasonCode, Severity.PAUSE),
    **dict.fromkeys(
        (
            ReasonCode.EXCLUSIVE_APP,
            ReasonCode.MEM_LOW,
            ReasonCode.BATTERY_LOW,
            ReasonCode.THERMAL,
            ReasonCode.PAUSED_BY_USER,
            ReasonCode.RELEASED_BY_USER,
            ReasonCode.PAUSED_BY_ADMIN,
            ReasonCode.DRAIN,
            ReasonCode.CONSENT,
            ReasonCode.SETTINGS,
            ReasonCode.FAULT_BACKOFF,
            ReasonCode.DEVICE_LOST,
            ReasonCode.UPDATING,
            ReasonCode.SUSPENDING,
            ReasonCode.SHUTTING_DOWN,
        ),
        Severity.RELEASE,
    ),
    **dict.fromkeys(
        (ReasonCode.DISABLED, ReasonCode.NOT_APPROVED, ReasonCode.SUSPENDED_BY_ADMIN, ReasonCode.REVOKED), Severity.STOP
    ),
}


COSTS = frozenset({ReasonCode.METERED_NET, ReasonCode.ON_BATTERY, ReasonCode.BATTERY_LOW, ReasonCode.POWER_SAVER})
"""Reasons for which its owner pays for what is transferred, somehow."""
NO_TRANSFERS = COSTS | frozenset(
    {
        ReasonCode.FULLSCREEN, ReasonCode.PRESENTATION, ReasonCode.EXCLUSIVE_APP, ReasonCode.DISK_LOW,
        ReasonCode.PAUSED_BY_USER, ReasonCode.DISABLED, ReasonCode.CONSENT, ReasonCode.SETTINGS,
        ReasonCode.SUSPENDING, ReasonCode.SHUTTING_DOWN,
    }
)  # fmt: skip
"""Reasons for which no model files come or go, either. That somebody works at this PC is none: it is not felt."""


class Reason(msgspec.Struct, frozen=True):
    """One reason that holds now. Times are of the steady clock.

    `clears_s` is when it ends if nothing new happens, None where nobody can say. `detail` (a program's name, a
    temperature) never leaves this PC.
    """

    code: ReasonCode
    severity: Severity
    since_s: float
    clears_s: float | None = None
    source: str = ""
    detail: str = ""
