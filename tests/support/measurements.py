"""Factories for what agents measure."""

from __future__ import annotations

from typing import Any

from agent.stage.speeds import Measurement, UnitSpeed


def make_speed(**fields: Any) -> UnitSpeed:
    return UnitSpeed(**{"engine": "paged", "fused": True, "layer_ms": 0.2, "layer_ms_8": 0.6, **fields})


def make_measurement(**fields: Any) -> Measurement:
    values: dict[str, Any] = {
        "library_digest": "a" * 64, "unit_sha256": "b" * 64, "layer_bytes": 2_000_000, "device": "CPU", "driver": "",
        "openvino": "2026.4", "numerics": "fast", "speeds": [make_speed()], "at_s": 1e9,
    }  # fmt: skip
    return Measurement(**(values | fields))
