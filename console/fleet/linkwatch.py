"""How long links take there and back, from the pings that keep them alive anyway. Event loop only."""

from __future__ import annotations

import asyncio

from console.fleet.events import LinkTimed
from console.fleet.sessions import Sessions

LOOK_S = 10.0
NEWS = 0.25
"""A round trip is told when it differs by more than this share and by `NEWS_MS`, or after `AGAIN_S`."""
NEWS_MS = 0.3
AGAIN_S = 3600.0
LOOKS = 12
"""A round trip is the best of so many looks: whatever else is on its way only ever makes one longer."""


class RoundTrips:
    """One PC's link: what its pings took, and what was told of it. Pure."""

    def __init__(self) -> None:
        self._seen: list[float] = []
        self._told_ms = 0.0
        self._told_s = -AGAIN_S

    def look(self, latency_ms: float, now_s: float) -> float | None:
        """Take the last ping into account (0: there was none yet); returns a round trip that is worth telling."""
        if latency_ms <= 0:
            return None
        self._seen = [*self._seen, latency_ms][-LOOKS:]
        best_ms = min(self._seen)
        change_ms = abs(best_ms - self._told_ms)
        is_news = change_ms > NEWS_MS and change_ms > NEWS * self._told_ms
        if not is_news and now_s - self._told_s < AGAIN_S:
            return None
        self._told_ms, self._told_s = best_ms, now_s
        return best_ms


class LinkWatch:
    """Looks at every session's control link from time to time."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._links: dict[str, RoundTrips] = {}

    def look(self, now_s: float) -> None:
        """Look at every link once, and tell of those that have changed."""
        links, self._links = self._links, {}
        for session in self._sessions:
            link = self._links[session.device_id] = links.get(session.device_id) or RoundTrips()
            round_trip_ms = link.look(1000 * session.control.latency, now_s)
            if round_trip_ms is not None:
                self._sessions.emit(LinkTimed(session.device_id, round_trip_ms))

    async def watch(self) -> None:
        """Look until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            self.look(loop.time())
