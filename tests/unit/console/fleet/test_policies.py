"""Who is told what the administrator wants, and what of the answers is kept."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from sqlalchemy.exc import OperationalError

from agent.link.identity import DeviceId
from agent.link.messages import PolicyKept, Resting, VolunteerPolicy
from agent.volunteer.documents import PolicyBody
from agent.volunteer.policy import Wishes
from console.fleet.events import AgentJoined, AgentTold, AgentView
from console.fleet.hub import Hub
from console.fleet.policies import LONGEST_ANSWER, POLICY_FACT, RESTING_FACT, PolicyPost, fact_of
from console.registry.devices import DeviceRequest
from console.registry.records import PolicyRecord
from console.registry.registry import Registry
from tests.conftest import ExpectLogs
from tests.support.enrolment import Clock
from tests.support.fleet import make_hello
from tests.support.patience import until


class FakeHub:
    """Holds PCs and notes what each is told."""

    def __init__(self) -> None:
        self.views: list[AgentView] = []
        self.told: list[tuple[str, PolicyBody]] = []

    def agents(self) -> list[AgentView]:
        return self.views

    def tell(self, device_id: str, policy: VolunteerPolicy) -> None:
        assert policy.signature == b"signed " + policy.body
        self.told.append((device_id, msgspec.json.decode(policy.body, type=PolicyBody)))


class Desk:
    """A post, its registry and its hub."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.hub = FakeHub()
        self.post = PolicyPost(registry, cast(Hub, self.hub), "fleet", lambda body: b"signed " + body, Clock())

    def join(self, device_id: str, *tags: str, **hello: Any) -> None:
        """Let a PC in, which had these tags when it dialled."""
        made = make_hello(**({"takes_policy": True} | hello))
        view = AgentView(device_id, device_id, made, None, 0.0, list(tags))
        self.hub.views.append(view)
        self.post.on_fleet_event(AgentJoined(view))

    def paused(self) -> list[tuple[str, bool | None]]:
        """Who was told to pause or not, in order."""
        return [(told, body.wishes.paused) for told, body in self.hub.told]

    def break_registry(self, patch: pytest.MonkeyPatch) -> list[str]:
        """Let the database be away; returns a list that grows with each time it is asked."""
        asked: list[str] = []

        def away() -> list[PolicyRecord]:
            asked.append("policies")
            raise OperationalError("SELECT", {}, Exception("the database is away"))

        patch.setattr(self.registry.policies, "list", away)
        return asked


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    monkeypatch.setattr("console.fleet.policies.LOOK_S", 0.02)
    with Registry.open(tmp_path / "r.sqlite", now=Clock()) as registry:
        made = Desk(registry)
        yield made
        await made.post.stop()


def add_device(registry: Registry, tags: list[str]) -> str:
    request = DeviceRequest(
        f"{registry.devices.count():064x}",
        b"request",
        "ABCD-EFGH-K",
        "pc",
        {},
        "file",
        registry.invites.create().token_id.hex(),
        tags,
    )
    return registry.devices.approve(registry.devices.add_pending(request).device_id).device_id


def count_reads(patch: pytest.MonkeyPatch, desk: Desk, note: Callable[[], None]) -> None:
    """Note whenever the tags of all PCs are read."""
    read = desk.registry.devices.tags

    def noted() -> dict[DeviceId, list[str]]:
        note()
        return read()

    patch.setattr(desk.registry.devices, "tags", noted)


async def test_nobody_is_told_anything_before_anything_is_wanted(desk: Desk) -> None:
    await desk.post.start()
    desk.join(add_device(desk.registry, []))
    await desk.post.catch_up()
    assert desk.hub.told == []


async def test_a_pc_is_told_when_it_joins_and_when_something_changes(desk: Desk) -> None:
    desk.registry.policies.change("", {"idle_start_s": 600})
    await desk.post.start()
    device_id = add_device(desk.registry, ["lab"])
    desk.join(device_id, "lab")
    assert len(desk.hub.told) == 1, "at once: others that hear of it may give it work"
    desk.registry.policies.change("lab", {"enabled": False})
    desk.post.publish()
    await until(lambda: len(desk.hub.told) == 2)
    assert [(told, body.device, body.fleet) for told, body in desk.hub.told] == [(device_id, device_id, "fleet")] * 2
    first, second = (body for _, body in desk.hub.told)
    assert first.wishes == Wishes(idle_start_s=600.0)
    assert second.wishes == Wishes(idle_start_s=600.0, enabled=False)
    assert first.revision < second.revision
    assert first.issued_s == Clock().now_s < first.expires_s


