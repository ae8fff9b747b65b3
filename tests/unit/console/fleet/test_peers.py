"""Which PCs are told of which, and in which order."""

from __future__ import annotations

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent.link.bulk import Holders, Locate
from agent.link.frames import Frame, FrameMalformed, FrameType
from agent.link.messages import Holding
from agent.link.tickets import LIFE_S, FileTicket, unseal
from console.fleet.peers import MAX_HOLDERS, Peers
from tests.support.enrolment import Clock

KEY = Ed25519PrivateKey.generate()
FILES = [f"{number:02x}" * 32 for number in range(6)]


class Office:
    def __init__(self, *, allowed: bool = True) -> None:
        self.clock = Clock()
        self.peers = Peers(KEY, allowed=allowed, now=self.clock)
        self.peers.joined("me", "10.0.1.9", [])

    def add(self, name: str, *files: int, ip: str = "10.0.1.2", addresses: list[str] | None = None) -> None:
        self.peers.joined(name, ip, [FILES[file] for file in files])
        self.peers.changed(name, Holding([f"{ip}:8470"] if addresses is None else addresses))

    def found(self, *files: int) -> dict[str, list[int]]:
        wanted = [FILES[file] for file in files or range(len(FILES))]
        return {holder.device_id: holder.files for holder in self.peers.locate("me", wanted)}


def test_a_holder_is_told_with_its_address_and_a_ticket_for_it_alone() -> None:
    office = Office()
    office.add("ann", 1, 3)
    (holder,) = office.peers.locate("me", FILES)
    assert (holder.device_id, holder.addresses, holder.files) == ("ann", ["10.0.1.2:8470"], [1, 3])
    now_s = office.clock.now_s
    ticket = unseal(holder.ticket, KEY.public_key().public_bytes_raw(), now_s, FileTicket)
    assert ticket == FileTicket("me", "ann", now_s + LIFE_S)


def test_the_same_subnet_goes_first_then_who_was_asked_least() -> None:
    office = Office()
    office.add("far", 0, 1, 2, ip="10.0.2.2")
    office.add("near-b", 0)
    office.add("near-a", 0)
    assert list(office.found(0)) == ["near-a", "near-b", "far"]
    office.add("near-c", 0)
    assert list(office.found(0)) == ["near-c", "near-a", "near-b", "far"]
    office.clock.now_s += 61
    assert next(iter(office.found(0))) == "near-a"


def test_at_most_a_few_are_told_at_once() -> None:
    office = Office()
    for number in range(9):
        office.add(f"pc-{number}", 0)
    assert len(office.found()) == MAX_HOLDERS


def test_what_came_and_went_counts_and_who_left_is_not_told() -> None:
    office = Office()
    office.add("ann", 0)
    office.peers.changed("ann", Holding(["10.0.1.2:8470"], added=[FILES[2], FILES[3]], removed=[FILES[0]]))
    assert office.found() == {"ann": [2, 3]}
    office.peers.left("ann")
    assert office.found() == {}
    assert office.peers._holders == {}
    office.peers.changed("ann", Holding(["10.0.1.2:8470"], added=FILES))
    assert office.found() == {}


@pytest.mark.parametrize("addresses", [[], ["127.0.0.1:22"], ["console.internal:80"], ["10.0.1.2"], ["10.0.1.2:0"]])
def test_who_names_no_address_of_its_own_is_not_told(addresses: list[str]) -> None:
    office = Office()
    office.add("eve", 0, addresses=addresses)
    assert office.found() == {}


def test_nobody_is_told_of_themselves_nor_when_pcs_may_not_talk() -> None:
    office = Office()
    office.add("me", 0)
    assert office.found() == {}
    closed = Office(allowed=False)
    closed.add("ann", 0)
    assert closed.found() == {}
    assert office.peers.locate("a stranger", FILES) == []


def test_names_that_are_no_hashes_are_ignored() -> None:
    office = Office()
    office.peers.joined("eve", "10.0.1.2", ["x", "ab", "é" * 64])
    office.peers.changed("eve", Holding(["10.0.1.2:8470"]))
    assert office.peers.locate("me", ["x", "ab", "é" * 64, ""]) == []


def test_a_question_is_answered_on_the_link_it_came_on() -> None:
    office = Office()
    office.add("ann", 0)

    def ask(type_: FrameType, table: bytes) -> Frame | None:
        return office.peers.answer("me", Frame(type_, 0, 0, 0, 7, 0, table, None))

    answer = ask(FrameType.LOCATE, msgspec.msgpack.encode(Locate(FILES)))
    assert answer is not None
    assert (answer.type, answer.sequence) == (FrameType.HOLDERS, 7)
    assert msgspec.msgpack.decode(answer.table, type=Holders).holders[0].files == [0]
    assert ask(FrameType.STEP, b"") is None
    with pytest.raises(FrameMalformed):
        ask(FrameType.LOCATE, b"\xc1")
