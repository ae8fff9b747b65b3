"""A model is deployed while it is served: it answers all the time, and a failure leaves what was there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from agent.link.messages import Device
from console.api.admin import types as wire
from console.deployments.deployments import Deployments
from console.pipeline.types import Failed, Finished
from console.registry.audit import CONSOLE
from console.registry.errors import WrongState
from console.registry.registry import Registry
from tests.conftest import ExpectLogs
from tests.support.deployments import all_events, ask, deploying, request
from tests.support.fleet import Fleet
from tests.support.patience import until
from tests.support.played import make_chat_library, playing
from tests.support.served import asked_and_stuck, leave, playing_all, resolve_all, served_by, state_of
from tests.support.toy_stages import text_of


def in_background(deployments: Deployments, **fields: Any) -> asyncio.Task[list[wire.DeployEvent]]:
    return asyncio.create_task(all_events(deployments, request(**fields)))


async def test_what_is_served_answers_until_the_new_one_is_ready(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing(fleet, "a") as a, playing(fleet, "b") as b, deploying(fleet, registry) as deployments:
        await all_events(deployments, request())
        first = registry.deployments.list()
        a.holding = b.holding = asyncio.Event()
        events = in_background(deployments, stages=1, context=128)
        await until(lambda: len(a.loads) + len(b.loads) == 3)
        assert text_of(await ask(deployments)) == "Paris."
        (view,) = deployments.views()
        assert (view.state, view.epoch, view.request.context) == ("ready", 1, 256)
        assert "Another deployment is on its way" in view.message
        assert registry.deployments.list() == first, "a console that dies now brings the old one back"
        a.holding.set()
        assert isinstance((await events)[-1], wire.Ready)
        (view,) = deployments.views()
        assert (view.state, view.epoch, view.request.context, len(view.stages)) == ("ready", 2, 128, 1)
        assert text_of(await ask(deployments)) == "Paris."
        await until(lambda: bool(a.unloads and b.unloads))
        assert {unload.pipeline for pc in (a, b) for unload in pc.unloads} == {1}
        (saved,) = registry.deployments.list()
        assert saved.settings["context"] == 128


async def test_an_answer_that_runs_ends_where_it_began(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing(fleet, "a") as a, playing(fleet, "b") as b, deploying(fleet, registry) as deployments:
        await all_events(deployments, request(stages=1))
        pc = a if a.loads else b
        pc.holding = asyncio.Event()
        pc.stepped.clear()
        pc.mute = True
        asking = asyncio.create_task(ask(deployments))
        await pc.stepped.wait()
        answers, pc.mute = pc, False
        events = in_background(deployments, stages=1)
        await until(lambda: len(a.loads) + len(b.loads) == 2)
        answers.holding.set()  # type: ignore[union-attr]  # set above
        assert isinstance((await events)[-1], wire.Ready)
        assert not pc.unloads, "somebody waits for it"
        await deployments.undeploy("small", CONSOLE)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_a_failure_names_the_pc_and_leaves_what_is_served(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing(fleet, "a") as a, playing(fleet, "b") as b, deploying(fleet, registry) as deployments:
        await all_events(deployments, request())
        b.fails = "load"
        broken = (await all_events(deployments, request(context=128)))[-1]
        assert isinstance(broken, wire.Broken)
        assert (broken.code, broken.device_name) == ("load", "b")
        (view,) = deployments.views()
        assert (view.state, view.epoch, view.request.context, view.message) == ("ready", 1, 256, "")
        assert text_of(await ask(deployments)) == "Paris."
        assert {unload.pipeline for unload in a.unloads} == {2}
        assert registry.deployments.list()[0].settings["context"] == 256


async def test_without_memory_for_both_the_old_one_makes_room_and_comes_back_if_the_new_one_fails(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    small = {"devices": [Device("CPU", "A processor", 190 << 20, ["paged"])]}
    async with playing(fleet, "a", hello=small) as a, deploying(fleet, registry) as deployments:
        await all_events(deployments, request(stages=1))
        # The plan would fit, but not beside the other one.
        events = await all_events(deployments, request(stages=1, context=128))
        notes = [event.message for event in events if isinstance(event, wire.Note)]
        assert len(notes) == 1
        assert "makes room first" in notes[0]
        assert isinstance(events[-1], wire.Ready)
        assert deployments.views()[0].request.context == 128
        a.fails = "load"
        broken = (await all_events(deployments, request(stages=1, context=64)))[-1]
        assert isinstance(broken, wire.Broken)
        a.fails = ""
        await until(lambda: deployments.views()[0].state == "ready")
        (view,) = deployments.views()
        assert view.request.context == 128
        assert isinstance((await ask(deployments))[-1], Finished)


async def test_what_made_room_does_not_say_that_it_answers(fleet: Fleet, registry: Registry, library: Path) -> None:
    small = {"devices": [Device("CPU", "A processor", 190 << 20, ["paged"])]}
    async with playing(fleet, "a", hello=small) as a, deploying(fleet, registry) as deployments:
        await all_events(deployments, request(stages=1))
        a.holding = asyncio.Event()
        events = in_background(deployments, stages=1, context=128)
        await until(lambda: len(a.loads) == 2)
        (view,) = deployments.views()
        assert view.message == "It makes room for another deployment of the model."
        a.holding.set()
        assert isinstance((await events)[-1], wire.Ready)


async def test_nobody_waits_for_answers_of_what_was_replaced_while_it_was_interrupted(
    fleet: Fleet, registry: Registry, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_all(monkeypatch)
    async with playing_all(fleet, "a", "b") as pcs, deploying(fleet, registry) as deployments:
        ids = [pc.agent.device_id for pc in pcs.values()]
        # Neither may have it all, so nobody takes over.
        limits = [wire.LimitedPc(device_id, layers=2) for device_id in ids]
        served = await served_by(deployments, pcs, devices=ids, rules=wire.PlanRules(limits=limits))
        asking = await asked_and_stuck(deployments, served.tail)
        await leave(fleet, served.tail)
        await until(lambda: state_of(deployments) == "recovering")
        async with playing(fleet, "c") as c:
            await all_events(deployments, request(stages=1, devices=[c.agent.device_id]))
            assert isinstance((await asking)[-1], Failed)
            assert text_of(await ask(deployments)) == "Paris."


async def test_undeploying_ends_the_attempt_and_what_is_served(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing(fleet, "a") as a, playing(fleet, "b") as b, deploying(fleet, registry) as deployments:
        await all_events(deployments, request())
        a.holding = b.holding = asyncio.Event()
        events = in_background(deployments, context=128)
        await until(lambda: len(a.loads) + len(b.loads) == 4)
        await deployments.undeploy("small", CONSOLE)
        last = (await events)[-1]
        assert isinstance(last, wire.Broken)
        assert last.code == "undeployed"
        assert deployments.views() == []
        assert registry.deployments.list() == []
        a.holding.set()


async def test_a_library_is_not_forgotten_while_it_is_being_deployed(
    fleet: Fleet, registry: Registry, library: Path, tmp_path: Path
) -> None:
    async with playing(fleet, "a") as a, playing(fleet, "b") as b, deploying(fleet, registry) as deployments:
        await all_events(deployments, request())
        make_chat_library(tmp_path / "newer", layers=6)
        newer = (await deployments._shelf.add(tmp_path / "newer", CONSOLE)).digest
        a.holding = b.holding = asyncio.Event()
        events = in_background(deployments)
        await until(lambda: len(a.loads) + len(b.loads) == 4)
        assert registry.libraries.user_of(newer) == "", "no deployment is saved with it yet"
        with pytest.raises(WrongState, match="small is being deployed from it"):
            deployments._shelf.remove(newer, CONSOLE)
        a.holding.set()
        assert isinstance((await events)[-1], wire.Ready)
        assert registry.libraries.user_of(newer) == "the deployment small uses it"


async def test_what_cannot_be_saved_leaves_what_is_served_and_the_next_attempt_is_free(
    fleet: Fleet, registry: Registry, library: Path, monkeypatch: pytest.MonkeyPatch, expected_logs: ExpectLogs
) -> None:
    expected_logs("console.deployments.replacing", "failed unexpectedly")
    async with playing(fleet, "a") as a, playing(fleet, "b") as b, deploying(fleet, registry) as deployments:
        await all_events(deployments, request())
        with monkeypatch.context() as away:
            away.setattr(registry.deployments, "save", locked)
            broken = (await all_events(deployments, request(context=128)))[-1]
        assert isinstance(broken, wire.Broken)
        (view,) = deployments.views()
        assert (view.state, view.request.context, view.message) == ("ready", 256, "")
        assert text_of(await ask(deployments)) == "Paris."
        assert {unload.pipeline for pc in (a, b) for unload in pc.unloads} == {2}
        assert isinstance((await all_events(deployments, request(context=64)))[-1], wire.Ready)
        assert registry.deployments.list()[0].settings["context"] == 64


async def test_an_attempt_has_an_end_also_where_the_registry_is_away_all_the_time(
    fleet: Fleet, registry: Registry, library: Path, monkeypatch: pytest.MonkeyPatch, expected_logs: ExpectLogs
) -> None:
    expected_logs("console.deployments.replacing", "failed unexpectedly")
    expected_logs("console.deployments.replacing", "may come back at the next start")
    async with playing(fleet, "a"), playing(fleet, "b"), deploying(fleet, registry) as deployments:
        with monkeypatch.context() as away:
            for call in ("save", "list", "remove"):
                away.setattr(registry.deployments, call, locked)
            broken = (await all_events(deployments, request()))[-1]
        assert isinstance(broken, wire.Broken)
        assert deployments.live() == []
        assert isinstance((await all_events(deployments, request()))[-1], wire.Ready)


def locked(*_: object) -> None:
    raise OperationalError("", None, Exception("database is locked"))