async def test_who_joins_costs_the_event_loop_no_look_into_the_registry(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.registry.policies.change("", {"paused": True})
    await desk.post.start()
    device_id, loop_thread = add_device(desk.registry, []), threading.get_ident()
    read_in: list[int] = []
    monkeypatch.setattr(desk.registry.devices, "find", None)
    count_reads(monkeypatch, desk, lambda: read_in.append(threading.get_ident()))
    desk.join(device_id)
    assert desk.paused() == [(device_id, True)]
    await until(lambda: bool(read_in))
    assert loop_thread not in read_in


async def test_tags_that_changed_while_a_pc_was_let_in_are_told_after_it_joined(desk: Desk) -> None:
    desk.registry.policies.change("lab", {"paused": True})
    await desk.post.start()
    device_id = add_device(desk.registry, [])
    desk.registry.devices.set_tags(DeviceId(device_id), ["lab"])  # it was let in a moment before
    desk.join(device_id)
    assert desk.paused() == [(device_id, None)]
    await until(lambda: len(desk.hub.told) == 2)
    assert desk.paused()[1:] == [(device_id, True)]


async def test_what_was_read_first_is_told_first_and_what_is_so_for_long_once(desk: Desk) -> None:
    await desk.post.start()
    device_id = add_device(desk.registry, [])
    desk.join(device_id)
    for number in range(20):
        desk.registry.policies.change("", {"paused": number % 2 == 0})
        desk.post.publish()
        await asyncio.gather(desk.post.catch_up(), desk.post.catch_up())
    revisions = [body.revision for _, body in desk.hub.told]
    assert revisions == sorted(set(revisions))
    assert desk.paused()[-1] == (device_id, False)


async def test_many_that_join_at_once_are_looked_up_together(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.post.start()
    desk.registry.policies.change("lab", {"paused": True})
    devices = [add_device(desk.registry, ["lab"]) for _ in range(20)]
    reads: list[int] = []
    count_reads(monkeypatch, desk, lambda: reads.append(1))
    for device_id in devices:
        desk.join(device_id, "lab")
    await until(lambda: len(desk.hub.told) == len(devices))
    assert len(reads) == 1


async def test_a_database_that_is_away_is_asked_again_and_what_is_known_holds(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, expected_logs: ExpectLogs
) -> None:
    expected_logs("console.fleet.policies", "cannot be read now")
    desk.registry.policies.change("", {"paused": True})
    await desk.post.start()
    device_id = add_device(desk.registry, [])
    with monkeypatch.context() as broken:
        asked = desk.break_registry(broken)
        desk.join(device_id)
        assert desk.paused() == [(device_id, True)], "who joins meanwhile is told what was read last"
        await until(lambda: len(asked) > 3)
    desk.registry.policies.change("", {"paused": False})
    await until(lambda: desk.paused()[-1] == (device_id, False))


async def test_what_cannot_be_told_is_logged_and_the_next_change_is_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, expected_logs: ExpectLogs
) -> None:
    expected_logs("console.fleet.policies", "cannot be told")
    await desk.post.start()
    device_id = add_device(desk.registry, [])
    desk.join(device_id)
    desk.registry.policies.change("", {"paused": True})
    with monkeypatch.context() as broken:
        tried: list[bytes] = []

        def fail(body: bytes) -> bytes:
            tried.append(body)
            raise ValueError("the key is gone")

        broken.setattr(desk.post, "_sign", fail)
        desk.post.publish()
        await until(lambda: bool(tried))
    desk.post.publish()
    await until(lambda: desk.paused() == [(device_id, True)])


async def test_an_agent_that_knows_no_policies_is_left_alone(desk: Desk) -> None:
    desk.registry.policies.change("", {"idle_start_s": 600})
    await desk.post.start()
    desk.join(add_device(desk.registry, []), takes_policy=False)
    await desk.post.catch_up()
    assert desk.hub.told == []


async def test_what_another_console_was_told_is_passed_on_once(desk: Desk) -> None:
    desk.join(add_device(desk.registry, []))
    await desk.post.catch_up()
    assert desk.hub.told == []
    desk.registry.policies.change("", {"paused": True})  # as the other console does
    await desk.post.catch_up()
    await desk.post.catch_up()
    assert [body.wishes.paused for _, body in desk.hub.told] == [True]


async def test_a_change_nobody_could_be_told_is_told_in_the_next_round(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        desk.join(add_device(desk.registry, []))
    desk.registry.policies.change("", {"paused": True})
    with monkeypatch.context() as broken:
        desk.break_registry(broken)
        with pytest.raises(OperationalError):
            await desk.post.catch_up()
    assert desk.hub.told == []
    await desk.post.catch_up()
    assert [body.wishes.paused for _, body in desk.hub.told] == [True, True]


async def test_tags_that_another_console_gave_are_caught_up_with_for_their_pc_alone(desk: Desk) -> None:
    desk.registry.policies.change("lab", {"paused": True})
    await desk.post.start()
    first, second = add_device(desk.registry, []), add_device(desk.registry, [])
    for device_id in (first, second):
        desk.join(device_id)
    assert [body.wishes.paused for _, body in desk.hub.told] == [None, None]
    desk.registry.devices.set_tags(DeviceId(second), ["lab"])
    for _ in range(2):
        await desk.post.catch_up()
    assert [(told, body.wishes.paused) for told, body in desk.hub.told[2:]] == [(second, True)]


def test_answers_are_kept_as_far_as_they_make_sense(expected_logs: Any) -> None:
    expected_logs("console.fleet.policies", "does not take")
    expected_logs("console.fleet.policies", "cannot be")
    kept = fact_of(AgentTold("pc", PolicyKept(7)))
    assert kept == {POLICY_FACT: {"revision": 7, "code": "", "message": ""}}
    long = fact_of(AgentTold("pc", PolicyKept(7, "revision", "x" * 100_000)))
    assert len(long[POLICY_FACT]["message"]) == LONGEST_ANSWER
    resting = Resting([10] * 56, -3600.0)
    assert fact_of(AgentTold("pc", resting)) == {RESTING_FACT: {"blocks": [10] * 56, "utc_offset_s": -3600.0}}
    for nonsense in (Resting([10], 0.0), Resting([101] * 56, 0.0), Resting([0] * 56, 1e9), Resting([0] * 56, math.nan)):
        assert fact_of(AgentTold("pc", nonsense)) == {}
