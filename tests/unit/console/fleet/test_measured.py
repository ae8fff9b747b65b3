"""What agents measured: kept if it can be, found for a stage, and no longer believed once driver or runtime changed."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from agent.link.messages import Device, Measurements
from agent.stage.speeds import Measurement
from console.fleet.linkwatch import AGAIN_S, RoundTrips
from console.fleet.measured import (
    MEASURED_FACT,
    down_of,
    find_speed,
    measured_facts,
    measurements_of,
    round_trip_fact,
    round_trip_of,
)
from tests.support.measurements import make_measurement, make_speed

CPU = Device("CPU", "A processor", 8 << 30, ["paged", "stateful"])
OWN = "a" * 64


def found(*measurements: Measurement, engine: Any = "auto", device: Device = CPU, **fields: Any) -> float | None:
    values: dict[str, Any] = {"numerics": "fast", "library_digest": OWN, **fields}
    speed = find_speed(measurements, device, "2026.4", engine=engine, **values)
    return None if speed is None else speed.speed.layer_ms


def test_what_was_measured_survives_the_registry() -> None:
    message = Measurements([make_measurement()], 12.5e6, 1e9)
    facts = msgspec.json.decode(msgspec.json.encode(measured_facts(message)))
    assert measurements_of(facts) == message.units
    down = down_of(facts)
    assert down is not None
    assert (down.value, down.at_s) == (12.5e6, 1e9)
    trip = round_trip_of(round_trip_fact(3.5, 1e9))
    assert trip is not None
    assert trip.value == 3.5


@pytest.mark.parametrize(
    "nonsense",
    [
        make_measurement(layer_bytes=0),
        make_measurement(speeds=[]),
        make_measurement(device="C" * 1000),
        make_measurement(at_s=math.nan),
        make_measurement(speeds=[make_speed(layer_ms=math.inf)]),
        make_measurement(speeds=[make_speed(layer_ms=0.0)]),
        make_measurement(speeds=[make_speed(head_ms=-1.0)]),
    ],
)
def test_what_cannot_be_is_not_kept(nonsense: Measurement) -> None:
    facts = measured_facts(Measurements([nonsense, make_measurement()], math.inf, 1e9))
    assert facts == {MEASURED_FACT: msgspec.to_builtins([make_measurement()])}


def test_facts_of_another_version_are_unknown() -> None:
    assert measurements_of({MEASURED_FACT: [{"layer": 3}]}) == []
    assert round_trip_of({"link_round_trip": 3}) is None


def test_the_engine_is_the_one_that_loading_would_choose() -> None:
    both = make_measurement(
        speeds=[make_speed(engine="stateful", layer_ms=1.0), make_speed(engine="paged", layer_ms=2.0)]
    )
    assert found(both) == 2.0
    assert found(both, engine="stateful") == 1.0
    assert found(both, engine="packed") is None
    unfused = make_measurement(
        speeds=[make_speed(layer_ms=2.0, fused=False), make_speed(engine="stateful", layer_ms=1.0, fused=False)]
    )
    assert found(unfused) == 1.0
    assert found(make_measurement(speeds=[make_speed(engine="stateful", layer_ms=1.0)]), engine="paged") == 1.0


def test_the_model_itself_counts_before_later_ones_of_others() -> None:
    own, other = make_measurement(at_s=1e9), make_measurement(library_digest="b" * 64, at_s=2e9)
    other = msgspec.structs.replace(other, speeds=[make_speed(layer_ms=9.0)])
    assert found(own, other) == 0.2
    assert found(own, other, library_digest="c" * 64) == 9.0
    assert found(own, numerics="exact") is None


def test_another_driver_or_runtime_is_another_device() -> None:
    assert found(make_measurement(openvino="2026.3")) is None
    assert found(make_measurement(driver="31.0")) is None
    newer = Device("CPU", "A processor", 8 << 30, ["paged"], driver="31.0")
    assert found(make_measurement(driver="31.0"), device=newer) == 0.2


def test_a_round_trip_is_told_when_it_is_news() -> None:
    trips = RoundTrips()
    assert trips.look(0.0, 0.0) is None
    assert trips.look(5.0, 10.0) == 5.0
    assert trips.look(50.0, 20.0) is None, "one slow ping is traffic, not distance"
    assert trips.look(4.9, 30.0) is None
    assert trips.look(2.0, 40.0) == 2.0
    assert trips.look(2.0, 50.0) is None
    assert trips.look(2.0, 40.0 + AGAIN_S) == 2.0
    assert [told for step in range(12) if (told := trips.look(9.0, 1e5 + step)) is not None][-1] == 9.0
