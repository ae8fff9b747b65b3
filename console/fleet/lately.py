"""How each PC was in the last hour, and what it logged last: nothing of it outlives the console. Event loop only."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import NamedTuple

from agent.link.messages import SendLog
from console.fleet.errors import LogNotSent
from console.fleet.sessions import Sessions

EVERY_S = 15.0
KEPT_S = 3600.0
KEPT = round(KEPT_S / EVERY_S)
LOG_LINES, LOG_WAIT_S = 200, 5.0


class Sample(NamedTuple):
    """One PC at Unix time `at_s`. `round_trip_ms`: of its control link's last ping, 0 when there was none yet."""

    at_s: float
    memory_free_bytes: int
    round_trip_ms: float
    held: bool


class Samples:
    """What was sampled of all PCs. One that left is remembered until its last sample is too old. Pure."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[Sample]] = {}

    def take(self, device_id: str, sample: Sample) -> None:
        """Add a sample of a PC."""
        self._samples.setdefault(device_id, deque(maxlen=KEPT)).append(sample)

    def forget(self, now_s: float) -> None:
        """Drop what is too old."""
        for device_id, samples in list(self._samples.items()):
            while samples and samples[0].at_s < now_s - KEPT_S:
                samples.popleft()
            if not samples:
                del self._samples[device_id]

    def of(self, device_id: str) -> list[Sample]:
        """Return the samples of a PC, the oldest first."""
        return list(self._samples.get(device_id, ()))


class Lately:
    """One for all PCs of a console."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._samples = Samples()

    def of(self, device_id: str) -> list[Sample]:
        """Return how a PC was while it was connected here, the oldest sample first."""
        return self._samples.of(device_id)

    async def log_of(self, device_id: str) -> list[str]:
        """Ask a PC for the last lines of its log, the oldest first. Raises LogNotSent."""
        session = self._sessions.find(device_id)
        if session is None or session.data is None:
            raise LogNotSent("This PC is not connected here; its log can be read once it is.")
        if not session.hello.tells_log:
            raise LogNotSent(f"The agent of {session.name} is too old to send its log; update it.")
        asked = session.ask_log()
        self._sessions.say(session, SendLog(LOG_LINES))
        try:
            async with asyncio.timeout(LOG_WAIT_S):
                lines = await asyncio.shield(asked)
        except TimeoutError:
            raise LogNotSent(f"{session.name} did not send its log within {LOG_WAIT_S:.0f} s; try again.") from None
        if session.lost:
            raise LogNotSent(f"{session.name} left before it had sent its log; try again once it is back.")
        return lines

    def look(self, now_s: float) -> None:
        """Sample every PC that has joined and said how it is."""
        for session in self._sessions:
            beat = session.heartbeat
            if beat is not None and session.data is not None:
                sample = Sample(now_s, beat.memory_free_bytes, 1000 * session.control.latency, session.is_held)
                self._samples.take(session.device_id, sample)
        self._samples.forget(now_s)

    async def watch(self) -> None:
        """Sample until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            self.look(time.time())
