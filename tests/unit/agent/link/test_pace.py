from __future__ import annotations

import pytest

from agent.link.pace import Pace


def test_bytes_wait_for_the_bytes_before_them_and_for_nothing_else() -> None:
    pace = Pace(1000, 0, 0, lambda: 12)
    assert pace.wait_s(500, 10.0) == 0.5
    assert pace.wait_s(500, 10.0) == 1.0
    assert pace.wait_s(1000, 60.0) == 1.0


def test_no_limit_is_no_waiting() -> None:
    assert Pace(0, 0, 0, lambda: 12).wait_s(1 << 40, 0.0) == 0.0


@pytest.mark.parametrize(
    ("hours", "hour", "applies"),
    [((8, 18), 8, True), ((8, 18), 17.9, True), ((8, 18), 18, False), ((8, 18), 7.9, False),
     ((22, 6), 23, True), ((22, 6), 5, True), ((22, 6), 12, False), ((0, 24), 23.9, True)],
)  # fmt: skip
def test_the_limit_counts_in_its_hours(hours: tuple[int, int], hour: float, applies: bool) -> None:
    assert (Pace(1000, *hours, lambda: hour).wait_s(1000, 0.0) > 0) is applies


@pytest.mark.parametrize(("rate", "chunk"), [(0, 1 << 20), (1000, 16 << 10), (125_000, 125_000)])
def test_a_slow_link_is_given_small_pieces(rate: float, chunk: int) -> None:
    assert Pace(rate, 0, 0, lambda: 12).chunk_bytes == chunk
