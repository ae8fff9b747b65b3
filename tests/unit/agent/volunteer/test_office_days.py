"""Whole days of an office through the volunteer machine: the owner comes first, and every hold can be explained."""

from __future__ import annotations

import pytest

from tests.support.office import HOUR_S, OfficeDays
from tests.support.played_office import PlayedOffice


def check(played: PlayedOffice) -> None:
    assert played.intrusions == []
    assert played.unexplained == []
    times_s = played.yields_s
    assert all(later - first >= 600 for first, later in zip(times_s, times_s[3:], strict=False)), played.seed


def test_a_day_of_an_office() -> None:
    played = PlayedOffice(OfficeDays(seed=2).make(), seed=2).play()
    check(played)
    assert len(played.yields_s) >= 3
    assert played.served_s > 4 * HOUR_S


@pytest.mark.slow
def test_many_days_of_many_people() -> None:
    offices = [PlayedOffice(OfficeDays(seed, days=3).make(), seed).play() for seed in range(100, 140)]
    for played in offices:
        check(played)
    assert sum(played.served_s for played in offices) > 40 * 3 * 8 * HOUR_S
    assert sum(len(played.yields_s) for played in offices) > 40 * 3 * 3
