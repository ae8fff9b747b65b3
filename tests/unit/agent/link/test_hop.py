"""The way of a hop's steps, against a receiver that drops what it has already."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from agent.link.hop import PATIENCE_S, Hop

NOW_S = 100.0


@dataclass(eq=False)
class Link:
    """A direct link whose frames arrive when the test lets them, also after it was given up."""

    sent: deque[bytes] = field(default_factory=deque)
    aborted: bool = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def abort(self) -> None:
        self.aborted = True


def step(number: int) -> bytes:
    return number.to_bytes(4, "big")


def relayed_hop(**settings: int) -> tuple[Hop, list[bytes]]:
    relay: list[bytes] = []
    return Hop(relay.append, **settings), relay


def test_without_a_direct_link_everything_is_relayed() -> None:
    hop, relay = relayed_hop()
    hop.send(1, step(1), NOW_S)
    hop.close()
    assert relay == [step(1)]
    assert not hop.is_direct


def test_an_idle_hop_goes_direct_at_once() -> None:
    hop, relay = relayed_hop()
    link = Link()
    hop.open(link, 0)
    hop.send(1, step(1), NOW_S)
    assert (relay, list(link.sent), hop.is_direct) == ([], [step(1)], True)


def test_the_direct_way_waits_until_the_relay_has_run_dry() -> None:
    hop, relay = relayed_hop()
    hop.send(1, step(1), NOW_S)
    hop.send(2, step(2), NOW_S)
    link = Link()
    hop.open(link, 1)
    hop.send(3, step(3), NOW_S)
    assert not link.sent
    hop.confirm(link, 2)
    hop.send(4, step(4), NOW_S)
    assert (relay, list(link.sent)) == ([step(1), step(2)], [step(3), step(4)])


def test_what_was_not_confirmed_is_relayed_in_order_when_the_link_breaks() -> None:
    hop, relay = relayed_hop()
    link = Link()
    hop.open(link, 0)
    for number in range(1, 5):
        hop.send(number, step(number), NOW_S)
    hop.confirm(link, 2)
    hop.lost(link)
    hop.send(5, step(5), NOW_S)
    assert relay == [step(3), step(4), step(5)]
    assert link.aborted


def test_what_waits_is_relayed_when_the_link_breaks_before_it_was_used() -> None:
    hop, relay = relayed_hop()
    hop.send(1, step(1), NOW_S)
    link = Link()
    hop.open(link, 0)
    hop.send(2, step(2), NOW_S)
    hop.lost(link)
    assert relay == [step(1), step(2)]


def test_a_former_links_word_and_end_change_nothing() -> None:
    hop, relay = relayed_hop()
    old, new = Link(), Link()
    hop.open(old, 0)
    hop.open(new, 0)
    hop.send(1, step(1), NOW_S)
    hop.confirm(old, 1)
    hop.lost(old)
    assert (relay, list(new.sent), hop.is_direct) == ([], [step(1)], True)
    hop.lost(new)
    assert relay == [step(1)]


def test_a_receiver_that_does_not_confirm_is_overdue() -> None:
    hop, _ = relayed_hop()
    link = Link()
    hop.open(link, 0)
    assert not hop.is_overdue(NOW_S + 100)
    hop.send(1, step(1), NOW_S)
    assert not hop.is_overdue(NOW_S + PATIENCE_S)
    assert hop.is_overdue(NOW_S + PATIENCE_S + 0.1)
    hop.confirm(link, 1)
    assert not hop.is_overdue(NOW_S + PATIENCE_S + 0.1)


def test_a_receiver_too_slow_to_be_kept_up_with_gives_way_to_the_relay() -> None:
    hop, relay = relayed_hop(max_kept_bytes=10)
    link = Link()
    hop.open(link, 0)
    for number in range(1, 4):
        hop.send(number, step(number), NOW_S)
    assert link.aborted
    assert relay == [step(1), step(2), step(3)]


MOVES = st.lists(st.sampled_from(["send", "relay arrives", "direct arrives", "confirm", "open", "lost"]), max_size=80)


@given(MOVES)
def test_however_the_way_changes_every_step_arrives_once_and_in_order(moves: list[str]) -> None:
    relay: deque[bytes] = deque()
    hop = Hop(relay.append)
    links: list[Link] = []
    taken: list[int] = []
    sent = 0

    def arrive(queue: deque[bytes]) -> None:
        if queue:
            number = int.from_bytes(queue.popleft(), "big")
            if number > (taken[-1] if taken else 0):
                taken.append(number)

    for move in [*moves, "lost"]:
        if move == "send":
            sent += 1
            hop.send(sent, step(sent), NOW_S)
        elif move == "open":
            links.append(Link())
            hop.open(links[-1], taken[-1] if taken else 0)
        elif move == "relay arrives":
            arrive(relay)
        elif links and move == "direct arrives":
            # Any link may still deliver, also one that was given up.
            arrive(next((link.sent for link in links if link.sent), deque()))
        elif links and move == "confirm":
            hop.confirm(links[-1], taken[-1] if taken else 0)
        elif links and move == "lost":
            hop.lost(links[-1])
    while relay:
        arrive(relay)
    assert taken == list(range(1, sent + 1))
