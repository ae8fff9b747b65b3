"""What a link carries is the best of what came over it, and small transfers do not count."""

from __future__ import annotations

import pytest

from agent.link.speed import LEAST_BYTES, Throughput, Transfer


def transfer(chunks: int, chunk_bytes: int, every_s: float) -> Transfer:
    made = Transfer()
    for number in range(chunks):
        made.came(chunk_bytes, 100 + number * every_s)
    return made


def test_the_first_chunk_only_starts_the_clock() -> None:
    assert transfer(5, 1 << 20, 0.5).bytes_per_s == pytest.approx(2 << 20)


def test_short_transfers_and_stopped_clocks_say_nothing() -> None:
    seen = Throughput()
    for short in (Transfer(), transfer(1, 1 << 30, 1), transfer(3, LEAST_BYTES // 4, 1), transfer(9, 1 << 20, 0)):
        seen.add(short)
    assert (seen.bytes_per_s, seen.count) == (None, 0)


def test_other_traffic_does_not_make_the_link_slower() -> None:
    seen = Throughput()
    for every_s in (1.0, 0.25, 2.0):
        seen.add(transfer(5, 1 << 20, every_s))
    assert seen.bytes_per_s == pytest.approx(4 << 20)
    for _ in range(8):
        seen.add(transfer(5, 1 << 20, 1.0))
    assert seen.bytes_per_s == pytest.approx(1 << 20)
