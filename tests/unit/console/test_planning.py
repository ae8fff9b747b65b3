"""Plans that nobody carries out, over a real hub and registry."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.link.messages import Device, Resting
from console.api.admin import types as wire
from console.api.admin.plan_types import Answers, PlanRequest, Question
from console.deployments.deployments import Deployments
from console.errors import DeployRefused
from console.facts import FleetFacts
from console.fleet.policies import RESTING_FACT
from console.libraries import LibraryShelf
from console.plan_files import request_with
from console.plan_tables import answers as answer_tables
from console.plan_tables import checked as checked_tables
from console.plan_tables import plans as plan_tables
from console.planner.types import AgentFacts
from console.planning import Planning
from console.registry.devices import DeviceRequest
from console.registry.registry import Registry
from console.registry.sightings import Sighting
from tests.support.deployments import all_events, deploying, request
from tests.support.fleet import Fleet
from tests.support.played import playing
from tests.support.served import playing_all, resolve_all

MONDAY_S = 86_400.0 * 4


@contextlib.asynccontextmanager
async def planning(fleet: Fleet, registry: Registry) -> AsyncIterator[tuple[Planning, Deployments]]:
    shelf = LibraryShelf(registry, fleet.distribution)
    await shelf.open()
    async with deploying(fleet, registry) as deployments:
        yield Planning(FleetFacts(registry, fleet.hub), shelf, deployments), deployments


def add_pc(registry: Registry, *, percent: int | None = None, memory_bytes: int = 8 << 30) -> None:
    asked = DeviceRequest(
        f"{registry.devices.count():064x}",
        b"",
        "ABCD-EFGH-K",
        "pc",
        {},
        "file",
        registry.invites.create().token_id.hex(),
    )
    device_id = registry.devices.approve(registry.devices.add_pending(asked).device_id).device_id
    facts: dict[str, Any] = {"devices": msgspec.to_builtins([Device("CPU", "A processor", memory_bytes, ["paged"])])}
    if percent is not None:
        facts[RESTING_FACT] = msgspec.structs.asdict(Resting([percent] * 56, 0.0))
    registry.sightings.note([Sighting(device_id, facts=facts)])


async def test_a_plan_shows_stages_memory_and_speed_and_loads_nothing(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with (
        playing(fleet, "a") as one,
        playing(fleet, "b") as other,
        playing(fleet, "c"),
        planning(fleet, registry) as (planner, deployments),
    ):
        found = await planner.plan(PlanRequest(request(), standbys=1))
        assert (one.loads, other.loads, deployments.views()) == ([], [], [])
    (pipeline,) = found.pipelines
    assert len({stage.name for stage in pipeline.plan.stages} & {"a", "b", "c"}) == 2
    assert pipeline.plan.tokens_per_second > 0
    assert all(stage.memory_bytes > 0 for stage in pipeline.plan.stages)
    assert len(pipeline.standbys) == 1
    shown = [item for item in plan_tables(found) if isinstance(item, str)]
    assert any("tokens/s for one answer" in line for line in shown)


async def test_more_pipelines_than_the_fleet_holds_are_said_to_be_missing(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing(fleet, "a"), planning(fleet, registry) as (planner, _):
        found = await planner.plan(PlanRequest(request(stages=1), pipelines=2))
    assert len(found.pipelines) == 1
    assert "1 PC is needed" in found.missing
    assert found.missing in list(plan_tables(found))


async def test_a_plan_of_a_model_that_is_up_keeps_its_pcs(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing(fleet, "a"), playing(fleet, "b"), planning(fleet, registry) as (planner, deployments):
        await all_events(deployments, request(stages=1))
        (live,) = deployments.live()
        found = await planner.plan(PlanRequest(request(stages=1)))
    assert [stage.device_id for stage in found.pipelines[0].plan.stages] == live.device_ids


async def test_a_model_that_nobody_has_or_too_much_context_is_refused(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with planning(fleet, registry) as (planner, _):
        with pytest.raises(DeployRefused, match="no layer library"):
            await planner.plan(PlanRequest(request(model="other")))
        with pytest.raises(DeployRefused, match="at most 512 tokens"):
            await planner.plan(PlanRequest(request(context=1024)))
        with pytest.raises(DeployRefused, match="nobody"):
            await planner.plan(PlanRequest(request(rules=wire.PlanRules(exclude=["nobody"]))))


async def test_a_plan_made_by_hand_is_checked_against_what_runs_and_nothing_is_loaded(
    fleet: Fleet, registry: Registry, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_all(monkeypatch)
    async with playing_all(fleet, "a", "b") as pcs, planning(fleet, registry) as (planner, deployments):
        a, b = (pcs[name].agent.device_id for name in "ab")
        planned = await planner.plan(PlanRequest(request()))
        asked = request_with(request(), planned)
        found = await planner.check(asked)
        assert not found.faults
        made = found.pipelines[0].plan
        assert made is not None
        assert made.tokens_per_second == pytest.approx(planned.pipelines[0].plan.tokens_per_second)
        await all_events(deployments, request(stages=None, plan=[[wire.GivenStage(a, 0, 4)]]))
        loads = len(pcs["a"].loads) + len(pcs["b"].loads)
        moved = await planner.check(request(stages=None, plan=[[wire.GivenStage(b, 0, 4)]]))
        assert (moved.joins, moved.leaves) == (["b"], ["a"])
        assert moved.pipelines[0].stages[0].moved_layers == 4
        tight = await planner.check(request(stages=None, context=500, streams=256, plan=[[wire.GivenStage(a, 0, 3)]]))
        assert [fault.kind for fault in tight.faults] == ["cover"]
        assert len(pcs["a"].loads) + len(pcs["b"].loads) == loads
    shown = [item for item in checked_tables(tight) if isinstance(item, str)]
    assert "Wrong: Layer 3 is on no PC: give it to one." in shown
    assert shown[-1] == "It cannot be deployed like this."
    assert "Leaves: a." in list(checked_tables(moved))


async def test_a_plan_that_needs_what_runs_to_make_room_says_so(
    fleet: Fleet, registry: Registry, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_all(monkeypatch)
    small = {"devices": [Device("CPU", "A processor", 200 << 20, ["paged"])]}
    async with playing(fleet, "a", hello=small) as pc, planning(fleet, registry) as (planner, deployments):
        asked = request(stages=None, plan=[[wire.GivenStage(pc.agent.device_id, 0, 4)]])
        before = await planner.check(asked)
        await all_events(deployments, asked)
        found = await planner.check(asked)
    assert not found.faults
    assert "makes room first" in found.notes[-1]
    assert not any("makes room" in note for note in before.notes)


async def test_a_check_reads_the_fleet_as_often_for_many_stages_and_pipelines_as_for_one(
    fleet: Fleet, registry: Registry, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_all(monkeypatch)
    looks: list[str] = []
    collect = FleetFacts.collect

    def counted(facts: FleetFacts, *arguments: Any, **named: Any) -> list[AgentFacts]:
        looks.append("collect")
        return collect(facts, *arguments, **named)

    def resolve(_: FleetFacts, wanted: Sequence[str]) -> list[str]:
        looks.append("resolve")
        return list(wanted)

    async with playing_all(fleet, "a", "b") as pcs, planning(fleet, registry) as (planner, deployments):
        a, b = (pcs[name].agent.device_id for name in "ab")
        asked = request(stages=None, plan=[[wire.GivenStage(a, 0, 2), wire.GivenStage(b, 2, 4)]])
        await all_events(deployments, asked)
        with monkeypatch.context() as counting:
            counting.setattr(FleetFacts, "collect", counted)
            counting.setattr(FleetFacts, "resolve", resolve)
            limits = [wire.LimitedPc(device, memory_mb=4000) for device in (a, b)]
            rules = wire.PlanRules(pins=[wire.PinnedPc(a), wire.PinnedPc(b)], limits=limits)
            found = await planner.check(msgspec.structs.replace(asked, rules=rules, devices=[a, b]))
    assert not found.faults
    assert looks == ["resolve", "collect"]


async def test_what_if_counts_pcs_that_are_away_now_by_their_habits(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    for percent in (70, 70, 70):
        add_pc(registry, percent=percent)
    add_pc(registry)
    async with planning(fleet, registry) as (planner, _):
        found = await planner.what_if(Question(at_s=MONDAY_S))
        surer = await planner.what_if(Question(at_s=MONDAY_S, unknown_percent=90))
    (answer,) = found.answers
    assert (answer.model_id, answer.pipelines) == ("small", 1)
    assert answer.chance == pytest.approx(1 - 0.3**3)
    assert surer.answers[0].chance == pytest.approx(1 - 0.3**3 * 0.1)
    shown = [item for item in answer_tables(found, Question(at_s=MONDAY_S)) if isinstance(item, str)]
    assert any("1 PC does not tell" in line for line in shown)


async def test_what_if_without_any_model_says_how_to_add_one(fleet: Fleet, registry: Registry) -> None:
    async with planning(fleet, registry) as (planner, _):
        found = await planner.what_if(Question(at_s=MONDAY_S))
    assert found == Answers([])
    assert "models --add" in str(list(answer_tables(found, Question(at_s=MONDAY_S)))[-1])
