"""Several pipelines of one model, each on PCs of its own: answers go to one of them, and one may fail alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from console.api.admin import types as wire
from console.deployments.deployments import Deployments
from console.errors import ModelUnavailable
from console.pipeline.types import Finished
from console.registry.audit import CONSOLE
from console.registry.registry import Registry
from console.status_tables import status_tables
from tests.support.deployments import all_events, ask, deploying, request
from tests.support.fleet import Fleet
from tests.support.patience import until
from tests.support.played import playing

TWICE = request(stages=1, replicas=2)


def devices(deployments: Deployments) -> list[list[str]]:
    return [[stage.device_name for stage in view.stages] for view in deployments.views()]


async def test_each_pipeline_has_pcs_and_numbers_of_its_own_and_status_shows_both(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing(fleet, "a"), playing(fleet, "b"), deploying(fleet, registry) as deployments:
        events = await all_events(deployments, TWICE)
        assert isinstance(events[-1], wire.Ready)
        views = deployments.views()
        assert [(view.model, view.number, view.state) for view in views] == [
            ("small", 0, "ready"),
            ("small", 1, "ready"),
        ]
        assert sorted(devices(deployments)) == [["a"], ["b"]]
        assert [model.model_id for model in deployments.served()] == ["small"]
        assert {saved.name for saved in registry.deployments.list()} == {"small", "small#2"}
        shown = list(status_tables(wire.Status("1", 0.0, "http://x", [], 2, 2, views)))
        assert any(isinstance(line, str) and line.startswith("small (pipeline 2 of 2): ready") for line in shown)
        assert isinstance((await ask(deployments))[-1], Finished)


async def test_answers_of_all_pipelines_are_measured_together_and_probes_are_not(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing(fleet, "a"), playing(fleet, "b"), deploying(fleet, registry) as deployments:
        await all_events(deployments, TWICE)
        assert deployments.performances().models == []
        for _ in range(2):
            await ask(deployments)
        (measured,) = deployments.performances().models
        assert (measured.model, measured.answers) == ("small", 2)
        assert measured.first_token_ms is not None
        assert measured.between_tokens_ms is not None


async def test_answers_at_once_are_spread_over_the_pipelines(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing(fleet, "a") as a, playing(fleet, "b") as b, deploying(fleet, registry) as deployments:
        await all_events(deployments, TWICE)
        a.mute = b.mute = True
        asking = [asyncio.create_task(ask(deployments)) for _ in range(2)]
        await until(lambda: [view.running for view in deployments.views()] == [1, 1])
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


@pytest.mark.expected_logs("console")
async def test_when_one_pipeline_loses_its_pc_the_other_answers_and_it_comes_back(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing(fleet, "a"), deploying(fleet, registry) as deployments:
        async with playing(fleet, "b"):
            await all_events(deployments, request(stages=1, replicas=2, recover_s=0))
        await until(lambda: sorted(view.state for view in deployments.views()) == ["ready", "waiting"])
        assert isinstance((await ask(deployments))[-1], Finished)
        async with playing(fleet, "b"):
            await until(lambda: [view.state for view in deployments.views()] == ["ready", "ready"])


async def test_a_pipeline_without_pcs_waits_and_the_first_serves_meanwhile(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing(fleet, "a"), deploying(fleet, registry) as deployments:
        events = await all_events(deployments, TWICE)
        notes = [event.message for event in events if isinstance(event, wire.Note)]
        assert isinstance(events[-1], wire.Ready)
        assert len(notes) == 1
        assert notes[0].startswith("Pipeline 2 of 2 is not up yet and is tried again: ")
        assert [view.state for view in deployments.views()] == ["ready", "waiting"]
        async with playing(fleet, "b"):
            await until(lambda: [view.state for view in deployments.views()] == ["ready", "ready"])
        await deployments.undeploy("small", CONSOLE)
        assert deployments.views() == []
        assert registry.deployments.list() == []


async def test_all_pipelines_come_back_after_a_restart_and_fewer_take_their_place(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing(fleet, "a"), playing(fleet, "b"):
        async with deploying(fleet, registry) as deployments:
            await all_events(deployments, TWICE)
            before = devices(deployments)
        async with deploying(fleet, registry) as deployments:
            await until(lambda: [view.state for view in deployments.views()] == ["ready", "ready"])
            assert devices(deployments) == before
            await all_events(deployments, request(stages=1))
            await until(lambda: len(deployments.views()) == 1)
            assert [saved.name for saved in registry.deployments.list()] == ["small"]


async def test_a_model_whose_queues_are_all_taken_is_refused_before_anything_is_tokenized(
    fleet: Fleet, registry: Registry, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.deployments.routed.QUEUE_LIMIT", 0)
    async with playing(fleet, "a") as a, deploying(fleet, registry) as deployments:
        await all_events(deployments, request(stages=1, streams=1))
        a.mute = True
        asking = asyncio.create_task(ask(deployments))
        await until(lambda: deployments.views()[0].running == 1)
        with pytest.raises(ModelUnavailable, match="is full") as refused:
            deployments.generator("small")
        assert (refused.value.code, refused.value.retry_after_s) == ("overloaded", 2)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_pcs_with_different_runtimes_are_told_of_in_fast_and_refused_in_exact(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing(fleet, "a"), playing(fleet, "b") as b, deploying(fleet, registry) as deployments:
        b.report = {"openvino": "2026.1"}
        events = await all_events(deployments, request())
        assert isinstance(events[-1], wire.Ready)
        (note,) = [event.message for event in events if isinstance(event, wire.Note)]
        assert "2026.1" in note
        assert note in deployments.views()[0].message
        broken = (await all_events(deployments, request(numerics="exact")))[-1]
        assert isinstance(broken, wire.Broken)
        assert broken.code == "mismatch"
