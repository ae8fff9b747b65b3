"""What is kept of what agents measured, and read again for plans and people. Pure.

It lies among a device's facts in the registry, with the Unix time it was measured at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from agent.link.messages import Device, Measurements
from agent.stage.speeds import Measurement, UnitSpeed
from agent.stage.types import EngineChoice, EngineName, Numerics

STAGES_FACT = "ms_per_mb"
"""Milliseconds of one decode step per MB of weights of stages that served, by engine, numerics and device."""
MEASURED_FACT, DOWN_FACT, ROUND_TRIP_FACT = "measured_units", "link_down", "link_round_trip"
MOST_MEASUREMENTS, LONGEST_TEXT = 64, 200
SLOWEST_MS = 1e6
"""A step longer than this is no measurement."""

T = TypeVar("T")


class LinkFigure(msgspec.Struct, frozen=True):
    """A figure of a link: milliseconds there and back, or bytes a second; `at_s` is Unix time."""

    value: float
    at_s: float


class Found(NamedTuple):
    """The measurement that counts for a stage, and the engine of it."""

    measurement: Measurement
    speed: UnitSpeed


def measured_facts(message: Measurements) -> dict[str, Any]:
    """Return what is kept of what an agent measured; nothing of what cannot be."""
    kept = [known for known in message.units[:MOST_MEASUREMENTS] if _is_sane(known)]
    facts: dict[str, Any] = {MEASURED_FACT: msgspec.to_builtins(kept)}
    if _positive(message.down_bytes_per_s, 1e12) and _positive(message.down_at_s, 1e12):
        facts[DOWN_FACT] = msgspec.to_builtins(LinkFigure(message.down_bytes_per_s, message.down_at_s))
    return facts


def round_trip_fact(round_trip_ms: float, at_s: float) -> dict[str, Any]:
    """Return what is kept of a round trip."""
    return {ROUND_TRIP_FACT: msgspec.to_builtins(LinkFigure(round_trip_ms, at_s))}


def devices_of(facts: Mapping[str, Any]) -> list[Device]:
    """Return the devices a PC had when it was here last."""
    return _read(facts.get("devices"), list[Device]) or []


def measurements_of(facts: Mapping[str, Any]) -> list[Measurement]:
    """Return what was measured on a device, the latest last."""
    return _read(facts.get(MEASURED_FACT), list[Measurement]) or []


def stage_speeds(facts: Mapping[str, Any]) -> dict[str, float]:
    """Return what stages that served were measured to take."""
    return _read(facts.get(STAGES_FACT), dict[str, float]) or {}


def down_of(facts: Mapping[str, Any]) -> LinkFigure | None:
    """Return how many bytes a second come from the console, if it is known."""
    return _read(facts.get(DOWN_FACT), LinkFigure)


def round_trip_of(facts: Mapping[str, Any]) -> LinkFigure | None:
    """Return the milliseconds to the console and back, if they are known."""
    return _read(facts.get(ROUND_TRIP_FACT), LinkFigure)


def counts_for(measurement: Measurement, devices: Sequence[Device], openvino: str) -> bool:
    """Whether a measurement still holds: the device is there, with the same driver and runtime."""
    same = any((device.name, device.driver) == (measurement.device, measurement.driver) for device in devices)
    return same and measurement.openvino == openvino


def find_speed(
    measurements: Sequence[Measurement], device: Device, openvino: str, *,
    engine: EngineChoice, numerics: Numerics, library_digest: str,
) -> Found | None:  # fmt: skip
    """Find what a stage will take: measured with this library, else with the latest other one; None: not known.

    An engine that was asked for, or the one that loading would choose.
    """
    fitting = [
        Found(known, speed)
        for known in measurements
        if counts_for(known, [device], openvino) and known.numerics == numerics
        if (speed := _speed_of(known.speeds, engine, device.engines)) is not None
    ]
    own = [found for found in fitting if found.measurement.library_digest == library_digest]
    return max(own or fitting, key=lambda found: found.measurement.at_s, default=None)


def _speed_of(speeds: Sequence[UnitSpeed], engine: EngineChoice, preferred: Sequence[EngineName]) -> UnitSpeed | None:
    by_name = {speed.engine: speed for speed in speeds}
    if engine != "auto":
        # As in loading: where paged attention cannot express a layer, the stateful engine stands in.
        return by_name.get(engine) or (by_name.get("stateful") if engine == "paged" else None)
    ordered = [by_name[name] for name in preferred if name in by_name]
    fused = [speed for speed in ordered if speed.fused]
    return fused[0] if fused else min(ordered, key=lambda speed: speed.layer_ms, default=None)


def _is_sane(known: Measurement) -> bool:
    texts = (known.library_digest, known.unit_sha256, known.device, known.driver, known.openvino)
    return (
        all(len(text) <= LONGEST_TEXT for text in texts)
        and _positive(known.layer_bytes, 1 << 40)
        and _positive(known.at_s, 1e12)
        and 0 < len(known.speeds) <= 8
        and all(map(_is_sane_speed, known.speeds))
    )


def _is_sane_speed(speed: UnitSpeed) -> bool:
    parts = (speed.fixed_ms, speed.embed_ms, speed.head_ms, speed.head_ms_8)
    return (
        _positive(speed.layer_ms, SLOWEST_MS)
        and _positive(speed.layer_ms_8, SLOWEST_MS)
        and all(part is None or 0 <= part < SLOWEST_MS for part in parts)
    )


def _positive(value: float, limit: float) -> bool:
    return math.isfinite(value) and 0 < value < limit


def _read(fact: object, kind: type[T]) -> T | None:
    try:
        return None if fact is None else msgspec.convert(fact, kind)
    except msgspec.ValidationError:
        # Written by another version: it is measured again.
        return None
