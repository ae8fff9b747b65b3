"""What becomes of answers and deployments when PCs leave, over a real hub with PCs that play their stages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agent.link.closing import CloseCode
from agent.link.messages import Heartbeat, LayerRange
from agent.link.stage_messages import StageFailed
from console.errors import ModelUnavailable
from console.fleet.hub import Hub
from console.pipeline.types import Event, Failed, Finished, Recovering
from console.registry.audit import CONSOLE
from console.registry.registry import Registry
from tests.conftest import ExpectLogs
from tests.support.deployments import ask, deploying
from tests.support.fleet import Fleet
from tests.support.patience import until
from tests.support.played import PlayedPC, playing
from tests.support.served import (
    ask_to_leave,
    asked_and_stuck,
    give_back,
    leave,
    playing_all,
    served_by,
    state_of,
)
from tests.support.toy_stages import text_of

LOGGER = "console.pipeline"

Lose = Callable[[Fleet, PlayedPC], Awaitable[None]]


async def be_revoked(fleet: Fleet, pc: PlayedPC) -> None:
    fleet.set_state(pc.agent.device_id, "banned")
    sentence = "An administrator removed this PC."
    fleet.hub.disconnect(pc.agent.device_id, CloseCode.NOT_APPROVED, "revoked", sentence)


async def lose_the_stage(fleet: Fleet, pc: PlayedPC) -> None:
    load = pc.loads[-1]
    pc.mute = pc.answers_left >= 0
    await pc.agent.say(StageFailed(load.pipeline, load.epoch, load.stage, "died", "its process was killed."))


LOSSES: dict[Lose, str] = {
    leave: "{} left: its data link dropped",
    give_back: "{} went back to its owner (somebody is using it).",
    be_revoked: "{} left: An administrator removed this PC.",
    lose_the_stage: "The stage on {} ended: its process was killed.",
}


def notes_of(events: list[Event]) -> list[str]:
    return [event.reason for event in events if isinstance(event, Recovering)]


@pytest.mark.parametrize("lose", list(LOSSES), ids=lambda lose: lose.__name__)
@pytest.mark.parametrize("after", [0, 3])
async def test_another_pc_takes_over_and_the_answer_goes_on(
    fleet: Fleet, registry: Registry, library: Path, lose: Lose, after: int
) -> None:
    async with playing_all(fleet, "a", "b", "c") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs)
        asking = await asked_and_stuck(deployments, served.tail, after=after)
        await lose(fleet, served.tail)
        events = await asking
        assert text_of(events) == "Paris."
        assert isinstance(events[-1], Finished)
        (note,) = notes_of(events)
        assert note.startswith(LOSSES[lose].format(served.name_of(served.tail)))
        await until(lambda: state_of(deployments) == "ready")
        view = deployments.views()[0]
        assert (view.epoch, view.probe.ok, view.message) == (2, True, "")
        (spare,) = served.spares
        assert [stage.device_name for stage in view.stages] == [served.name_of(served.head), served.name_of(spare)]
        assert (len(served.head.loads), len(served.head.advances)) == (1, 1), "what is there is not loaded again"
        assert [saved.epoch for saved in registry.deployments.list()] == [2]
        assert text_of(await ask(deployments)) == "Paris."


async def test_an_agent_that_cannot_go_on_in_another_epoch_loads_anew(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        old = {"hello": {"advances": False}}
        pcs = {name: await stack.enter_async_context(playing(fleet, name, **old)) for name in ("a", "b", "c")}
        deployments = await stack.enter_async_context(deploying(fleet, registry))
        served = await served_by(deployments, pcs)
        asking = await asked_and_stuck(deployments, served.tail)
        await leave(fleet, served.tail)
        assert text_of(await asking) == "Paris."
        assert (len(served.head.loads), served.head.advances) == (2, [])


async def test_without_another_pc_the_ranges_are_planned_anew(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing_all(fleet, "a", "b") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs)
        asking = await asked_and_stuck(deployments, served.tail, after=2)
        await leave(fleet, served.tail)
        assert text_of(await asking) == "Paris."
        await until(lambda: state_of(deployments) == "ready")
        assert [(load.first, load.last) for load in served.head.loads][-1] == (0, 4)


@pytest.mark.parametrize("back", [True, False])
async def test_answers_wait_for_whoever_comes_and_end_when_nobody_does(
    fleet: Fleet, registry: Registry, library: Path, back: bool, expected_logs: ExpectLogs
) -> None:
    if not back:
        expected_logs(LOGGER, "Nobody took over")
    async with playing_all(fleet, "a", "b") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs, recover_s=20 if back else 0.3)
        asking = await asked_and_stuck(deployments, served.tail, after=2)
        await give_back(fleet, served.head)
        await give_back(fleet, served.tail)
        if not back:
            failed = (await asking)[-1]
            assert isinstance(failed, Failed)
            assert (failed.code, failed.retryable) == ("stage_lost", True)
            await until(lambda: state_of(deployments) == "waiting")
            with pytest.raises(ModelUnavailable, match="went back to its owner"):
                deployments.generator("small")
            assert [model.ready for model in deployments.served()] == [False]
        else:
            await until(lambda: state_of(deployments) == "recovering")
            assert not deployments.views()[0].probe.ok
            assert [model.ready for model in deployments.served()] == [False]
            queued = asyncio.create_task(ask(deployments))
        for pc in (served.head, served.tail):
            pc.mute, pc.answers_left = False, -1
            await pc.agent.say(Heartbeat(1 << 30))
        if back:
            assert text_of(await asking) == text_of(await queued) == "Paris."
        await until(lambda: state_of(deployments) == "ready")
        assert text_of(await ask(deployments)) == "Paris."
        assert [model.ready for model in deployments.served()] == [True]


async def test_who_cannot_take_over_is_passed_by(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing_all(fleet, "a", "b", "c", "d") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs)
        first, second = sorted(served.spares, key=lambda pc: pc.agent.device_id)
        first.fails = "memory"
        asking = await asked_and_stuck(deployments, served.tail, after=1)
        await leave(fleet, served.tail)
        assert text_of(await asking) == "Paris."
        assert (len(first.loads), len(second.loads)) == (1, 1)


async def test_in_exact_a_newcomer_with_another_runtime_is_passed_by_not_who_stayed(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing_all(fleet, "a", "b", "c", "d") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs, numerics="exact")
        first, second = sorted(served.spares, key=lambda pc: pc.agent.device_id)
        first.report = {"openvino": "2025.1"}
        asking = await asked_and_stuck(deployments, served.head, after=1)
        await leave(fleet, served.head)
        assert text_of(await asking) == "Paris."
        assert (len(first.loads), len(second.loads), len(served.tail.loads)) == (1, 1, 1)
        assert first.unloads


async def test_who_leaves_while_it_takes_over_is_replaced_as_well(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing_all(fleet, "a", "b", "c", "d") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs)
        first, second = sorted(served.spares, key=lambda pc: pc.agent.device_id)
        first.holding = asyncio.Event()
        asking = await asked_and_stuck(deployments, served.tail, after=1)
        await leave(fleet, served.tail)
        await until(lambda: bool(first.loads))
        await leave(fleet, first)
        first.holding.set()
        assert text_of(await asking) == "Paris."
        assert len(second.loads) == 1


async def test_a_stage_that_answers_nothing_any_more_is_replaced_when_others_go_on(
    fleet: Fleet, registry: Registry, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hub.advance, "__defaults__", (0.2,))
    async with playing_all(fleet, "a", "b", "c", "d") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs)
        asking = await asked_and_stuck(deployments, served.tail, after=1)
        served.head.frozen = True
        await leave(fleet, served.tail)
        assert text_of(await asking) == "Paris."
        assert all(len(pc.loads) == 1 for pc in served.spares)


async def test_undeploying_ends_answers_that_wait_for_others(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing_all(fleet, "a", "b") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs)
        asking = await asked_and_stuck(deployments, served.tail)
        await give_back(fleet, served.head)
        await give_back(fleet, served.tail)
        await deployments.undeploy("small", CONSOLE)
        failed = (await asking)[-1]
        assert isinstance(failed, Failed)
        assert failed.code == "cancelled"
        assert deployments.views() == []


# Standbys


async def test_a_hot_standby_takes_over_without_loading(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing_all(fleet, "a", "b", "c", "d") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs, standbys=2, standby="hot")
        await until(lambda: len(deployments.views()[0].standbys) == 2)
        view = deployments.views()[0]
        assert {(one.first, one.last) for one in view.standbys} == {(one.first, one.last) for one in view.stages}
        asking = await asked_and_stuck(deployments, served.head, after=2)
        loads = [len(pc.loads) for pc in served.spares]
        await give_back(fleet, served.head)
        assert text_of(await asking) == "Paris."
        assert [len(pc.loads) for pc in served.spares] == loads == [1, 1]
        assert sum(len(pc.advances) for pc in served.spares) == 1
        # Whoever left and comes back is the next standby.
        served.head.mute, served.head.answers_left = False, -1
        await served.head.agent.say(Heartbeat(1 << 30))
        await until(lambda: len(deployments.views()[0].standbys) == 2)


async def test_a_warm_standby_has_the_units_of_all_ranges_and_loads_what_is_lost(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing_all(fleet, "a", "b", "c", "d") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs, standbys=1, standby="warm")
        await until(lambda: bool(deployments.views()[0].standbys))
        (warm,) = [pc for pc in served.spares if pc.fetches]
        digest = registry.deployments.list()[0].library_digest
        ranges = [(one.first, one.last) for one in deployments.views()[0].stages]
        assert warm.fetches == [LayerRange(digest, *one) for one in ranges]
        asking = await asked_and_stuck(deployments, served.tail, after=2)
        await leave(fleet, served.tail)
        assert text_of(await asking) == "Paris."
        assert len(warm.loads) == 1


async def test_a_standby_that_leaves_interrupts_nobody_and_is_replaced(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing_all(fleet, "a", "b", "c", "d") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs, standbys=1, standby="hot")
        await until(lambda: bool(deployments.views()[0].standbys))
        (hot,) = [pc for pc in served.spares if pc.loads]
        (other,) = [pc for pc in served.spares if pc is not hot]
        await leave(fleet, hot)
        assert notes_of(await ask(deployments)) == []
        await until(lambda: bool(other.loads) and bool(deployments.views()[0].standbys))
        assert (state_of(deployments), deployments.views()[0].epoch) == ("ready", 1)


# Leaving by one's own will


@pytest.mark.parametrize("kind", ["hot", "warm"])
async def test_a_pc_that_leaves_by_itself_waits_until_its_standby_is_ready(
    fleet: Fleet, registry: Registry, library: Path, kind: str
) -> None:
    async with playing_all(fleet, "a", "b", "c") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs, standbys=1, standby=kind)
        await until(lambda: bool(deployments.views()[0].standbys))
        (spare,) = served.spares
        if kind == "warm":
            spare.holding = asyncio.Event()
        served.tail.stepped.clear()
        await ask_to_leave(served.tail)
        if spare.holding is not None:
            await until(lambda: bool(spare.loads))
            assert notes_of(await ask(deployments)) == [], "the old one answers while the new one gets ready"
            assert not served.tail.unloads
            spare.holding.set()
        await until(lambda: bool(served.tail.unloads))
        await until(lambda: bool(spare.advances))
        assert (len(spare.loads), len(spare.advances)) == (1, 1)
        assert text_of(await ask(deployments)) == "Paris."
        await until(lambda: state_of(deployments) == "ready")  # an answer may end before this is said
        view = deployments.views()[0]
        assert (view.state, [stage.device_name for stage in view.stages][-1]) == ("ready", served.name_of(spare))


async def test_without_a_standby_a_pc_may_leave_at_once(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing_all(fleet, "a", "b", "c") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs)
        asking = await asked_and_stuck(deployments, served.tail, after=2)
        await ask_to_leave(served.tail)
        assert text_of(await asking) == "Paris."
        await until(lambda: bool(served.tail.unloads))


async def test_all_may_leave_at_once_though_nobody_is_left_to_take_over(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing_all(fleet, "a", "b") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs)
        await ask_to_leave(served.tail)
        await ask_to_leave(served.head)
        await until(lambda: bool(served.tail.unloads and served.head.unloads))
        assert state_of(deployments) == "recovering"


async def test_the_owner_of_a_pc_that_waits_to_leave_waits_for_nobody(
    fleet: Fleet, registry: Registry, library: Path
) -> None:
    async with playing_all(fleet, "a", "b", "c", "d") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs, standbys=1, standby="warm")
        await until(lambda: bool(deployments.views()[0].standbys))
        (warm,) = [pc for pc in served.spares if pc.fetches]
        warm.holding = asyncio.Event()
        await ask_to_leave(served.tail)
        await until(lambda: bool(warm.loads))
        asking = await asked_and_stuck(deployments, served.tail)
        await give_back(fleet, served.tail)
        await until(lambda: state_of(deployments) == "recovering")
        warm.holding.set()
        assert text_of(await asking) == "Paris."


async def test_a_standby_may_leave_at_once(fleet: Fleet, registry: Registry, library: Path) -> None:
    async with playing_all(fleet, "a", "b", "c") as pcs, deploying(fleet, registry) as deployments:
        served = await served_by(deployments, pcs, standbys=1, standby="hot")
        await until(lambda: bool(deployments.views()[0].standbys))
        (hot,) = served.spares
        await ask_to_leave(hot)
        await until(lambda: bool(hot.unloads))
        assert (state_of(deployments), deployments.views()[0].standbys) == ("ready", [])
