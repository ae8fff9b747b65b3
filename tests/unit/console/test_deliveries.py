"""Deliveries that go on: without anybody watching, after a restart, and through the absences of PCs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy.exc import OperationalError

from agent.link.messages import LayerRange
from console.api.admin.types import DeliveryRequest
from console.deliveries import DeliveryJobs
from console.errors import DeployRefused
from console.fleet.delivery import Delivered, DeliveryEnded, DeliveryEvent, RingStarted
from console.fleet.errors import DeliveryFailed
from console.fleet.events import AgentJoined, AgentView
from console.fleet.hub import Hub
from console.libraries import LibraryShelf, LoadedLibrary
from console.registry.audit import Actor
from console.registry.registry import Registry
from tests.support.fleet import make_hello
from tests.support.libraries import make_library
from tests.support.patience import PATIENCE_S, until

ADMIN = Actor("key:a", "10.0.0.9")
PCS = ["ann", "bob", "cid"]


class FakeHub:
    """Delivers at once, unless a PC is `held`, is away, or has a `problem`."""

    def __init__(self, *connected: str) -> None:
        self.connected = list(connected)
        self.asked: list[str] = []
        self.held: dict[str, asyncio.Event] = {}
        self.problems: dict[str, DeliveryFailed] = {}

    def agents(self) -> list[AgentView]:
        return [view(device) for device in self.connected]

    async def deliver(self, device_id: str, layers: LayerRange, timeout_s: float) -> None:
        self.asked.append(device_id)
        if device_id in self.held:
            await self.held[device_id].wait()
        if device_id in self.problems:
            raise self.problems.pop(device_id)


class OneLibrary:
    def __init__(self, folder: Path) -> None:
        manifest, digest = make_library(folder)
        self.library = LoadedLibrary(digest, folder, manifest)

    def ask_before_removing(self, user: Callable[[str], str]) -> None:
        self.user_of = user

    def of_model(self, model_id: str) -> LoadedLibrary:
        if model_id != "small":
            raise DeployRefused(f"There is no library of {model_id}.")
        return self.library


def view(device_id: str) -> AgentView:
    return AgentView(device_id, device_id, make_hello(), None, 0.0)


@pytest.fixture
def shelf(tmp_path: Path) -> OneLibrary:
    return OneLibrary(tmp_path / "library")


@pytest.fixture
async def make_jobs(registry: Registry, shelf: OneLibrary) -> AsyncIterator[Callable[..., DeliveryJobs]]:
    made: list[DeliveryJobs] = []

    def make(hub: FakeHub, **options: Any) -> DeliveryJobs:
        jobs = DeliveryJobs(registry, cast("Hub", hub), cast("LibraryShelf", shelf), **options)
        made.append(jobs)
        return jobs

    yield make
    for jobs in made:
        await jobs.close()


async def all_of(events: AsyncIterator[DeliveryEvent]) -> list[DeliveryEvent]:
    async with asyncio.timeout(PATIENCE_S):
        return [event async for event in events]


def asked(**fields: Any) -> DeliveryRequest:
    return DeliveryRequest("small", **fields)


async def test_a_delivery_goes_on_when_nobody_reads_its_events(
    registry: Registry, make_jobs: Callable[..., DeliveryJobs]
) -> None:
    hub = FakeHub(*PCS)
    jobs = make_jobs(hub)
    jobs.begin(asked(), ADMIN)
    await until(lambda: not registry.deliveries.unfinished())
    assert sorted(hub.asked) == PCS
    assert jobs.views() == []
    actions = [(entry.action, entry.actor) for entry in registry.audit.list()]
    assert actions[:2] == [("library.delivered", "console"), ("library.deliver", "key:a")]


async def test_whoever_asks_again_follows_the_delivery_from_its_beginning(
    make_jobs: Callable[..., DeliveryJobs],
) -> None:
    hub = FakeHub(*PCS)
    hub.held = {device: asyncio.Event() for device in PCS}
    jobs = make_jobs(hub)
    first = asyncio.create_task(all_of(jobs.begin(asked(), ADMIN)))
    await until(lambda: len(hub.asked) == 1)
    second = asyncio.create_task(all_of(jobs.begin(asked(devices=[]), ADMIN)))
    (running,) = jobs.views()
    assert (running.model, running.first, running.last, running.total, running.delivered) == ("small", 0, 4, 3, 0)
    with pytest.raises(DeployRefused, match="--stop"):
        jobs.begin(asked(first=1), ADMIN)
    for held in hub.held.values():
        held.set()
    assert await first == await second
    assert (await first)[-1] == DeliveryEnded(3, 0)
    assert len(hub.asked) == 3


async def test_the_library_of_a_delivery_is_in_use_until_it_ends(
    make_jobs: Callable[..., DeliveryJobs], shelf: OneLibrary
) -> None:
    hub = FakeHub(*PCS)
    hub.held = {device: asyncio.Event() for device in PCS}
    jobs = make_jobs(hub)
    digest = shelf.library.digest
    assert shelf.user_of(digest) == ""
    following = asyncio.create_task(all_of(jobs.begin(asked(), ADMIN)))
    assert shelf.user_of(digest) == "small is being delivered from it"
    assert shelf.user_of("another") == ""
    for held in hub.held.values():
        held.set()
    await following
    assert shelf.user_of(digest) == ""


async def test_whoever_only_looks_follows_any_delivery_and_begins_none(
    registry: Registry, make_jobs: Callable[..., DeliveryJobs]
) -> None:
    hub = FakeHub(*PCS)
    hub.held = {device: asyncio.Event() for device in PCS}
    jobs = make_jobs(hub)
    with pytest.raises(DeployRefused, match="not being delivered"):
        jobs.follow("small")
    assert registry.deliveries.unfinished() == []
    started = asyncio.create_task(all_of(jobs.begin(asked(first=1, last=3, devices=[]), ADMIN)))
    await until(lambda: len(hub.asked) == 1)
    looking = asyncio.create_task(all_of(jobs.follow("small")))
    for held in hub.held.values():
        held.set()
    assert await looking == await started
    assert (await looking)[-1] == DeliveryEnded(3, 0)
    with pytest.raises(DeployRefused, match="not being delivered"):
        jobs.follow("small")


async def test_after_a_restart_it_goes_on_with_those_who_have_nothing_yet(
    registry: Registry, make_jobs: Callable[..., DeliveryJobs]
) -> None:
    hub = FakeHub(*PCS)
    jobs = make_jobs(hub)
    first: list[str] = []

    async def hold_the_second(device_id: str, layers: LayerRange, timeout_s: float) -> None:
        first.append(device_id)
        if len(first) > 1:
            await asyncio.Event().wait()

    hub.deliver = hold_the_second  # type: ignore[method-assign]  # the fake's own
    following = asyncio.create_task(all_of(jobs.begin(asked(), ADMIN)))
    await until(lambda: len(first) > 1)
    await jobs.close()
    ended = (await following)[-1]
    assert isinstance(ended, DeliveryEnded)
    assert "goes on when it is started again" in ended.stopped

    (record,) = registry.deliveries.unfinished()
    assert record.done == {first[0]: ""}
    after = FakeHub(*PCS)
    again = make_jobs(after)
    again.restore()
    events = await all_of(again.begin(asked(), ADMIN))
    assert events[:2] == [RingStarted(1, 1, 3), Delivered(first[0])]
    assert events[-1] == DeliveryEnded(3, 0)
    assert sorted(after.asked) == sorted(set(PCS) - {first[0]})
    assert registry.deliveries.unfinished() == []


async def test_a_pc_that_is_away_or_leaves_is_waited_for(make_jobs: Callable[..., DeliveryJobs]) -> None:
    hub = FakeHub("ann")
    hub.problems["ann"] = DeliveryFailed("ann: it left: its control link dropped.", left=True)
    jobs = make_jobs(hub)
    assert (await all_of(jobs.begin(asked(), ADMIN)))[-1] == DeliveryEnded(1, 0)
    assert hub.asked == ["ann", "ann"]

    hub.problems["ann"] = DeliveryFailed("ann: it left.", left=True)
    hub.held["ann"] = asyncio.Event()
    following = asyncio.create_task(all_of(jobs.begin(asked(), ADMIN)))
    await until(lambda: len(hub.asked) == 3)
    hub.connected.clear()
    hub.held.pop("ann").set()
    await until(lambda: "ann" in jobs._joined)
    hub.connected.append("ann")
    jobs.on_fleet_event(AgentJoined(view("bob")))
    jobs.on_fleet_event(AgentJoined(view("ann")))
    assert (await following)[-1] == DeliveryEnded(1, 0)


async def test_a_pc_that_stays_away_or_cannot_take_it_fails(
    registry: Registry, make_jobs: Callable[..., DeliveryJobs]
) -> None:
    hub = FakeHub("ann")
    hub.problems["ann"] = DeliveryFailed("ann: the disk is full.")
    jobs = make_jobs(hub, absent_s=0.01)
    events = await all_of(jobs.begin(asked(), ADMIN))
    assert Delivered("ann", "ann: the disk is full.") in events
    hub.held["ann"] = asyncio.Event()
    hub.problems["ann"] = DeliveryFailed("ann: it left.", left=True)
    following = asyncio.create_task(all_of(jobs.begin(asked(), ADMIN)))
    await until(lambda: len(hub.asked) == 2)
    hub.connected.clear()
    hub.held.pop("ann").set()
    assert any("not connected" in event.problem for event in await following if isinstance(event, Delivered))
    assert registry.deliveries.unfinished() == []


async def test_a_delivery_is_ended_by_an_administrator(
    registry: Registry, make_jobs: Callable[..., DeliveryJobs]
) -> None:
    hub = FakeHub(*PCS)
    hub.held = {device: asyncio.Event() for device in PCS}
    jobs = make_jobs(hub)
    following = asyncio.create_task(all_of(jobs.begin(asked(), ADMIN)))
    await until(lambda: len(hub.asked) == 1)
    await jobs.stop("small", ADMIN)
    assert (await following)[-1] == DeliveryEnded(0, 0, "It was ended by an administrator.")
    assert registry.deliveries.unfinished() == []
    assert registry.audit.list()[0].actor == "key:a"
    with pytest.raises(DeployRefused, match="not being delivered"):
        await jobs.stop("small", ADMIN)


async def test_a_fault_ends_the_telling_and_is_tried_again_at_the_next_start(
    registry: Registry, make_jobs: Callable[..., DeliveryJobs], expected_logs: Any
) -> None:
    expected_logs("console.deliveries", "failed unexpectedly")
    hub = FakeHub("ann")
    hub.problems["ann"] = cast("DeliveryFailed", RuntimeError("a fault"))
    jobs = make_jobs(hub)
    ended = (await all_of(jobs.begin(asked(), ADMIN)))[-1]
    assert isinstance(ended, DeliveryEnded)
    assert "its log says why" in ended.stopped
    assert len(registry.deliveries.unfinished()) == 1


async def test_what_the_registry_cannot_take_costs_no_delivery(
    registry: Registry, make_jobs: Callable[..., DeliveryJobs], monkeypatch: pytest.MonkeyPatch, expected_logs: Any
) -> None:
    expected_logs("console.deliveries", "cannot be noted now")
    note, failures = registry.deliveries.note, 2

    def sometimes(delivery_id: str, device_id: str, problem: str) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise OperationalError("UPDATE", {}, Exception("database is locked"))
        note(delivery_id, device_id, problem)

    monkeypatch.setattr(registry.deliveries, "note", sometimes)
    assert (await all_of(make_jobs(FakeHub(*PCS)).begin(asked(), ADMIN)))[-1] == DeliveryEnded(3, 0)
    assert registry.deliveries.unfinished() == []
    assert registry.audit.list()[0].detail["delivered"] == 3


async def test_a_delivery_that_could_not_be_ended_is_still_there_to_be_ended(
    registry: Registry, make_jobs: Callable[..., DeliveryJobs], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = FakeHub(*PCS)
    hub.held = {device: asyncio.Event() for device in PCS}
    jobs = make_jobs(hub)
    following = asyncio.create_task(all_of(jobs.begin(asked(), ADMIN)))
    await until(lambda: len(hub.asked) == 1)

    def locked(*_: object) -> None:
        raise OperationalError("UPDATE", {}, Exception("database is locked"))

    with monkeypatch.context() as broken:
        broken.setattr(registry.deliveries, "end", locked)
        with pytest.raises(OperationalError):
            await jobs.stop("small", ADMIN)
    assert [found.model for found in jobs.views()] == ["small"]
    await jobs.stop("small", ADMIN)
    assert (await following)[-1] == DeliveryEnded(0, 0, "It was ended by an administrator.")


async def test_two_deliveries_that_wait_for_one_pc_both_hear_of_it(make_jobs: Callable[..., DeliveryJobs]) -> None:
    jobs = make_jobs(FakeHub(), absent_s=0.02)
    with pytest.raises(DeliveryFailed):
        await jobs._wait_for("ann")
    jobs._absent_s = 10.0
    waiting = [asyncio.create_task(jobs._wait_for("ann")) for _ in range(2)]
    await asyncio.sleep(0)
    jobs._absent_s = 0.02
    with pytest.raises(DeliveryFailed):
        await jobs._wait_for("ann")
    jobs.on_fleet_event(AgentJoined(view("ann")))
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*waiting)


async def test_a_pc_that_is_named_twice_gets_it_once(
    registry: Registry, make_jobs: Callable[..., DeliveryJobs], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = FakeHub(*PCS)
    jobs = make_jobs(hub)
    monkeypatch.setattr(registry.devices, "ids_of", list)
    assert (await all_of(jobs.begin(asked(devices=["ann", "ann"]), ADMIN)))[-1] == DeliveryEnded(1, 0)
    assert hub.asked == ["ann"]
