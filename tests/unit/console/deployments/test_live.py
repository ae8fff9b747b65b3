"""What the coordinator is told of the stages of a plan."""

from __future__ import annotations

from console.deployments.live import infos_of
from console.planner.types import Plan, PlannedStage
from tests.support.fleet import make_load, make_report


def test_the_coordinator_hears_of_every_stage_what_its_pc_said() -> None:
    stages = [
        PlannedStage(f"id-{place}", name, "CPU", "paged", 4 * place, 4 * place + 4, 1.0, 1)
        for place, name in enumerate(["ann", "bob"])
    ]
    plan = Plan("small", 64, 2, stages, 1.0, 1.0, [])
    reports = [
        make_report(make_load(), infer_ms=80, reason="it was asked for"),
        make_report(make_load(engine="stateful"), fused=False),
    ]
    ann, bob = infos_of(plan, reports)
    assert (ann.device_id, ann.device_name, ann.first, ann.last) == ("id-0", "ann", 0, 4)
    assert (ann.engine, ann.fused, ann.note, ann.infer_ms) == ("paged", True, "it was asked for", 80)
    assert (bob.engine, bob.fused, bob.note, bob.infer_ms) == ("stateful", False, "", 0)
