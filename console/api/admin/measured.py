"""What was measured of one PC, for people: its devices, what units take on them, and its link. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from agent.link.messages import Device
from agent.stage.types import EngineName, Numerics
from console.fleet.events import AgentView
from console.fleet.measured import counts_for, devices_of, down_of, measurements_of, round_trip_of
from console.registry.records import DeviceRecord


class UnitRow(msgspec.Struct, frozen=True):
    """Milliseconds of a decode step by one engine: a layer with one row and with eight, and what comes on top.

    `counts` is false when driver or runtime changed since, `age_s` ago it was measured. None: not on this PC.
    """

    model: str
    device: str
    engine: EngineName
    numerics: Numerics
    layer_bytes: int
    layer_ms: float
    layer_ms_8: float
    fixed_ms: float
    embed_ms: float | None
    head_ms: float | None
    head_ms_8: float | None
    age_s: float
    counts: bool


class LinkRow(msgspec.Struct, frozen=True):
    """A PC's link to the console: the best round trip and the bytes a second from there; None: not known."""

    round_trip_ms: float | None = None
    round_trip_age_s: float | None = None
    down_bytes_per_s: float | None = None
    down_age_s: float | None = None


class MeasuredView(msgspec.Struct, frozen=True):
    """One PC, as far as it was measured. `stages` are milliseconds per MB of stages that served, by what they were."""

    device_id: str
    name: str
    openvino: str
    devices: list[Device]
    units: list[UnitRow]
    stages: dict[str, float]
    link: LinkRow


def measured_view(
    record: DeviceRecord,
    live: AgentView | None,
    models: Mapping[str, str],
    stages: Mapping[str, float],
    *,
    now_s: float,
) -> MeasuredView:
    """Describe one PC. `models` names libraries by digest; `live` is what the PC says of itself, if it is connected."""
    devices = devices_of(record.facts) if live is None else live.hello.devices
    openvino = str(record.facts.get("openvino", "")) if live is None else live.hello.openvino
    return MeasuredView(
        device_id=record.device_id,
        name=record.name if live is None else live.name,
        openvino=openvino,
        devices=list(devices),
        units=_units(record.facts, devices, openvino, models, now_s),
        stages=dict(stages),
        link=_link(record.facts, now_s),
    )


def _units(
    facts: Mapping[str, Any], devices: Sequence[Device], openvino: str, models: Mapping[str, str], now_s: float
) -> list[UnitRow]:
    return [
        UnitRow(
            model=models.get(known.library_digest, known.library_digest[:16]),
            device=known.device,
            engine=speed.engine,
            numerics=known.numerics,
            layer_bytes=known.layer_bytes,
            layer_ms=speed.layer_ms,
            layer_ms_8=speed.layer_ms_8,
            fixed_ms=speed.fixed_ms,
            embed_ms=speed.embed_ms,
            head_ms=speed.head_ms,
            head_ms_8=speed.head_ms_8,
            age_s=max(0.0, now_s - known.at_s),
            counts=counts_for(known, devices, openvino),
        )
        for known in measurements_of(facts)
        for speed in known.speeds
    ]


def _link(facts: Mapping[str, Any], now_s: float) -> LinkRow:
    trip, down = round_trip_of(facts), down_of(facts)
    return LinkRow(
        None if trip is None else trip.value,
        None if trip is None else max(0.0, now_s - trip.at_s),
        None if down is None else down.value,
        None if down is None else max(0.0, now_s - down.at_s),
    )
