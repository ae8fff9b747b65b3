"""How the running agent is, as tray and command line are told it: the message Status and what it is made of.

Part of what `protocol.py` encodes and decodes. Plain data. Times `..._s` that name no clock are Unix seconds.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Phase = Literal[
    "unenrolled", "pending", "held", "settling", "available", "loading", "serving", "paused", "releasing", "draining",
    "fault", "off",
]  # fmt: skip
"""The volunteer's states. `off`: the owner or the administrator switched volunteering off."""
Icon = Literal["away", "contributing", "paused", "waiting", "attention", "offline"]
Severity = Literal["pause", "release", "stop"]
LinkPhase = Literal["starting", "connecting", "connected", "refused", "stopped"]
SetBy = Literal["built-in", "admin", "employee"]
PolicyValue = bool | int | float | str | list[str] | None
"""A value of a policy row; its meaning and unit belong to the row's `kind`."""


class ReasonShown(msgspec.Struct, frozen=True):
    """One reason why nothing is served. `text` is a sentence in English; `code` is what a translation goes by."""

    code: str
    severity: Severity
    text: str
    since_s: float
    clears_in_s: float | None = None
    """Counted from `Status.now_s`; None: nobody knows."""


class Countdown(msgspec.Struct, frozen=True):
    """What happens next, and when: the agent `starts`, a pause `resumes`, or the memory is `released`."""

    what: Literal["starts", "resumes", "releases"]
    at_s: float


class DeviceShown(msgspec.Struct, frozen=True):
    """One device. `set_by` says who switched it off, or that nobody did."""

    name: str
    full_name: str
    memory_bytes: int
    on: bool
    set_by: SetBy = "built-in"


class StageShown(msgspec.Struct, frozen=True):
    """One stage that is loaded (`done` 1.0) or on its way. Layers `first <= i < last`."""

    pipeline: int
    stage: int
    first: int
    last: int
    engine: str
    device: str
    done: float = 1.0


class Contribution(msgspec.Struct, frozen=True):
    """What this PC gave, today and ever: hours with stages ready, tokens, estimated watt-hours."""

    today_h: float = 0.0
    today_tokens: int = 0
    today_wh: float = 0.0
    total_h: float = 0.0
    total_tokens: int = 0
    total_wh: float = 0.0


class PolicyRow(msgspec.Struct, frozen=True):
    """One row of the effective policy: what holds, who set it, what each side asked for.

    `kind` is how to show and edit it: `names` are lists of text, `choice` is one of `choices`, `seconds`, `bytes`,
    `percent` and `number` lie between `minimum` and `maximum`, None meaning no bound. A `locked` row cannot be changed
    by the owner.
    """

    field: str
    kind: Literal["switch", "number", "seconds", "bytes", "percent", "choice", "names", "schedule"]
    value: PolicyValue
    set_by: SetBy
    asked: dict[SetBy, PolicyValue] = {}
    choices: list[str] = []
    minimum: float | None = None
    maximum: float | None = None
    locked: bool = False


class Status(msgspec.Struct, frozen=True, tag=True):
    """How the agent is, completely: a client needs no memory of earlier ones.

    `reasons` come with the most severe first; `headline` is the status line with the reason, `icon` which of the six
    icons fits. `seen_by_console` is what the console was last told of this PC, by name (see `agent.seen`); empty: it
    was told nothing since the agent started.
    """

    now_s: float
    phase: Phase
    icon: Icon
    headline: str
    reasons: list[ReasonShown]
    countdown: Countdown | None
    link: LinkPhase
    link_message: str
    console_url: str
    device_id: str
    fleet_name: str
    device_code: str
    """Shown while an administrator has to approve this PC; else empty."""
    devices: list[DeviceShown]
    stages: list[StageShown]
    contribution: Contribution
    policy: list[PolicyRow]
    policy_revision: int
    pause_until_s: float | None
    """None: no pause by the owner; infinity: until Resume."""
    may_contribute_now: bool
    may_quit: bool
    seen_by_console: dict[str, str]
    chat_url: str = ""
    """Where the fleet's chat is; empty: the console did not tell."""
    volunteer: Literal["away", "always"] = "away"
    update: str = ""
    """A sentence: how far an update is, or why this agent does not update itself."""
