"""What the volunteer machine says and is told: phases, orders, the service's situation, the whole state. Plain data.

    held ⇄ settling → available → loading → serving ⇄ paused → releasing → held

`held` is the owner's time, `available` offers this PC, `loading` and `serving` work for the fleet. From `paused` the
memory is still here, `releasing` and `draining` give it back. `unenrolled`, `pending`, `off` and `fault` are kinds of
`held` that need a person or time. `agent.volunteer.machine.step` goes from one state to the next.
"""

from __future__ import annotations

import enum
import math
from typing import Literal

import msgspec

from agent.volunteer.backoff import Backoff
from agent.volunteer.hysteresis import Signal
from agent.volunteer.presence import Presence
from agent.volunteer.reasons import Reason, ReasonCode


class Phase(enum.StrEnum):
    """Where the agent stands; the names are those of `agent.control.status.Phase`."""

    UNENROLLED = "unenrolled"
    PENDING = "pending"
    HELD = "held"
    SETTLING = "settling"
    AVAILABLE = "available"
    LOADING = "loading"
    SERVING = "serving"
    PAUSED = "paused"
    RELEASING = "releasing"
    DRAINING = "draining"
    FAULT = "fault"
    OFF = "off"


OFFERING = frozenset({Phase.AVAILABLE, Phase.LOADING, Phase.SERVING})
"""In every other phase this PC's capacity is 0, and the console is told before anything is done about it."""


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What the service knows of itself, besides the probes.

    `stage` is the most advanced one of all stages: `ready` may compute, `ending` is a child that was told to end or
    whose memory is not proved to be back. `suspending` is so from the system's warning to the return.
    """

    stage: Literal["none", "loading", "ready", "ending"] = "none"
    link: Literal["up", "down", "unenrolled", "pending", "suspended", "revoked", "certificate", "clock"] = "up"
    suspending: bool = False
    shutting_down: bool = False
    updating: bool = False
    device_lost: bool = False
    settings_unreadable: bool = False
    unanswered: bool = False
    """The owner has never said whether this PC may contribute."""


class Pause(msgspec.Struct, frozen=True, tag=True):
    """The owner: nothing until `until_s` (steady clock), or until Resume (None). A later one replaces it."""

    until_s: float | None


class Resume(msgspec.Struct, frozen=True, tag=True):
    """The owner: end my pause. Whatever else holds the PC stays."""


class Release(msgspec.Struct, frozen=True, tag=True):
    """The owner: give the memory back now, and start again when I have been away."""


class ContributeNow(msgspec.Struct, frozen=True, tag=True):
    """The owner: I am leaving, do not wait so long this once. Nothing happens where the policy forbids it."""


class OwnerSeen(msgspec.Struct, frozen=True, tag=True):
    """The earliest sign of the owner, before any snapshot shows it."""

    source: str


class StageFault(msgspec.Struct, frozen=True, tag=True):
    """A stage failed on this PC: its child died, hung, or its memory did not come back. `detail` stays here."""

    detail: str


Order = Pause | Resume | Release | ContributeNow | OwnerSeen | StageFault


class VolunteerState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the machine remembers. Times are of the steady clock, and never those of the wall.

    The first fields are for everybody; those from `now_s` on are the machine's own.
    """

    phase: Phase
    since_s: float
    reasons: tuple[Reason, ...]
    """The most severe first, then the oldest."""
    starts_s: float | None = None
    """When the PC is available if nothing new happens; None: nobody can say."""
    releases_s: float | None = None
    """While paused: when the memory goes back."""
    pause_until_s: float | None = None
    """The owner's pause: its end, infinity for until Resume, None for no pause."""

    now_s: float
    presence: Presence
    jitter_s: float
    startup_until_s: float
    clear_since_s: float | None = None
    """Since when nothing holds this PC."""
    quick_start_until_s: float = 0.0
    released_until_s: float = 0.0
    yields: Backoff = Backoff()
    faults: Backoff = Backoff()
    fault_detail: str = ""
    signals: dict[ReasonCode, Signal] = {}

    @property
    def may_submit(self) -> bool:
        """Whether a stage may start one more inference."""
        return self.phase is Phase.SERVING

    @property
    def offers(self) -> bool:
        """Whether the console may count on this PC."""
        return self.phase in OFFERING

    @property
    def gives_back(self) -> bool:
        """Whether every stage has to end now."""
        return self.phase in (Phase.RELEASING, Phase.DRAINING)

    def codes(self) -> list[str]:
        """Return what the console may know of the reasons."""
        return [reason.code.value for reason in self.reasons]


def initial_state(now_s: float, *, startup_delay_s: float, jitter_s: float) -> VolunteerState:
    """Begin held. `jitter_s` keeps a whole office from starting in the same second after a power cut."""
    return VolunteerState(
        phase=Phase.HELD,
        since_s=now_s,
        reasons=(),
        now_s=now_s,
        presence=Presence(-math.inf, now_s, known=False),
        jitter_s=jitter_s,
        startup_until_s=now_s + startup_delay_s + jitter_s,
    )
