"""A plan made by hand is deployed as it is or not at all; when PCs leave somebody answers all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.api.admin import types as wire
from console.deployments.deployments import Deployments
from console.registry.audit import CONSOLE
from console.registry.registry import Registry
from tests.support.deployments import all_events, ask, deploying, request
from tests.support.fleet import Fleet
from tests.support.patience import until
from tests.support.played import PlayedPC
from tests.support.served import playing_all, resolve_all, state_of
from tests.support.toy_stages import text_of

Parts = list[tuple[PlayedPC, int, int]]


@pytest.fixture(autouse=True)
def _by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_all(monkeypatch)


def by_hand(*pipelines: Parts, **fields: Any) -> wire.DeployRequest:
    plan = [[wire.GivenStage(pc.agent.device_id, first, last) for pc, first, last in parts] for parts in pipelines]
    return request(stages=None, replicas=len(plan), plan=plan, **fields)


def served(deployments: Deployments) -> list[list[tuple[str, int, int]]]:
    return [[(one.device_name, one.first, one.last) for one in view.stages] for view in deployments.views()]


async def test_it_is_deployed_exactly_as_it_is_and_answers(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing_all(fleet, "a", "b", "c") as pcs, deploying(fleet, registry) as deployments:
        asked = by_hand([(pcs["c"], 0, 1), (pcs["a"], 1, 4)], [(pcs["b"], 0, 4)])
        assert isinstance((await all_events(deployments, asked))[-1], wire.Ready)
        assert served(deployments) == [[("c", 0, 1), ("a", 1, 4)], [("b", 0, 4)]]
        assert text_of(await ask(deployments)) == "Paris."
        plans = deployments.plans_of("small")
        assert [[stage.name for stage in plan.stages] for plan in plans] == [["c", "a"], ["b"]]


def excluded(device: str) -> dict[str, Any]:
    return {"rules": wire.PlanRules(exclude=[device])}


def limited(device: str) -> dict[str, Any]:
    return {"rules": wire.PlanRules(limits=[wire.LimitedPc(device, memory_mb=100)])}


def not_among_those_asked_for(device: str) -> dict[str, Any]:
    return {"devices": ["another"]}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (excluded, "a is left out"),
        (limited, "a needs"),
        (not_among_those_asked_for, "cannot be used now"),
    ],
)
async def test_one_that_breaks_a_rule_reaches_no_pc_and_leaves_what_is_served(
    fleet: Fleet, registry: Registry, library: Path, fields: Callable[[str], dict[str, Any]], said: str
) -> None:
    async with playing_all(fleet, "a", "b", "c") as pcs, deploying(fleet, registry) as deployments:
        await all_events(deployments, by_hand([(pcs["b"], 0, 4)]))
        loads = [list(pc.loads) for pc in pcs.values()]
        asked = by_hand([(pcs["a"], 0, 3), (pcs["b"], 3, 4)], **fields(pcs["a"].agent.device_id))
        broken = await all_events(deployments, asked)
        assert isinstance(broken[-1], wire.Broken)
        assert broken[-1].code == "refused"
        assert said in broken[-1].message
        assert [list(pc.loads) for pc in pcs.values()] == loads
        assert served(deployments) == [[("b", 0, 4)]]
        assert text_of(await ask(deployments)) == "Paris."


async def test_a_gap_or_a_pc_with_two_pipelines_is_refused_as_a_whole(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing_all(fleet, "a", "b") as pcs, deploying(fleet, registry) as deployments:
        gap = await all_events(deployments, by_hand([(pcs["a"], 0, 4)], [(pcs["b"], 0, 3)]))
        twice = await all_events(deployments, by_hand([(pcs["a"], 0, 4)], [(pcs["a"], 0, 4)]))
        assert "Layer 3 is on no PC" in getattr(gap[-1], "message", "")
        assert "a has 2 stages" in getattr(twice[-1], "message", "")
        assert not pcs["a"].loads


async def test_a_pc_that_fails_to_load_leaves_what_was_served(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing_all(fleet, "a", "b") as pcs, deploying(fleet, registry) as deployments:
        await all_events(deployments, by_hand([(pcs["a"], 0, 4)]))
        pcs["b"].fails = "load"
        broken = (await all_events(deployments, by_hand([(pcs["a"], 0, 2), (pcs["b"], 2, 4)])))[-1]
        assert isinstance(broken, wire.Broken)
        assert broken.device_name == "b"
        assert served(deployments) == [[("a", 0, 4)]]
        assert text_of(await ask(deployments)) == "Paris."


async def test_when_one_of_its_pcs_leaves_another_goes_on(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing_all(fleet, "a", "b", "c") as pcs, deploying(fleet, registry) as deployments:
        await all_events(deployments, by_hand([(pcs["a"], 0, 1), (pcs["b"], 1, 4)]))
        await pcs["a"].agent.close()
        await until(lambda: state_of(deployments) == "ready" and served(deployments)[0][0][0] == "c")
        assert served(deployments) == [[("c", 0, 1), ("b", 1, 4)]]
        assert text_of(await ask(deployments)) == "Paris."


async def test_with_too_few_pcs_left_for_it_the_planner_has_its_way(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing_all(fleet, "a", "b") as pcs, deploying(fleet, registry) as deployments:
        await all_events(deployments, by_hand([(pcs["a"], 0, 1), (pcs["b"], 1, 4)]))
        await pcs["a"].agent.close()
        await until(lambda: state_of(deployments) == "ready" and len(served(deployments)[0]) == 1)
        assert served(deployments) == [[("b", 0, 4)]]


async def test_after_a_restart_it_comes_back_as_it_was(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing_all(fleet, "a", "b") as pcs:
        async with deploying(fleet, registry) as deployments:
            await all_events(deployments, by_hand([(pcs["b"], 0, 3), (pcs["a"], 3, 4)]))
        async with deploying(fleet, registry) as deployments:
            await until(lambda: state_of(deployments) == "ready")
            assert served(deployments) == [[("b", 0, 3), ("a", 3, 4)]]
            await deployments.undeploy("small", CONSOLE)


def test_a_plan_says_itself_how_many_stages_and_replicas_there_are() -> None:
    stage = wire.GivenStage("a", 0, 4)
    with pytest.raises(ValueError, match="says itself"):
        request(stages=1, plan=[[stage]])
    with pytest.raises(ValueError, match="says itself"):
        request(stages=None, replicas=2, plan=[[stage]])
