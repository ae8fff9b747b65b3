"""Which neighbours are told what of direct links, with PCs that only remember what they were told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent.link.messages import FromConsole
from agent.link.stage_messages import CutDirect, DirectRoute, DirectState, StageReady
from agent.link.tickets import LIFE_S, RouteTicket, unseal
from agent.stage.types import Epoch, PipelineId
from console.fleet.direct import DirectLinks
from tests.support.fleet import make_load, make_report

ONE, EPOCH = PipelineId(1), Epoch(5)
PCS = ["ann", "bob", "cyd"]
NOW_S = 1_800_000_000.0


class Told:
    """A console's direct links and what it said to whom."""

    def __init__(self, *, allowed: bool = True) -> None:
        self.said: list[tuple[str, FromConsole]] = []
        key = Ed25519PrivateKey.generate()
        self.links = DirectLinks(
            lambda device, message: self.said.append((device, message)), key, allowed=allowed, now=self.now
        )
        self.links.set_route(ONE, EPOCH, PCS)

    def now(self) -> float:
        return NOW_S

    def ready(self, stage: int, addresses: list[str] | None = None, sees: str = "10.0.0.9", /, **fields: Any) -> None:
        named = [f"10.0.0.{stage}:8470"] if addresses is None and stage else addresses or []
        report = make_report(make_load(), addresses=named)
        message = StageReady(ONE, EPOCH, stage, report)
        self.links.ready(PCS[stage], msgspec.structs.replace(message, **fields), sees)

    def all_ready(self) -> Told:
        for stage in range(3):
            self.ready(stage)
        return self

    def routes(self) -> list[tuple[str, int, str]]:
        return [(device, m.stage, m.device_id) for device, m in self.said if isinstance(m, DirectRoute)]

    def cuts(self) -> list[str]:
        return [device for device, message in self.said if isinstance(message, CutDirect)]

    @property
    def ways(self) -> list[str]:
        return [link.way for link in self.links.links(ONE)]


def test_a_hop_is_linked_once_both_its_stages_are_loaded() -> None:
    told = Told()
    told.ready(1)
    assert told.routes() == []
    told.ready(0)
    assert told.routes() == [("ann", 1, "bob")]
    told.ready(2)
    assert told.routes() == [("ann", 1, "bob"), ("bob", 2, "cyd")]


def test_a_ticket_names_the_hop_and_lives_for_minutes() -> None:
    told = Told().all_ready()
    route = told.said[0][1]
    assert isinstance(route, DirectRoute)
    ticket = unseal(route.ticket, told.links.public_key, NOW_S, RouteTicket)
    assert (ticket.pipeline, ticket.epoch, ticket.stage) == (ONE, EPOCH, 1)
    assert (ticket.sender, ticket.receiver, ticket.expires_s) == ("ann", "bob", NOW_S + LIFE_S)


def test_every_link_gets_a_fresh_ticket() -> None:
    told = Told().all_ready()
    told.said.clear()
    told.links.renew()
    assert told.routes() == [("ann", 1, "bob"), ("bob", 2, "cyd")]


def test_when_they_are_off_nobody_is_told_anything() -> None:
    told = Told(allowed=False).all_ready()
    told.links.renew()
    told.links.left("bob")
    told.links.clear_route(ONE)
    assert told.said == []
    assert told.links.public_key == b""


@pytest.mark.parametrize("fields", [{"epoch": Epoch(4)}, {"pipeline": PipelineId(9)}, {"stage": 2}, {"stage": 7}])
def test_a_stage_that_is_not_its_own_counts_for_nothing(fields: dict[str, Any]) -> None:
    told = Told()
    told.ready(0)
    told.ready(1, **fields)
    assert told.routes() == []


@pytest.mark.parametrize(
    ("address", "sees", "usable"),
    [
        ("10.0.0.5:8470", "10.0.0.5", True),
        ("[fe80::1]:8470", "10.0.0.5", True),
        ("127.0.0.1:22", "10.0.0.5", False),
        ("[::1]:22", "10.0.0.5", False),
        ("127.0.0.1:8470", "127.0.0.1", True),
        ("intranet.example:443", "10.0.0.5", False),
        ("10.0.0.5:0", "10.0.0.5", False),
        ("10.0.0.5:99999", "10.0.0.5", False),
        ("10.0.0.5", "10.0.0.5", False),
        ("", "10.0.0.5", False),
    ],
)
def test_an_agent_cannot_send_its_neighbour_anywhere(address: str, sees: str, usable: bool) -> None:
    told = Told()
    told.ready(0)
    told.ready(1, [address], sees)
    assert bool(told.routes()) is usable


def test_the_neighbours_of_a_pc_that_leaves_are_cut_at_once() -> None:
    told = Told().all_ready()
    told.links.left("bob")
    assert told.cuts() == ["ann", "cyd"]
    assert told.ways == ["console", "relay", "relay"]
    told.said.clear()
    told.links.renew()
    assert told.routes() == []


def test_a_new_epoch_and_the_end_of_a_route_cut_every_link() -> None:
    told = Told().all_ready()
    told.links.set_route(ONE, Epoch(6), PCS)
    assert told.cuts() == PCS
    told.links.clear_route(ONE)
    assert told.cuts() == PCS * 2
    assert told.links.links(ONE) == []


def test_only_the_sender_says_how_its_link_is(expected_logs: Any) -> None:
    expected_logs("console.fleet.direct", "not its own")
    told = Told().all_ready()
    told.links.state("ann", DirectState(ONE, EPOCH, 1, up=True, round_trip_ms=0.4))
    told.links.state("ann", DirectState(ONE, EPOCH, 2, up=True))
    told.links.state("bob", DirectState(ONE, Epoch(4), 2, up=True))
    told.links.state("bob", DirectState(ONE, EPOCH, 9, up=True))
    assert told.ways == ["console", "direct", "relay"]
    told.links.state("ann", DirectState(ONE, EPOCH, 1, up=False, reason="x" * 500))
    link = told.links.links(ONE)[1]
    assert (link.way, len(link.reason)) == ("relay", 200)
