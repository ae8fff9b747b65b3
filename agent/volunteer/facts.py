"""What the probes say of the PC at one moment: plain values that the state machine decides on.

Every fact is a `Reading`: a value or None for *unknown*, the probe that said it, and its age. A probe that is late
keeps its last reading, which grows older; the state machine trusts a reading only while it is young. A PC that lacks a
probe leaves the field as it is here: unknown.

Two clocks: `at_s` is steady and also counts sleep (`agent.volunteer.clock`), for every duration; `unix_s` is the wall
clock, for schedules only.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Reading(msgspec.Struct, Generic[T], frozen=True, array_like=True):
    """One probe's answer: `value` is None while unknown. `source` names the probe ("mutter"), `age_s` is >= 0."""

    value: T | None = None
    source: str = ""
    age_s: float = 0.0

    def within(self, oldest_s: float) -> T | None:
        """Return the value, or None if it is unknown or older than `oldest_s`."""
        return self.value if 0.0 <= self.age_s <= oldest_s else None


class Memory(msgspec.Struct, frozen=True):
    """Main memory, all programs. `low` is the operating system's own alarm."""

    total_bytes: int
    available_bytes: int
    low: bool = False
    pressure_percent: float | None = None
    """Share of the last 10 s in which some program waited for memory; None where the system does not tell."""


class Power(msgspec.Struct, frozen=True):
    """`on_mains` None: not known, which counts as on battery exactly if there is one. A UPS is no battery of the PC."""

    on_mains: bool | None
    has_battery: bool
    battery_percent: float | None = None
    saver: bool = False
    """The user or the system asked to save energy."""


class Heat(msgspec.Struct, frozen=True):
    """The hottest processor sensor, and whether the processor slows itself down."""

    celsius: float | None = None
    throttling: bool = False


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot of the PC. Names of programs stay on this PC: only reason codes ever leave it."""

    at_s: float
    unix_s: float
    utc_offset_s: float = 0.0
    """Local time minus UTC, now."""

    idle_s: Reading[float] = Reading()
    """Since the last input of anybody at this PC: the shortest of all sources that work here."""
    locked: Reading[bool] = Reading()
    displays_off: Reading[bool] = Reading()
    remote_session: Reading[bool] = Reading()
    """The session is used from elsewhere (remote desktop)."""
    session_switched: Reading[bool] = Reading()
    """Another user's session is in front of this one."""
    fullscreen: Reading[bool] = Reading()
    presentation: Reading[bool] = Reading()
    inhibitors: Reading[tuple[str, ...]] = Reading()
    """Programs that keep the PC awake, such as a film; known and empty: none."""
    other_cpu_percent: Reading[float] = Reading()
    """Of all cores together, 0-100, without this agent and its children."""
    other_gpu_percent: Reading[float] = Reading()
    """Of the busiest engine, 0-100, without this agent and its children."""
    exclusive: Reading[tuple[str, ...]] = Reading()
    """Which of the policy's exclusive programs run."""
    memory: Reading[Memory] = Reading()
    power: Reading[Power] = Reading()
    heat: Reading[Heat] = Reading()
    metered: Reading[bool] = Reading()
    disk_free_bytes: Reading[int] = Reading()
    suspend_gap_s: Reading[float] = Reading()
    """How long the PC slept since the last snapshot."""
