"""Weeks of an office by the hundred PCs: when each may be used, and when somebody is at it.

A few dozen days are played through the real volunteer machine, moment by moment; every PC then lives a week of those
days, each a little earlier or later by its owner's habit, with days on which the owner is away and nights on which the
PC is off. Everything follows from the seed.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent.volunteer.availability import Rest, coarse, watch
from tests.support.office import DAY_S, HOUR_S, OfficeDays
from tests.support.played_office import POLL_S, PlayedOffice

WORKDAYS, WEEK_DAYS = 5, 7
MONDAY_UNIX_S = 1_767_571_200.0  # 5 January 2026, 00:00 UTC
AWAY_SHARE, ON_WHILE_AWAY_SHARE, ON_AT_NIGHT_SHARE = 0.25, 0.65, 0.7
"""Days on which the owner is not in the office, and how many PCs are on then, and at night."""
HABIT_S = 0.5 * HOUR_S
EVENING_S, MORNING_S = 19 * HOUR_S, 7 * HOUR_S
Span = tuple[float, float]


class Day(NamedTuple):
    """From midnight to midnight: when the machine offers the PC, and when somebody is at it."""

    offered: list[Span]
    present: list[Span]


class Weeks(NamedTuple):
    """One PC's weeks, beginning on a Monday at midnight."""

    offered: list[Span]
    present: list[Span]

    def is_present(self, at_s: float) -> bool:
        """Whether somebody has been at the PC for longer than the machine needs to see it."""
        return holds(self.present, at_s - POLL_S - 0.01) and holds(self.present, at_s)


def holds(spans: Sequence[Span], at_s: float) -> bool:
    """Tell whether a moment is in one of some spans, which are in order."""
    place = bisect_right(spans, (at_s, float("inf"))) - 1
    return place >= 0 and at_s < spans[place][1]


def played_days(traces: int, days: int, seed: int) -> Iterator[list[Day]]:
    """Play workdays and yield those of each trace that began before their midnight, one after the other."""
    for number in range(traces):
        trace = OfficeDays(seed + number, days=days + 1).make()
        played = PlayedOffice(trace, seed + number).play()
        if played.intrusions:
            raise SystemExit(f"The volunteer machine worked while somebody was there: {played.intrusions[:3]}")
        yield [
            Day(cut(played.offered, day * DAY_S, (day + 1) * DAY_S), cut(trace.present, day * DAY_S, (day + 1) * DAY_S))
            for day in range(1, days + 1)
        ]


def cut(spans: Sequence[Span], first_s: float, last_s: float) -> list[Span]:
    """Return what of some spans lies between two moments, counted from the first."""
    return [
        (max(begin, first_s) - first_s, min(end, last_s) - first_s)
        for begin, end in spans
        if begin < last_s and end > first_s
    ]


def make_weeks(days: Sequence[Sequence[Day]], weeks: int, chance: random.Random) -> Weeks:
    """Make one PC's weeks out of played days."""
    habit_s = max(-2 * HABIT_S, min(2 * HABIT_S, chance.gauss(0, HABIT_S)))
    own = chance.choice(days)
    offered: list[Span] = []
    present: list[Span] = []
    on: list[Span] = []
    for day in range(weeks * WEEK_DAYS):
        midnight_s = day * DAY_S
        works = day % WEEK_DAYS < WORKDAYS and chance.random() >= AWAY_SHARE
        shape = chance.choice(own if chance.random() < 0.8 else chance.choice(days)) if works else Day([(0, DAY_S)], [])
        offered += [(midnight_s + habit_s + begin, midnight_s + habit_s + end) for begin, end in shape.offered]
        present += [(midnight_s + habit_s + begin, midnight_s + habit_s + end) for begin, end in shape.present]
        if works or chance.random() < ON_WHILE_AWAY_SHARE:
            on.append((midnight_s + MORNING_S, midnight_s + EVENING_S))
        if chance.random() < ON_AT_NIGHT_SHARE:
            on.append((midnight_s + EVENING_S, midnight_s + DAY_S + MORNING_S))
    # Who stays late or comes early has the PC on.
    return Weeks(_both(_merged(offered), _merged(sorted([*on, *present]))), present)


def _merged(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for begin, end in spans:
        if merged and begin <= merged[-1][1] + 1.0:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _both(ones: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """Return when both hold."""
    found = [
        (max(one[0], other[0]), min(one[1], other[1]))
        for one in ones
        for other in others
        if one[0] < other[1] and other[0] < one[1]
    ]
    return [(begin, end) for begin, end in found if end - begin > 1.0]


def learnt(weeks: Weeks, until_s: float) -> tuple[int, ...]:
    """Return what a PC would have told of its habits at some time: its own arithmetic, fed with what it did."""
    rest = Rest()
    for begin, end in [*cut(weeks.offered, 0.0, until_s), (until_s, until_s)]:
        rest = watch(rest, MONDAY_UNIX_S + begin, 0.0, resting=False, longest_s=DAY_S * WEEK_DAYS)
        rest = watch(rest, MONDAY_UNIX_S + end, 0.0, resting=True, longest_s=DAY_S * WEEK_DAYS)
    return tuple(coarse(rest))


def share_offered(fleet: Sequence[Weeks], days: range, first_s: float, last_s: float) -> float:
    """Return how much of the time between two hours of some days the PCs of a fleet may be used, 0 to 1."""
    total = sum(
        end - begin
        for weeks in fleet
        for day in days
        for begin, end in cut(weeks.offered, day * DAY_S + first_s, day * DAY_S + last_s)
    )
    return total / (len(fleet) * len(days) * (last_s - first_s))
