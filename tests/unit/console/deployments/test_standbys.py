"""PCs in reserve, and PCs that leave by their own will, over a real hub with PCs that play their stages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.link.identity import DeviceId
from agent.link.messages import Heartbeat, LayerRange
from console.deployments.deployments import Deployments
from console.deployments.standbys import Standbys
from console.fleet.measured import STAGES_FACT
from console.registry.audit import CONSOLE
from console.registry.registry import Registry
from console.registry.sightings import Sighting
from tests.conftest import ExpectLogs
from tests.support.deployments import all_events, ask, deploying, request
from tests.support.fleet import Fleet
from tests.support.patience import until
from tests.support.played import PlayedPC, playing
from tests.support.served import (
    Served,
    ask_to_leave,
    asked_and_stuck,
    give_back,
    leave,
    playing_all,
    resolve_all,
    served_by,
    state_of,
)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.deployments.keeper.LOOK_S", 0.02)
    monkeypatch.setattr("console.deployments.standbys.AGAIN_S", 0.02)


async def want_to_leave(fleet: Fleet, pc: PlayedPC) -> None:
    await ask_to_leave(pc)


def standbys_of(deployments: Deployments) -> set[str]:
    return {standby.device_name for standby in deployments.views()[0].standbys}


async def with_a_warm_one(deployments: Deployments, pcs: dict[str, PlayedPC]) -> tuple[Served, PlayedPC, PlayedPC]:
    """Serve a model with one warm standby; who serves, the standby, and who is left."""
    served = await served_by(deployments, pcs, standbys=1, standby="warm")
    await until(lambda: bool(standbys_of(deployments)))
    first, second = sorted(served.spares, key=lambda pc: served.name_of(pc) not in standbys_of(deployments))
    return served, first, second


@pytest.mark.parametrize("lose", [leave, give_back, want_to_leave], ids=lambda lose: lose.__name__)
async def test_a_warm_standby_that_is_gone_is_shown_no_more_and_replaced(
    fleet: Fleet, registry: Registry, library: Path, lose: Callable[[Fleet, PlayedPC], Awaitable[None]]
) -> None:
    async with playing_all(fleet, "a", "b", "c", "d") as pcs, deploying(fleet, registry) as deployments:
        served, warm, other = await with_a_warm_one(deployments, pcs)
        await lose(fleet, warm)
        await until(lambda: standbys_of(deployments) == {served.name_of(other)})
        assert other.fetches == warm.fetches
        assert (state_of(deployments), deployments.views()[0].epoch) == ("ready", 1)
        await lose(fleet, other)
        await until(lambda: not standbys_of(deployments))


async def test_a_warm_standby_that_takes_over_is_replaced(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing_all(fleet, "a", "b", "c", "d") as pcs, deploying(fleet, registry) as deployments:
        served, warm, other = await with_a_warm_one(deployments, pcs)
        await give_back(fleet, served.tail)
        await until(lambda: bool(warm.loads))
        await until(lambda: standbys_of(deployments) == {served.name_of(other)})
        assert other.fetches == warm.fetches


async def test_a_warm_standby_gets_the_ranges_that_are_served_now(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing_all(fleet, "a", "b", "c") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs, standbys=1, standby="warm")
        await until(lambda: bool(standbys_of(deployments)))
        (warm,) = served.spares
        (entry,) = deployments._book.entries.values()
        assert entry.live is not None
        wanted = entry.live.warm[warm.agent.device_id]
        entry.live.warm[warm.agent.device_id] = [LayerRange(entry.digest, 0, 1)]  # of a plan before
        await until(lambda: warm.fetches == [*wanted, *wanted])


@pytest.mark.parametrize(
    ("kind", "fails"), [("hot", {"fails": "memory"}), ("warm", {"cannot_fetch": "its disk is full."})]
)
async def test_a_pc_that_cannot_get_ready_keeps_no_other_from_it(
    fleet: Fleet, registry: Registry, library: Path, kind: str, fails: dict[str, Any]
) -> None:
    async with playing_all(fleet, "a", "b") as pcs, deploying(fleet, registry) as deployments:
        await served_by(deployments, pcs, standbys=1, standby=kind)
        async with playing(fleet, "bad", **fails) as bad:
            await until(lambda: bool(bad.loads or bad.fetches))
            speeds = {STAGES_FACT: {"auto/fast/CPU": 0.01}}
            registry.sightings.note([Sighting(DeviceId(bad.agent.device_id), facts=speeds)])
            async with playing(fleet, "good"):
                await until(lambda: standbys_of(deployments) == {"good"})


async def test_what_fails_unexpectedly_in_a_hand_over_is_logged_and_holds_nobody_up(
    fleet: Fleet, registry: Registry, library: Path, monkeypatch: pytest.MonkeyPatch, expected_logs: ExpectLogs
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a surprise")

    monkeypatch.setattr(Standbys, "_prepare_for", fail)
    expected_logs("console.deployments.standbys", "Handing small over failed unexpectedly")
    async with playing_all(fleet, "a", "b", "c") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs)
        await ask_to_leave(served.tail)
        await until(lambda: bool(served.tail.unloads) and state_of(deployments) == "ready")


async def test_pcs_hear_which_files_need_not_stay_when_nothing_is_in_reserve_any_more(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing_all(fleet, "a", "b", "c", "d") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs, standbys=2, standby="hot")
        await until(lambda: all(pc.kept for pc in served.spares))
        (entry,) = deployments._book.entries.values()
        entry.request = msgspec.structs.replace(entry.request, standbys=0)
        await until(lambda: all(pc.kept == [] for pc in served.spares))
        assert served.head.kept


async def test_pcs_hear_which_files_need_not_stay_when_a_model_is_replaced(
    fleet: Fleet, registry: Registry, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_all(monkeypatch)
    async with playing_all(fleet, "a", "b", "c", "d") as pcs, deploying(fleet, registry) as deployments:
        served, warm, other = await with_a_warm_one(deployments, pcs)
        await until(lambda: warm.kept == warm.fetches)
        await all_events(deployments, request(stages=1, devices=[other.agent.device_id]))
        await until(lambda: all(pc.kept == [] for pc in (served.head, served.tail, warm)))
        assert other.kept


async def test_pcs_hear_which_files_need_not_stay_when_a_model_is_taken_down(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing_all(fleet, "a", "b", "c", "d") as pcs, deploying(fleet, registry) as deployments:
        served, warm, _ = await with_a_warm_one(deployments, pcs)
        await until(lambda: warm.kept == warm.fetches)
        await deployments.undeploy("small", CONSOLE)
        await until(lambda: all(pc.kept == [] for pc in (served.head, served.tail, warm)))


# Leaving by one's own will


async def test_a_standby_that_left_and_came_back_is_not_unloaded_at_the_next_loss(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing_all(fleet, "a", "b", "c") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs, standbys=1, standby="hot")
        await until(lambda: bool(standbys_of(deployments)))
        (hot,) = served.spares
        await ask_to_leave(hot)
        await until(lambda: bool(hot.unloads))
        await hot.agent.say(Heartbeat(1 << 30))
        await until(lambda: bool(standbys_of(deployments)))
        asking = await asked_and_stuck(deployments, served.tail, after=2)
        await give_back(fleet, served.tail)
        await asking
        assert len(hot.unloads) == 1


async def test_a_pc_that_wanted_to_leave_and_stays_serves_on(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing_all(fleet, "a", "b", "c") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs, standbys=1, standby="warm")
        await until(lambda: bool(standbys_of(deployments)))
        (spare,) = served.spares
        spare.holding = asyncio.Event()
        await ask_to_leave(served.tail)
        await until(lambda: bool(spare.loads))
        (entry,) = deployments._book.entries.values()
        await served.tail.agent.say(Heartbeat(1 << 30))
        await until(lambda: not entry.leaving)
        spare.holding.set()
        # What got ready for nothing is let go once the model is watched again.
        await until(lambda: bool(spare.unloads))
        view = deployments.views()[0]
        assert (view.state, view.epoch, served.tail.unloads) == ("ready", 1, [])


async def test_two_pcs_that_leave_at_once_are_both_replaced(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing_all(fleet, "a", "b", "c", "d") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs, standbys=2, standby="warm")
        await until(lambda: len(standbys_of(deployments)) == 2)
        for spare in served.spares:
            spare.holding = asyncio.Event()
        await ask_to_leave(served.tail)
        await until(lambda: any(spare.loads for spare in served.spares))
        await ask_to_leave(served.head)
        await until(lambda: bool(served.tail.unloads and served.head.unloads))
        for spare in served.spares:
            assert spare.holding is not None
            spare.holding.set()
        await until(lambda: state_of(deployments) == "ready")
        serving = {stage.device_name for stage in deployments.views()[0].stages}
        assert serving == {served.name_of(spare) for spare in served.spares}
        await ask(deployments)
