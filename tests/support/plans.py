"""Small models and fleets for planner tests: say only what matters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from console.planner.ranges import plan
from console.planner.types import AgentFacts, ModelFacts, Plan

MB = 1_000_000
SCRATCH = 100 * MB


def make_model(
    *, layers: int = 12, layer_mb: int = 20, kv: int = 1000, embed_mb: int = 30, head_mb: int = 30
) -> ModelFacts:
    return ModelFacts("toy", [layer_mb * MB] * layers, [kv] * layers, embed_mb * MB, 1000, head_mb * MB)


def make_fleet(memory_mb: list[int], speeds: list[float | None] | None = None) -> list[AgentFacts]:
    speeds = speeds or [0.1] * len(memory_mb)
    return [
        AgentFacts(f"id-{i}", f"pc-{i}", memory * MB, speed)
        for i, (memory, speed) in enumerate(zip(memory_mb, speeds, strict=True))
    ]


def make_plan(model: ModelFacts, fleet: list[AgentFacts], **changes: Any) -> Plan:
    return plan(model, fleet, **({"context_tokens": 1000, "streams": 2, "scratch_bytes": SCRATCH} | changes))


def changed(fleet: Sequence[AgentFacts], place: int, **facts: Any) -> list[AgentFacts]:
    """Return the fleet with other facts of one PC."""
    return [msgspec.structs.replace(one, **facts) if at == place else one for at, one in enumerate(fleet)]
