"""Delivering in rings: who is in which, how it goes on, and when it stops."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.fleet.delivery import (
    AT_ONCE,
    Delivered,
    DeliveryEnded,
    DeliveryEvent,
    RingStarted,
    deliver_in_rings,
    rings_of,
)
from console.fleet.errors import DeliveryFailed
from tests.support.patience import PATIENCE_S

PCS = [f"pc-{number:03}" for number in range(100)]


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(0, []), (1, [1]), (2, [1, 1]), (10, [1, 4, 5]), (100, [5, 45, 50]), (1000, [50, 450, 500])],
)
def test_the_rings_are_5_then_50_percent_then_all(count: int, sizes: list[int]) -> None:
    assert [len(ring) for ring in rings_of([f"pc-{number}" for number in range(count)], "d")] == sizes


@given(st.lists(st.text(max_size=5), max_size=40, unique=True), st.text(max_size=5))
def test_every_pc_is_in_one_ring_whatever_order_they_came_in(devices: list[str], digest: str) -> None:
    rings = rings_of(devices, digest)
    assert sorted(device for ring in rings for device in ring) == sorted(devices)
    assert all(rings)
    assert rings_of(list(reversed(devices)), digest) == rings


def test_another_model_begins_with_other_pcs() -> None:
    assert rings_of(PCS, "one")[0] != rings_of(PCS, "two")[0]


class PCs:
    def __init__(self, *bad: str) -> None:
        self.bad = bad
        self.asked: list[str] = []
        self.running = self.most = 0

    async def deliver(self, device: str) -> None:
        self.asked.append(device)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if device in self.bad:
            raise DeliveryFailed(f"{device}: the disk is full.")


async def events_of(pcs: PCs) -> list[DeliveryEvent]:
    return [event async for event in deliver_in_rings(PCS, "d", pcs.deliver)]


async def test_each_ring_waits_for_the_one_before_and_few_are_busy_at_once() -> None:
    pcs = PCs()
    events = await events_of(pcs)
    rings = rings_of(PCS, "d")
    assert [event for event in events if isinstance(event, RingStarted)] == [
        RingStarted(1, 5, 100), RingStarted(2, 50, 100), RingStarted(3, 100, 100),
    ]  # fmt: skip
    assert set(pcs.asked[:5]) == set(rings[0])
    assert set(pcs.asked[5:50]) == set(rings[1])
    assert pcs.most == AT_ONCE
    assert events[-1] == DeliveryEnded(100, 0)


async def test_a_ring_that_goes_badly_is_the_last_one() -> None:
    pcs = PCs(rings_of(PCS, "d")[0][0])
    events = await events_of(pcs)
    assert len(pcs.asked) == 5
    assert events[-1] == DeliveryEnded(4, 1, "1 of 5 PCs of ring 1 failed; find out why, then deliver again.")
    assert Delivered(pcs.bad[0], f"{pcs.bad[0]}: the disk is full.") in events


async def test_a_few_failures_among_many_are_reported_and_do_not_stop_the_rest() -> None:
    pcs = PCs(*rings_of(PCS, "d")[1][:4])
    events = await events_of(pcs)
    assert events[-1] == DeliveryEnded(96, 4)


async def test_leaving_early_ends_what_is_on_its_way() -> None:
    pcs = PCs()
    events = deliver_in_rings(PCS, "d", pcs.deliver)
    assert await anext(events) == RingStarted(1, 5, 100)
    await anext(events)
    await events.aclose()  # type: ignore[attr-defined]  # it is a generator
    assert len(pcs.asked) <= 5


async def test_those_who_are_away_take_nobodys_turn() -> None:
    pcs, back = PCs(), asyncio.Event()
    away = rings_of(PCS, "d")[1][:20]

    async def arrive(device: str) -> None:
        if device in away:
            await back.wait()
            raise DeliveryFailed(f"{device} is not connected.")

    done: list[Delivered] = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in deliver_in_rings(PCS, "d", pcs.deliver, arrive=arrive):
            done += [event] if isinstance(event, Delivered) else []
            if len(done) == 5 + 45 - len(away):
                back.set()
    assert not set(away) & set(pcs.asked)
    assert sum(bool(event.problem) for event in done) == len(away)
