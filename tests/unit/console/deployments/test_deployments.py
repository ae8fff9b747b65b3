"""Deployments over a real hub, with PCs that play their stages."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from console.api.admin import types as wire
from console.errors import DeployRefused, ModelUnavailable
from console.facts import FleetFacts
from console.pipeline.types import Failed, Finished, SpeculationStatus, Text
from console.registry.audit import CONSOLE
from console.registry.registry import Registry
from console.status_tables import status_tables
from tests.conftest import ExpectLogs
from tests.support.deployments import all_events, ask, deploying, request
from tests.support.fleet import Fleet
from tests.support.patience import PATIENCE_S, until
from tests.support.played import playing

COORDINATOR = "console.pipeline"


async def test_a_deployment_plans_loads_probes_and_answers(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing(fleet, "a"), playing(fleet, "b"), deploying(fleet, registry) as deployments:
        events = await all_events(deployments, request())
        assert isinstance(events[0], wire.Planned)
        assert {stage.device_name for stage in events[0].stages} == {"a", "b"}
        assert {event.stage for event in events if isinstance(event, wire.StageUp)} == {0, 1}
        assert any(isinstance(event, wire.Loading) and event.phase == "fetch" for event in events)
        assert isinstance(events[-1], wire.Ready)
        answer = await ask(deployments)
        assert "".join(event.text for event in answer if isinstance(event, Text)) == "Paris."
        assert isinstance(answer[-1], Finished)
        (view,) = deployments.views()
        assert (view.state, view.epoch, view.probe.ok) == ("ready", 1, True)
        assert [model.model_id for model in deployments.served()] == ["small"]
        generator = deployments.generator("small")
        ids = generator.encode_text("Paris.")
        assert (generator.decode(ids), max(ids) < generator.vocab_size) == ("Paris.", True)
        assert b"".join(map(generator.token_bytes, ids)).endswith(b"Paris.")


async def test_a_pc_that_cannot_load_is_named_and_everything_is_taken_back(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with (
        playing(fleet, "good") as good,
        playing(fleet, "bad", fails="memory"),
        deploying(fleet, registry) as deployments,
    ):
        broken = (await all_events(deployments, request()))[-1]
        assert isinstance(broken, wire.Broken)
        assert (broken.code, broken.device_name) == ("memory", "bad")
        assert "bad could not load its stage: it has not enough memory." in broken.message
        async with asyncio.timeout(PATIENCE_S):
            while not good.unloads:
                await asyncio.sleep(0.01)
        assert deployments.views()[0].state == "failed"
        assert deployments.served() == []
        assert registry.deployments.list() == []
        with pytest.raises(ModelUnavailable, match="not enough memory"):
            deployments.generator("small")


async def test_status_says_why_a_stage_runs_another_engine(fleet: Fleet, registry: Registry, library: Path) -> None:
    report = {
        "engine": "stateful",
        "reason": "stateful stands in for paged",
        "refused": {"paged": "It has a soft cap."},
    }
    async with playing(fleet, "a", report=report), playing(fleet, "b"), deploying(fleet, registry) as deployments:
        assert isinstance((await all_events(deployments, request()))[-1], wire.Ready)
        views = deployments.views()
    status = wire.Status("1", 0.0, "http://localhost", [], 2, 2, views)
    lines = [line for line in status_tables(status) if isinstance(line, str)]
    (said,) = [line for line in lines if line.startswith("Layers")]
    assert said.endswith(": stateful stands in for paged; not paged: It has a soft cap.")


async def test_stages_with_different_runtimes_are_refused_by_name(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with (
        playing(fleet, "new"),
        playing(fleet, "old", report={"openvino": "2025.1"}),
        deploying(fleet, registry) as deployments,
    ):
        broken = (await all_events(deployments, request(numerics="exact")))[-1]
        assert isinstance(broken, wire.Broken)
        assert broken.code == "mismatch"
        assert "2025.1" in broken.message


async def test_a_fleet_too_small_is_refused_with_the_planner_s_sentence(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing(fleet, "only"), deploying(fleet, registry) as deployments:
        broken = (await all_events(deployments, request()))[-1]
        assert isinstance(broken, wire.Broken)
        assert broken.code == "refused"
        assert broken.message.endswith(".")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"model": "other"}, "no layer library of 'other'"),
        ({"devices": ["nobody"]}, "No device has the id"),
    ],
)
async def test_what_is_unknown_is_refused_before_anything_starts(
    fleet: Fleet, registry: Registry, library: Path, fields: dict[str, Any], sentence: str
) -> None:
    async with deploying(fleet, registry) as deployments:
        with pytest.raises(DeployRefused, match=sentence):
            deployments.deploy(request(**fields), CONSOLE)
        assert deployments.views() == []


async def test_more_context_than_the_model_has_is_refused(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing(fleet, "a"), playing(fleet, "b"), deploying(fleet, registry) as deployments:
        broken = (await all_events(deployments, request(context=1024)))[-1]
        assert isinstance(broken, wire.Broken)
        assert "at most 512 tokens" in broken.message


async def test_a_restarted_console_waits_for_its_pcs_and_serves_again(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing(fleet, "a"), playing(fleet, "b"), deploying(fleet, registry) as deployments:
        await all_events(deployments, request(draft="none"))
    async with deploying(fleet, registry) as deployments:
        with pytest.raises(ModelUnavailable, match="waiting for the PCs"):
            deployments.generator("small")
        assert [model.model_id for model in deployments.served()] == ["small"]
        async with playing(fleet, "a") as a, playing(fleet, "b"):
            await until(lambda: deployments.views()[0].state == "ready")
            assert deployments.views()[0].epoch == 2
            assert a.loads[0].epoch == 2
            assert isinstance((await ask(deployments))[-1], Finished)
            assert deployments.views()[0].speculation == SpeculationStatus(reason="Switched off.")


async def test_undeploying_ends_the_streams_and_forgets_the_model(
    fleet: Fleet, registry: Registry, library: Path, expected_logs: ExpectLogs
) -> None:
    expected_logs(COORDINATOR, required=False)
    async with playing(fleet, "a") as a, playing(fleet, "b"), deploying(fleet, registry) as deployments:
        await all_events(deployments, request())
        a.mute = True
        a.stepped.clear()
        asking = asyncio.create_task(ask(deployments))
        await a.stepped.wait()
        await deployments.undeploy("small", CONSOLE)
        assert isinstance((await asking)[-1], Failed)
        assert registry.deployments.list() == []
        with pytest.raises(KeyError):
            deployments.generator("small")
        with pytest.raises(DeployRefused):
            await deployments.undeploy("small", CONSOLE)


async def test_a_registry_that_is_away_costs_only_the_measurements(
    fleet: Fleet, registry: Registry, library: Path, monkeypatch: pytest.MonkeyPatch, expected_logs: ExpectLogs
) -> None:
    tried = []

    def fail(*_: object) -> None:
        tried.append(True)
        raise OperationalError("", None, Exception("the server is restarting"))

    monkeypatch.setattr(FleetFacts, "measured", fail)
    monkeypatch.setattr("console.deployments.keeper.LOOK_S", 0.02)
    monkeypatch.setattr("console.deployments.keeper.PROBE_EVERY_S", 0.02)
    expected_logs("console.deployments.keeper", "cannot be noted now")
    async with playing(fleet, "a") as a, playing(fleet, "b") as b, deploying(fleet, registry) as deployments:
        await all_events(deployments, request())
        await until(lambda: len(tried) > 2)
        assert (deployments.views()[0].state, deployments.views()[0].epoch) == ("ready", 1)
        assert isinstance((await ask(deployments))[-1], Finished)
        await deployments.undeploy("small", CONSOLE)
        await until(lambda: bool(a.unloads and b.unloads))


async def test_a_second_rollout_of_a_model_is_refused_while_one_runs(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing(fleet, "a"), playing(fleet, "b"), deploying(fleet, registry) as deployments:
        first = deployments.deploy(request(), CONSOLE)
        with pytest.raises(DeployRefused, match="already"):
            deployments.deploy(request(), CONSOLE)
        assert isinstance([event async for event in first][-1], wire.Ready)
