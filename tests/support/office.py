"""Days of an office, made from a seed: who is at which PC when, and what its probes would say. No machine in here."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agent.volunteer.facts import Memory, Power
from agent.volunteer.policy import GIB

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0
LONGEST_STILL_S = 240.0
"""A person who works at a PC touches it at least this often; who watches a film need not."""


@dataclass(frozen=True)
class Event:
    """At `at_s` of the trace: an input, other facts, or the PC falling asleep until `sleeps_until_s`."""

    at_s: float
    is_input: bool = False
    seen: dict[str, Any] = field(default_factory=dict)
    sleeps_until_s: float = 0.0


@dataclass
class Trace:
    """A PC's days, beginning on a Monday at midnight. `present` are the times somebody uses the PC, in order."""

    days: int
    is_laptop: bool
    events: list[Event] = field(default_factory=list)
    present: list[tuple[float, float]] = field(default_factory=list)


class OfficeDays:
    """Makes one PC's trace. Everything follows from the seed."""

    def __init__(self, seed: int, days: int = 1) -> None:
        self._random = random.Random(seed)
        self._trace = Trace(days, is_laptop=self._random.random() < 0.5)

    def make(self) -> Trace:
        if self._trace.is_laptop:
            self._see(0.0, power=Power(on_mains=True, has_battery=True, battery_percent=95.0))
        for day in range(self._trace.days):
            self._day(day * DAY_S)
        self._trace.events.sort(key=lambda event: event.at_s)
        self._trace.present.sort()
        return self._trace

    def _day(self, midnight_s: float) -> None:
        rng = self._random
        if rng.random() < 0.2:
            self._jitter(midnight_s + rng.uniform(0, 3) * HOUR_S, rng.uniform(0.2, 2) * HOUR_S)
        if rng.random() < 0.3:
            self._night_visit(midnight_s + rng.uniform(1, 6) * HOUR_S)
        now_s = midnight_s + rng.gauss(8.75, 0.6) * HOUR_S
        lunch_s = midnight_s + rng.uniform(11.5, 13) * HOUR_S
        home_s = midnight_s + rng.gauss(17.5, 0.8) * HOUR_S
        while now_s < home_s:
            if lunch_s <= now_s:
                lunch_s = float("inf")
                now_s = self._leave(now_s) + rng.uniform(25, 70) * MINUTE_S
            now_s = rng.choice(
                [self._desk, self._desk, self._desk, self._coffee, self._meeting, self._film, self._build, self._game]
            )(now_s)
        now_s = self._leave(now_s)
        for _ in range(rng.choice([0, 0, 1, 3])):  # "I only forgot to send one mail"
            now_s = self._leave(self._desk(now_s + rng.uniform(0.5, 12) * MINUTE_S, rng.uniform(5, 120)))
        if self._trace.is_laptop and rng.random() < 0.3:
            until_s = midnight_s + DAY_S + rng.uniform(0, 6) * HOUR_S
            self._trace.events.append(Event(now_s + 60, sleeps_until_s=until_s))

    # What people do: each begins at `now_s` and returns its end

    def _desk(self, now_s: float, for_s: float = 0.0) -> float:
        end_s = now_s + (for_s or self._random.uniform(5, 80) * MINUTE_S)
        self._see(now_s, locked=False)
        for moment_s in self._inputs(now_s, end_s):
            self._touch(moment_s)
        self._trace.present.append((now_s, end_s))
        return end_s

    def _leave(self, now_s: float) -> float:
        """Lock the PC, or do not think of it."""
        if self._random.random() < 0.6:
            self._touch(now_s)
            self._see(now_s + 0.5, locked=True)
        return now_s

    def _coffee(self, now_s: float) -> float:
        return self._leave(now_s) + self._random.uniform(1, 12) * MINUTE_S

    def _meeting(self, now_s: float) -> float:
        """Desktops stay behind. Laptops come along, on battery, and show something."""
        end_s = now_s + self._random.uniform(20, 90) * MINUTE_S
        if not self._trace.is_laptop:
            self._leave(now_s)
            return end_s
        self._see(now_s, locked=False, power=Power(on_mains=False, has_battery=True, battery_percent=70.0))
        self._see(now_s + 30, presentation=True, fullscreen=True)
        for moment_s in self._inputs(now_s, end_s, usual_s=90.0):
            self._touch(moment_s)
        self._see(end_s - 5, presentation=False, fullscreen=False)
        self._see(end_s, power=Power(on_mains=True, has_battery=True, battery_percent=60.0))
        self._trace.present.append((now_s, end_s))
        return self._desk(end_s)

    def _film(self, now_s: float) -> float:
        """Nobody touches anything; a film tells the system, or is only seen by the load it makes."""
        end_s = now_s + self._random.uniform(10, 60) * MINUTE_S
        signs: list[tuple[dict[str, Any], dict[str, Any]]] = [
            ({"inhibitors": ("player",)}, {"inhibitors": ()}),
            ({"fullscreen": True}, {"fullscreen": False}),
            ({"other_gpu_percent": 25.0}, {"other_gpu_percent": 1.0}),
        ]
        before, after = self._random.choice(signs)
        self._see(now_s, locked=False)
        self._touch(now_s)
        self._see(now_s + 3, **before)
        self._see(end_s, **after)
        self._touch(end_s)
        self._trace.present.append((now_s, end_s))
        return self._desk(end_s)

    def _build(self, now_s: float) -> float:
        """A long calculation runs on after its owner left."""
        self._see(now_s, other_cpu_percent=85.0)
        gone_s = self._leave(self._desk(now_s))
        end_s = gone_s + self._random.uniform(1, 20) * MINUTE_S
        self._see(end_s, other_cpu_percent=3.0)
        return end_s

    def _game(self, now_s: float) -> float:
        """A program that wants the PC to itself, and much of its memory."""
        self._see(now_s + 5, exclusive=("recorder",), memory=Memory(16 * GIB, 3 * GIB))
        end_s = self._desk(now_s)
        self._see(end_s, exclusive=(), memory=Memory(16 * GIB, 12 * GIB))
        return end_s

    def _night_visit(self, now_s: float) -> None:
        for _ in range(self._random.randint(1, 6)):
            now_s = self._leave(self._desk(now_s, self._random.uniform(3, 90))) + self._random.uniform(20, 400)

    def _jitter(self, now_s: float, for_s: float) -> None:
        """A mouse on a table that shakes: input without a person."""
        end_s = now_s + for_s
        while now_s < end_s:
            self._touch(now_s)
            now_s += self._random.expovariate(1 / 150)

    def _inputs(self, now_s: float, end_s: float, usual_s: float = 12.0) -> Iterator[float]:
        while now_s < end_s:
            yield now_s
            now_s += min(self._random.expovariate(1 / usual_s) + 0.3, LONGEST_STILL_S)
        yield end_s

    def _touch(self, at_s: float) -> None:
        self._trace.events.append(Event(at_s, is_input=True))

    def _see(self, at_s: float, **seen: Any) -> None:
        self._trace.events.append(Event(at_s, seen=seen))
