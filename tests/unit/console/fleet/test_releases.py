"""Who is offered which release when, and what of the answers is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from agent.link.messages import AskRelease, OfferRelease, UpdateState
from agent.update.releases import Release, own_platform
from console.fleet.events import AgentJoined, AgentLost, AgentTold, AgentView
from console.fleet.hub import Hub
from console.fleet.releases import LONGEST_ANSWER, ReleasePost, update_fact, update_note, update_phase
from console.registry.devices import DeviceRequest
from console.registry.errors import NotFound, WrongState
from console.registry.registry import Registry
from tests.support.enrolment import Clock
from tests.support.fleet import make_hello
from tests.support.releases import describe


class FakeHub:
    """Holds PCs and notes what each is offered."""

    def __init__(self) -> None:
        self.views: list[AgentView] = []
        self.offers: list[tuple[str, bytes]] = []

    def agents(self) -> list[AgentView]:
        return self.views

    def offer(self, device_id: str, release: OfferRelease) -> None:
        self.offers.append((device_id, release.signed))


class Desk:
    """A post, its registry and its hub; it serves every archive but those in `elsewhere`."""

    def __init__(self, registry: Registry) -> None:
        self.registry, self.hub, self.elsewhere = registry, FakeHub(), set[str]()
        self.post = ReleasePost(registry, cast(Hub, self.hub), lambda sha256: sha256 not in self.elsewhere, Clock())

    def join(self, tags: list[str] | None = None, **hello: Any) -> str:
        number = self.registry.devices.count()
        token = self.registry.invites.create().token_id.hex()
        request = DeviceRequest(f"{number:064x}", b"request", "ABCD-EFGH-K", "pc", {}, "file", token, tags or [])
        device = self.registry.devices.approve(self.registry.devices.add_pending(request).device_id)
        values = {"platform": own_platform(), "version": "1.0.0"} | hello
        view = AgentView(device.device_id, "pc", make_hello(**values), None, 0.0)
        self.hub.views.append(view)
        self.post.on_fleet_event(AgentJoined(view))
        return device.device_id

    def add(self, version: str = "1.1.0", percent: int = 100) -> str:
        description = describe(version, rollout_percent=percent)
        release = Release(description, "archive", 1000, f"{version:0<64}", 10, Clock().now_s + 1e6)
        return self.registry.releases.add(release, version.encode(), "file").release_id


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with Registry.open(tmp_path / "r.sqlite", now=Clock()) as registry:
        yield Desk(registry)


async def test_a_pc_is_offered_what_its_ring_has_once_and_told_when_it_is_withdrawn(desk: Desk) -> None:
    canary, other = desk.join(["canary"]), desk.join()
    release_id = desk.add()
    await desk.post.publish()
    assert desk.hub.offers == []
    desk.registry.releases.set_ring(release_id, "canary")
    await desk.post.publish()
    await desk.post.publish()
    assert desk.hub.offers == [(canary, b"1.1.0")]
    desk.registry.releases.set_ring(release_id, "broad")
    await desk.post.publish()
    assert desk.hub.offers[1:] == [(other, b"1.1.0")]
    desk.registry.releases.withdraw(release_id)
    await desk.post.publish()
    assert sorted(desk.hub.offers[2:]) == sorted([(canary, b""), (other, b"")])


async def test_who_joins_later_or_asks_is_answered(desk: Desk) -> None:
    asking = desk.join()
    desk.post.on_fleet_event(AgentTold(asking, AskRelease()))
    assert desk.hub.offers == [(asking, b"")]
    desk.registry.releases.set_ring(desk.add(), "broad")
    await desk.post.publish()
    later = desk.join()
    desk.post.on_fleet_event(AgentTold(later, AskRelease()))
    assert desk.hub.offers[1:] == [(asking, b"1.1.0"), (later, b"1.1.0"), (later, b"1.1.0")]
    desk.post.on_fleet_event(AgentLost(later, "gone"))


async def test_who_joins_costs_the_event_loop_no_look_into_the_registry(desk: Desk) -> None:
    desk.registry.releases.set_ring(desk.add(), "canary")
    canary = desk.join(["canary"])
    await desk.post.publish()
    desk.post._registry = cast(Registry, None)
    desk.post.on_fleet_event(AgentTold(canary, AskRelease()))
    desk.post.on_fleet_event(AgentLost(canary, "gone"))
    desk.post.on_fleet_event(AgentJoined(desk.hub.views[0]))
    assert desk.hub.offers == [(canary, b"1.1.0")] * 3


async def test_older_agents_other_platforms_and_archives_elsewhere_are_left_alone(desk: Desk) -> None:
    desk.registry.releases.set_ring(desk.add(), "broad")
    desk.registry.releases.set_ring(desk.add("1.2.0"), "broad")
    desk.elsewhere.add(f"{'1.2.0':0<64}")
    await desk.post.publish()
    desk.join(platform="")
    desk.join(platform="plan9-mips")
    served = desk.join()
    assert desk.hub.offers == [(served, b"1.1.0")]


def test_a_ring_grows_no_further_than_the_publisher_says(desk: Desk) -> None:
    release_id = desk.add(percent=20)
    with pytest.raises(WrongState, match="20 %"):
        desk.registry.releases.set_ring(release_id, "broad", 21)
    assert desk.registry.releases.set_ring(release_id, "broad", 5).percent == 5
    desk.registry.releases.withdraw(release_id)
    with pytest.raises(WrongState, match="withdrawn"):
        desk.registry.releases.set_ring(release_id, "broad")
    with pytest.raises(NotFound):
        desk.registry.releases.set_ring("nothing", "broad")


@pytest.mark.parametrize(
    ("state", "note"),
    [
        (UpdateState("none"), ""),
        (UpdateState("done", "1.1.0"), ""),
        (UpdateState("ready", "1.1.0"), "ready 1.1.0"),
        (UpdateState("failed", "1.1.0", "It crashed."), "failed 1.1.0: It crashed."),
        (UpdateState("refused", "1.1.0", "Not signed."), "refused: Not signed."),
        (UpdateState("off", "", "It is off."), "off: It is off."),
    ],
)
def test_what_a_pc_says_is_kept_in_a_few_words(state: UpdateState, note: str) -> None:
    facts = update_fact(state)
    assert update_note(facts) == note
    assert update_phase(facts) == (state.phase, state.version)


def test_what_was_never_said_or_is_too_long_does_no_harm() -> None:
    assert update_note({}) == update_note({"update": 3}) == ""
    assert len(update_note(update_fact(UpdateState("failed", "9" * 999, "x" * 9999)))) < LONGEST_ANSWER + 60
