"""A step that came back, and where its time went: one partition of the trip, exact to the rounding. Pure.

The console sees when a step leaves, when it is sent on from stage to stage (unless these are linked directly) and when
it comes back. Each stage says itself how long it computed and how long the step waited for its turn there. What is left
between two sightings was spent on links, on the way there and back. Stages between which nothing was seen share that.
Clocks of different PCs are never compared: only durations are, on a clock each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from agent.stage.types import StageTiming
from console.pipeline.flight import Sent


class StagePart(NamedTuple):
    """Seconds of one trip at one stage: inference, sampling (at the tail), waiting for its turn, and the way."""

    compute_s: float
    sampling_s: float
    queue_s: float
    link_s: float

    @property
    def total_s(self) -> float:
        return sum(self)


class Trip(NamedTuple):
    """A step was on its way from `at_s` to `came_s`; the parts of its `stages` add up to that.

    `pcs` are the names of the PCs that held these.
    """

    at_s: float
    came_s: float
    stages: list[StagePart]
    pcs: Sequence[str]

    @property
    def took_s(self) -> float:
        return self.came_s - self.at_s

    @classmethod
    def of(cls, sent: Sent, timings: Sequence[StageTiming], came_s: float, pcs: Sequence[str]) -> Trip:
        """Divide a trip between the stages, with a timing of each."""
        seen = [(0, sent.at_s), *_in_order(sent, len(timings), came_s), (len(timings), came_s)]
        stages: list[StagePart] = []
        for (first, from_s), (last, to_s) in pairwise(seen):
            stages += _divide(timings[first:last], to_s - from_s)
        return cls(sent.at_s, came_s, stages, pcs)


def _in_order(sent: Sent, stages: int, came_s: float) -> list[tuple[int, float]]:
    """Return the sightings that can be: each of a later stage and time than the one before."""
    found: list[tuple[int, float]] = []
    stage, at_s = 0, sent.at_s
    for seen in sent.passes:
        if stage < seen[0] < stages and at_s <= seen[1] <= came_s:
            found.append(seen)
            stage, at_s = seen
    return found


def _divide(timings: Sequence[StageTiming], took_s: float) -> list[StagePart]:
    """Divide the time between two sightings between the stages that lie there."""
    said_s = sum(timing.compute_us + timing.queue_us for timing in timings) / 1e6
    # A stage that says more than passed here is made to fit: its clock is not ours.
    scale = min(1.0, took_s / said_s) if said_s > 0 else 1.0
    link_s = max(0.0, took_s - said_s * scale) / len(timings)
    unit_s = scale / 1e6
    parts = []
    for timing in timings:
        sampling_us = min(timing.sampling_us, timing.compute_us)
        compute_us = timing.compute_us - sampling_us
        parts.append(StagePart(compute_us * unit_s, sampling_us * unit_s, timing.queue_us * unit_s, link_s))
    return parts
