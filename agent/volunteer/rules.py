"""What each fact means under a policy: busy, calm or in between, and how long it has to be so. Pure.

Nothing is said of presence here (`agent.volunteer.presence`), because when somebody is back depends on what this PC is
doing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from agent.volunteer.facts import Facts, Heat, Memory, Power, Reading
from agent.volunteer.hysteresis import Watch
from agent.volunteer.policy import GIB, Policy, memory_floor_bytes
from agent.volunteer.reasons import ReasonCode

_Value = TypeVar("_Value")

TRUST_S = 15.0
"""Older readings are unknown. Presence has a shorter limit."""

PRESSURE_BUSY_PERCENT, PRESSURE_CALM_PERCENT = 20.0, 5.0
CPU_CALM_SHARE, GPU_CALM_SHARE = 0.6, 1 / 3
"""Of the busy limit: what other programs may use at most for the limit to count as left behind."""
BATTERY_MARGIN_PERCENT = 5.0
HEAT_MARGIN_CELSIUS = 8.0

WATCHES: dict[ReasonCode, Watch] = {
    ReasonCode.SESSION_REMOTE: Watch(calm_s=10.0),
    ReasonCode.SESSION_SWITCHED: Watch(calm_s=10.0),
    ReasonCode.FULLSCREEN: Watch(calm_s=10.0),
    ReasonCode.PRESENTATION: Watch(calm_s=10.0),
    ReasonCode.INHIBITED: Watch(calm_s=10.0),
    ReasonCode.EXCLUSIVE_APP: Watch(calm_s=15.0),
    ReasonCode.CPU_BUSY: Watch(needed=3, sample_s=2.0, calm_s=60.0),
    ReasonCode.MEDIA_GPU_BUSY: Watch(needed=3, sample_s=2.0, calm_s=60.0),
    ReasonCode.MEM_LOW: Watch(calm_s=60.0),
    ReasonCode.DISK_LOW: Watch(calm_s=60.0),
    ReasonCode.ON_BATTERY: Watch(calm_s=30.0),
    ReasonCode.BATTERY_LOW: Watch(calm_s=30.0),
    ReasonCode.POWER_SAVER: Watch(calm_s=30.0),
    ReasonCode.THERMAL: Watch(needed=2, sample_s=5.0, calm_s=300.0),
    ReasonCode.METERED_NET: Watch(calm_s=30.0),
}


class Sighting(msgspec.Struct, frozen=True):
    """What one fact says of one reason now. Neither busy nor calm: in between, or not `known`."""

    code: ReasonCode
    busy: bool = False
    calm: bool = False
    known: bool = True
    source: str = ""
    detail: str = ""


def look(facts: Facts, policy: Policy) -> Iterator[Sighting]:
    """Say of every watched reason what the facts mean. Never raises."""
    yield _session(ReasonCode.SESSION_REMOTE, facts.remote_session, allowed=policy.remote_session)
    yield _session(ReasonCode.SESSION_SWITCHED, facts.session_switched, allowed=False)
    yield _session(ReasonCode.FULLSCREEN, facts.fullscreen, allowed=policy.fullscreen)
    yield _session(ReasonCode.PRESENTATION, facts.presentation, allowed=policy.fullscreen)
    yield _programs(ReasonCode.INHIBITED, facts.inhibitors, allowed=policy.inhibited)
    yield _programs(ReasonCode.EXCLUSIVE_APP, facts.exclusive, allowed=False)
    limit = policy.cpu_busy_percent
    yield _load(ReasonCode.CPU_BUSY, facts.other_cpu_percent, limit, limit * CPU_CALM_SHARE)
    limit = policy.gpu_busy_percent
    yield _load(ReasonCode.MEDIA_GPU_BUSY, facts.other_gpu_percent, limit, limit * GPU_CALM_SHARE)
    yield _known(ReasonCode.MEM_LOW, facts.memory, lambda memory: _memory(memory, policy))
    yield _known(ReasonCode.DISK_LOW, facts.disk_free_bytes, lambda free: _disk(free, policy))
    yield from _power(facts.power, policy)
    yield _known(ReasonCode.THERMAL, facts.heat, lambda heat: _heat(heat, policy.heat_limit_celsius))
    yield _session(ReasonCode.METERED_NET, facts.metered, allowed=policy.metered)


def missing(facts: Facts) -> list[str]:
    """Name what has to be known before this PC may work, presence apart, and is not."""
    needed: dict[str, Reading[Memory] | Reading[Power]] = {"memory": facts.memory, "power": facts.power}
    return [name for name, reading in needed.items() if reading.within(TRUST_S) is None]


Judged = tuple[bool, bool, str]
"""Busy, calm, detail."""


def _known(code: ReasonCode, reading: Reading[_Value], judged: Callable[[_Value], Judged]) -> Sighting:
    value = reading.within(TRUST_S)
    if value is None:
        return Sighting(code, known=False)
    busy, calm, detail = judged(value)
    return Sighting(code, busy=busy, calm=calm, source=reading.source, detail=detail)


def _session(code: ReasonCode, reading: Reading[bool], *, allowed: bool) -> Sighting:
    return _known(code, reading, lambda so: (so and not allowed, allowed or not so, ""))


def _programs(code: ReasonCode, reading: Reading[tuple[str, ...]], *, allowed: bool) -> Sighting:
    return _known(
        code, reading, lambda names: (bool(names) and not allowed, allowed or not names, ", ".join(names[:3]))
    )


def _load(code: ReasonCode, reading: Reading[float], busy_percent: float, calm_percent: float) -> Sighting:
    return _known(code, reading, lambda load: (load > busy_percent, load < calm_percent, f"{load:.0f} %"))


def _memory(memory: Memory, policy: Policy) -> Judged:
    floor = memory_floor_bytes(policy, memory.total_bytes)
    pressure = memory.pressure_percent or 0.0
    busy = memory.low or memory.available_bytes < floor or pressure > PRESSURE_BUSY_PERCENT
    calm = not busy and memory.available_bytes >= floor + GIB and pressure < PRESSURE_CALM_PERCENT
    return busy, calm, f"{memory.available_bytes / GIB:.1f} GiB free, {floor / GIB:.1f} GiB are yours"


def _disk(free_bytes: int, policy: Policy) -> Judged:
    reserve = policy.disk_reserve_bytes
    return free_bytes < reserve, free_bytes >= reserve + GIB, f"{free_bytes / GIB:.1f} GiB free"


def _heat(heat: Heat, limit_celsius: float) -> Judged:
    celsius = heat.celsius
    busy = heat.throttling or (celsius is not None and celsius > limit_celsius)
    calm = not heat.throttling and (celsius is None or celsius < limit_celsius - HEAT_MARGIN_CELSIUS)
    return busy, calm, "" if celsius is None else f"{celsius:.0f} °C"


def _power(reading: Reading[Power], policy: Policy) -> Iterator[Sighting]:
    above = policy.on_battery_above_percent
    yield _known(ReasonCode.ON_BATTERY, reading, lambda power: _on_battery(power, never=above >= 100))
    yield _known(ReasonCode.BATTERY_LOW, reading, lambda power: _battery_low(power, above))
    yield _known(
        ReasonCode.POWER_SAVER,
        reading,
        lambda power: (power.saver and not policy.power_saver, policy.power_saver or not power.saver, ""),
    )


def _discharges(power: Power) -> bool:
    return power.on_mains is False or (power.on_mains is None and power.has_battery)


def _on_battery(power: Power, *, never: bool) -> Judged:
    busy = never and _discharges(power)
    return busy, not busy, ""


def _battery_low(power: Power, above_percent: float) -> Judged:
    if above_percent >= 100 or not _discharges(power):
        return False, True, ""
    percent = power.battery_percent
    if percent is None:
        return True, False, ""
    return percent <= above_percent, percent >= above_percent + BATTERY_MARGIN_PERCENT, f"{percent:.0f} %"
