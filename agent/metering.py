"""Counts, while the agent runs, what this PC contributes and when it rests. Event loop only."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from agent.history import History, Meter
from agent.link.messages import Resting
from agent.stage.gate import Gate
from agent.threads import finish_in_thread
from agent.volunteer.duty import Volunteer
from agent.volunteer.recording import AvailabilityRecorder
from agent.volunteer.states import Phase

log = logging.getLogger(__name__)

EVERY_S = 60.0


class Metering:
    """Keeps `history` and what is known of this PC's week. `run` it as long as the agent runs."""

    def __init__(self, folder: Path, watts: float) -> None:
        """`watts`: what computing takes beyond what this PC takes anyway. Reads files."""
        self.history = History(folder / "history.sqlite", watts)
        self._meter = Meter(self.history)
        self._rests = AvailabilityRecorder(folder)

    def end(self, gate: Gate) -> None:
        """A stage has ended: count the rest of it."""
        self._meter.end(gate)

    async def run(self, volunteer: Volunteer, on_counted: Callable[[], None], on_resting: Callable[[], None]) -> None:
        """Count until cancelled. `on_resting` hears that the console may know something else of when this PC rests."""
        try:
            while True:
                await asyncio.sleep(EVERY_S)
                await self._look_safely(volunteer, on_counted, on_resting)
        finally:
            self._rests.save()
            self.history.save()

    async def _look_safely(
        self, volunteer: Volunteer, on_counted: Callable[[], None], on_resting: Callable[[], None]
    ) -> None:
        try:
            self.count(volunteer, on_counted)
            # A commit may wait for the disk, which heartbeats and the owner's orders must not.
            await finish_in_thread(self.history.save)
            if not volunteer.always:
                await self.learn(volunteer, on_resting, time.time())
        except Exception:  # the edge of a task nobody awaits: what is not counted now is counted in a minute
            log.exception("Counting what this PC contributed failed.")

    def count(self, volunteer: Volunteer, on_counted: Callable[[], None]) -> None:
        """Count what was served since the last time; time that is not looked at would be booked as served later."""
        serving = volunteer.state.phase is Phase.SERVING
        self._meter.look(volunteer.gates.all() if serving else [])
        if serving:
            on_counted()

    async def learn(self, volunteer: Volunteer, on_resting: Callable[[], None], unix_s: float) -> None:
        """Learn when this PC rests, and let the console know as much of it as the policy lets."""
        offset_s = float(time.localtime(unix_s).tm_gmtoff)
        await finish_in_thread(partial(self._rests.note, volunteer.state, volunteer.policy, unix_s, offset_s))
        resting = Resting(self._rests.shared(volunteer.policy), offset_s)
        if resting != volunteer.resting:
            volunteer.resting = resting
            on_resting()
