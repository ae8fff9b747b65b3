"""Where an answer's time goes, from the moment it was asked for to its end: parts that add up to all of it. Pure.

A mark moves through the answer's life. Whatever happens to it (it gets its place, a token comes, a PC is lost, it
ends) closes the time since the mark and gives it to one part. So nothing is counted twice and nothing is left out.
What a step spent is divided as its trip was (`trips.py`); an answer waits for all of a step, also for what others
brought into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from console.pipeline.parts import StageTime, TimeParts
from console.pipeline.trips import Trip

PhaseName = Literal["queue", "prefill", "decode", "recovery"]
Part = Literal["queue", "prompt", "recovery", "waiting", "sampling", "guessing", "other"]
_PARTS: tuple[Part, ...] = get_args(Part)
MOST_PHASES = 64
"""An answer that is interrupted again and again keeps its last phase open from there on."""
_LEFT: dict[PhaseName, Part] = {"queue": "queue", "prefill": "prompt", "recovery": "recovery", "decode": "other"}
"""What the time belongs to that is left in a phase when an answer ends."""


class Phase(NamedTuple):
    """What an answer was in, from when to when, in seconds of its clock."""

    name: PhaseName
    from_s: float
    to_s: float


@dataclass(slots=True)
class _Open:
    """A phase that may go on."""

    name: PhaseName
    from_s: float
    to_s: float


@dataclass(slots=True)
class _AtStage:
    compute_s: float = 0.0
    turn_s: float = 0.0
    link_s: float = 0.0


class Spent:
    """One answer's time. All moments are seconds of the same monotonic clock; those before the mark change nothing."""

    def __init__(self, accepted_s: float) -> None:
        self._mark_s = accepted_s
        self._phase: PhaseName = "queue"
        self._has_tokens = False
        self._parts_s = dict.fromkeys(_PARTS, 0.0)
        self._stages: dict[str, _AtStage] = {}
        self._went: list[_Open] = []

    @property
    def phases(self) -> list[Phase]:
        """What it went through so far, without gaps."""
        return [Phase(one.name, one.from_s, one.to_s) for one in self._went]

    def began(self, now_s: float) -> None:
        """Its first row leaves: it has its place, for the first time or again."""
        if self._phase == "recovery":
            self._close("recovery", now_s, "recovery")
            # What is computed again after a loss belongs to the loss.
            self._phase = "recovery" if self._has_tokens else "prefill"
        else:
            self._close("queue", now_s, "queue")
            self._phase = "prefill"

    def came(self, trip: Trip, wrong_s: float = 0.0) -> None:
        """Tokens came by a trip; `wrong_s` of its inference went into guesses that were wrong."""
        self._has_tokens = True
        if trip.came_s < self._mark_s:
            return  # it lost its place or a PC in the same moment, and what follows belongs to that
        if self._phase != "decode":
            self._close("recovery" if self._phase == "recovery" else "prompt", trip.came_s, self._phase)
            self._phase = "decode"
            return
        self._close("waiting", trip.at_s, "decode")
        passed_s = self._advance(trip.came_s, "decode")
        # Less than the trip took only if something had moved the mark beyond its beginning.
        self._divide(trip, passed_s / trip.took_s if trip.took_s > 0 else 0.0, wrong_s)

    def lost(self, now_s: float) -> None:
        """A PC is lost: what was on its way is of no use, and from here on others have to take over."""
        self._close("queue" if self._phase == "queue" else "recovery", now_s, self._phase)
        self._phase = "recovery"

    def ended(self, now_s: float) -> tuple[TimeParts, list[StageTime]]:
        """The answer is over. Returns its parts, and those of each PC."""
        self._close(_LEFT[self._phase], now_s, self._phase)
        stages = [
            StageTime(pc, 1000 * one.compute_s, 1000 * one.turn_s, 1000 * one.link_s)
            for pc, one in self._stages.items()
        ]
        took = self._parts_s
        parts = TimeParts(
            queue_ms=1000 * took["queue"],
            prompt_ms=1000 * took["prompt"],
            waiting_ms=1000 * took["waiting"],
            compute_ms=sum(one.compute_ms for one in stages),
            turn_ms=sum(one.turn_ms for one in stages),
            link_ms=sum(one.link_ms for one in stages),
            sampling_ms=1000 * took["sampling"],
            guessing_ms=1000 * took["guessing"],
            recovery_ms=1000 * took["recovery"],
            other_ms=1000 * took["other"],
        )
        return parts, stages

    def _close(self, part: Part, to_s: float, phase: PhaseName) -> None:
        self._parts_s[part] += self._advance(to_s, phase)

    def _advance(self, to_s: float, phase: PhaseName) -> float:
        """Move the mark and return by how much."""
        passed_s = to_s - self._mark_s
        if passed_s <= 0:
            return 0.0
        last = self._went[-1] if self._went else None
        if last is not None and (last.name == phase or len(self._went) >= MOST_PHASES):
            last.to_s = to_s
        else:
            self._went.append(_Open(phase, self._mark_s, to_s))
        self._mark_s = to_s
        return passed_s

    def _divide(self, trip: Trip, scale: float, wrong_s: float) -> None:
        """Give each PC its share of a trip, of which `scale` is this answer's."""
        wrong, sampled_s = 0.0, 0.0
        if wrong_s > 0 and (computed_s := sum(part.compute_s for part in trip.stages)) > 0:
            wrong = min(1.0, wrong_s / computed_s)
            self._parts_s["guessing"] += scale * wrong * computed_s
        # Once for each token of each answer, so as little as may be.
        for pc, (compute_s, sampling_s, queue_s, link_s) in zip(trip.pcs, trip.stages, strict=True):
            known = self._stages.get(pc)
            if known is None:
                known = self._stages[pc] = _AtStage()
            known.compute_s += scale * (1 - wrong) * compute_s
            known.turn_s += scale * queue_s
            known.link_s += scale * link_s
            sampled_s += sampling_s
        self._parts_s["sampling"] += scale * sampled_s
