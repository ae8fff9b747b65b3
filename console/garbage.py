"""When Python's garbage collector looks at everything: while nobody waits for the console.

A full collection holds the interpreter for as long as it takes to look at every container there is, a quarter of a
second once a model is deployed. Meanwhile no answer goes on, no request is refused, no heartbeat is heard. So what is
there is set aside (`gc.freeze`), which takes no time, and full collections look only at what came since.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Hashable
from typing import Literal, Protocol

from console.fleet.upkeep import stopped_within

LOOK_S = 1.0
RESTED_S = 3.0
"""How long nobody has waited before everything is looked at: who comes back at once shall find a quick console."""
ANEW_S = 600.0
"""How often everything is looked at in a console that rests; only then garbage that was set aside is found."""

Due = Literal["nothing", "set_aside", "look_at_all"]


class Watched(Protocol):
    """What the plan asks of the service."""

    def pipelines_up(self) -> Hashable:
        """Whatever differs once other pipelines are up, or others serve them."""
        ...

    @property
    def is_resting(self) -> bool:
        """Whether no answer is running or waiting."""
        ...


class CollectionPlan:
    """Decides; knows neither clock nor collector."""

    def __init__(self, now_s: float, pipelines: Hashable) -> None:
        self._pipelines = pipelines
        self._looked_s = self._busy_s = now_s
        self._changed = False

    def due(self, now_s: float, pipelines: Hashable, *, resting: bool) -> Due:
        """Say what to do now; it counts as done."""
        if not resting:
            self._busy_s = now_s
        if pipelines != self._pipelines:
            self._pipelines, self._changed = pipelines, True
            return "set_aside"
        waited = self._changed or now_s - self._looked_s >= ANEW_S
        if waited and now_s - self._busy_s >= RESTED_S:
            self._looked_s, self._changed = now_s, False
            return "look_at_all"
        return "nothing"


def look_at_all() -> None:
    """Find all garbage, also what was set aside, and set aside what is left. Takes up to 0.3 s."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


async def keep_collections_short(service: Watched, stopping: asyncio.Event, *, look_s: float = LOOK_S) -> None:
    """Do what is due until `stopping` is set. Changes the collector of this process, for good."""
    look_at_all()
    plan = CollectionPlan(time.monotonic(), service.pipelines_up())
    acts: dict[Due, Callable[[], None]] = {"set_aside": gc.freeze, "look_at_all": look_at_all}
    while not await stopped_within(stopping, look_s):
        due = plan.due(time.monotonic(), service.pipelines_up(), resting=service.is_resting)
        if due != "nothing":
            acts[due]()
