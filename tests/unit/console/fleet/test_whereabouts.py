"""Who came and went reaches the registry in one transaction, also the last ones and those of a bad moment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from agent.link.identity import DeviceId
from console.fleet.events import AgentJoined, AgentLost, AgentView
from console.fleet.whereabouts import Whereabouts
from console.registry.registry import Registry
from console.registry.sightings import Sighting
from tests.conftest import ExpectLogs
from tests.support.enrolment import Clock
from tests.support.fleet import make_hello
from tests.support.patience import PATIENCE_S
from tests.unit.console.registry.test_registry import make_device

NEVER_S = 3600.0


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with Registry.open(tmp_path / "registry.sqlite", now=Clock()) as registry:
        yield registry


@pytest.fixture
def noted(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> list[list[Sighting]]:
    """Every transaction that was written."""
    written: list[list[Sighting]] = []
    note = registry.sightings.note

    def remember(sightings: Iterable[Sighting]) -> None:
        written.append(list(sightings))
        note(written[-1])

    monkeypatch.setattr(registry.sightings, "note", remember)
    return written


def joined(device_id: str, **hello: object) -> AgentJoined:
    return AgentJoined(AgentView(device_id, "pc", make_hello(**hello), None, 0.0))


async def test_what_happens_between_two_writes_is_one_transaction(
    registry: Registry, noted: list[list[Sighting]]
) -> None:
    device, other = make_device(registry).device_id, make_device(registry, spki_sha256="cd" * 32).device_id
    whereabouts = Whereabouts(registry, every_s=NEVER_S)
    whereabouts.on_fleet_event(joined(device, cores=12, held_sha256=["ab" * 32], mark="3-x"))
    whereabouts.on_fleet_event(AgentLost(device, "its control link dropped"))
    whereabouts.on_fleet_event(joined(other))
    await whereabouts.write()
    await whereabouts.write()
    assert [[seen.device_id for seen in transaction] for transaction in noted] == [[device, other]]
    found = registry.devices.find(device)
    assert found is not None
    assert found.facts["cores"] == 12
    assert not {"held_sha256", "mark"} & set(found.facts)


async def test_stopping_writes_the_last_ones(registry: Registry) -> None:
    device = make_device(registry).device_id
    whereabouts = Whereabouts(registry, every_s=NEVER_S)
    whereabouts.start()
    whereabouts.on_fleet_event(AgentLost(device, "the console stops"))
    await whereabouts.stop()
    found = registry.devices.find(device)
    assert found is not None
    assert found.seen_s is not None


async def test_a_database_that_is_away_loses_nothing(
    registry: Registry, noted: list[list[Sighting]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: Iterable[Sighting]) -> None:
        raise OperationalError("UPDATE devices", {}, Exception("the disk is full"))

    device, other = DeviceId("one"), DeviceId("two")
    whereabouts = Whereabouts(registry, every_s=NEVER_S)
    whereabouts.on_fleet_event(joined(device, cores=12))
    with monkeypatch.context() as patch:
        patch.setattr(registry.sightings, "note", away)
        with pytest.raises(OperationalError):
            await whereabouts.write()
    whereabouts.on_fleet_event(AgentLost(device, "gone"))
    whereabouts.on_fleet_event(AgentLost(other, "gone"))
    await whereabouts.write()
    assert [seen.device_id for seen in noted[0]] == [device, other]
    assert noted[0][0].facts["cores"] == 12


async def test_the_log_tells_once_that_it_cannot_be_written(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, expected_logs: ExpectLogs
) -> None:
    expected_logs("console.fleet.whereabouts", "cannot be written .OperationalError.")
    tries = asyncio.Queue[int]()

    def away(_: Iterable[Sighting]) -> None:
        loop.call_soon_threadsafe(tries.put_nowait, 1)
        raise OperationalError("UPDATE devices", {}, Exception("the disk is full"))

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(registry.sightings, "note", away)
    whereabouts = Whereabouts(registry, every_s=0.01)
    whereabouts.on_fleet_event(AgentLost("one", "gone"))
    whereabouts.start()
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(3):
            await tries.get()
    monkeypatch.undo()
    await whereabouts.stop()
