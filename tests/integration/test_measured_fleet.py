"""A PC that has nothing to do measures what it holds, and the admin and the planner hear of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from console.api.admin import types as wire
from console.api.admin.measured import MeasuredView
from console.api.admin.plan_types import PlanRequest
from installer.loopback import AgentSettings, LoopbackFleet

MOST_S = 240.0
POLL_S = 0.5


def wait_for_measurements(fleet: LoopbackFleet, device_id: str) -> MeasuredView:
    deadline_s = time.monotonic() + MOST_S
    while True:
        view = fleet.admin.measured(device_id)
        if view.units and view.link.down_bytes_per_s is not None:
            return view
        assert time.monotonic() < deadline_s, view
        time.sleep(POLL_S)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_was_delivered_is_measured_and_plans_use_it(tmp_path: Path, smollm2_library: Path) -> None:
    with LoopbackFleet(tmp_path, [AgentSettings("only", 1)]) as fleet:
        model = fleet.admin.add_library(smollm2_library).model_id
        (agent,) = fleet.admin.agents()
        list(fleet.admin.deliver(wire.DeliveryRequest(model=model)))
        view = wait_for_measurements(fleet, agent.device_id)
        assert {unit.engine for unit in view.units} == {"paged", "stateful"}
        assert all(unit.counts and unit.model == model for unit in view.units)
        (planned,) = fleet.admin.plan(PlanRequest(wire.DeployRequest(model=model, context=256))).pipelines
        (stage,) = planned.plan.stages
        layers = stage.last - stage.first
        expected = [
            unit.fixed_ms + layers * unit.layer_ms + (unit.embed_ms or 0.0) + (unit.head_ms or 0.0)
            for unit in view.units
        ]
        assert any(stage.ms == pytest.approx(ms, rel=0.01) for ms in expected)
