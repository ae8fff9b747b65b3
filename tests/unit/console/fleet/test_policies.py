"""Who is told what the administrator wants, and what of the answers is kept."""

from __future__ import annotations

import math
from collections.abc import Iterator
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
from console.registry.registry import Registry
from tests.support.enrolment import Clock
from tests.support.fleet import make_hello


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

    def join(self, device_id: str, **hello: Any) -> None:
        view = AgentView(device_id, device_id, make_hello(**({"takes_policy": True} | hello)), None, 0.0)
        self.hub.views.append(view)
        self.post.on_fleet_event(AgentJoined(view))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with Registry.open(tmp_path / "r.sqlite", now=Clock()) as registry:
        yield Desk(registry)


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


def test_nobody_is_told_anything_before_anything_is_wanted(desk: Desk) -> None:
    desk.join(add_device(desk.registry, []))
    assert desk.hub.told == []


def test_a_pc_is_told_when_it_joins_and_when_something_changes(desk: Desk) -> None:
    desk.registry.policies.change("", {"idle_start_s": 600})
    device_id = add_device(desk.registry, ["lab"])
    desk.join(device_id)
    desk.registry.policies.change("lab", {"enabled": False})
    desk.post.publish()
    assert [(told, body.device, body.fleet) for told, body in desk.hub.told] == [(device_id, device_id, "fleet")] * 2
    first, second = (body for _, body in desk.hub.told)
    assert first.wishes == Wishes(idle_start_s=600.0)
    assert second.wishes == Wishes(idle_start_s=600.0, enabled=False)
    assert first.revision < second.revision
    assert first.issued_s == Clock().now_s < first.expires_s


def test_an_agent_that_knows_no_policies_is_left_alone(desk: Desk) -> None:
    desk.registry.policies.change("", {"idle_start_s": 600})
    desk.join(add_device(desk.registry, []), takes_policy=False)
    desk.post.publish()
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

    def away() -> dict[DeviceId, list[str]]:
        raise OperationalError("SELECT", {}, Exception("the database is away"))

    with monkeypatch.context() as broken:
        broken.setattr(desk.registry.devices, "tags", away)
        with pytest.raises(OperationalError):
            await desk.post.catch_up()
    assert desk.hub.told == []
    await desk.post.catch_up()
    assert [body.wishes.paused for _, body in desk.hub.told] == [True, True]


async def test_tags_that_another_console_gave_are_caught_up_with_for_their_pc_alone(desk: Desk) -> None:
    desk.registry.policies.change("lab", {"paused": True})
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
