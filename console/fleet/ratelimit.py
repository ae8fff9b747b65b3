"""A token bucket per source address, bounded in memory. Pure: time comes in as a number."""

from __future__ import annotations

from collections import OrderedDict


class RateLimiter:
    """Lets each source act `burst` times at once and `per_s` times a second after that.

    Remembers at most `sources` addresses; the one unseen for longest is forgotten first.
    """

    def __init__(self, *, burst: float, per_s: float, sources: int = 10_000) -> None:
        self._burst = burst
        self._per_s = per_s
        self._sources = sources
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, source: str, now_s: float) -> bool:
        """Whether `source` may act now; counts it if so."""
        left, then_s = self._buckets.pop(source, (self._burst, now_s))
        left = min(self._burst, left + max(0.0, now_s - then_s) * self._per_s)
        allowed = left >= 1.0
        self._buckets[source] = (left - 1.0 if allowed else left, now_s)
        while len(self._buckets) > self._sources:
            self._buckets.popitem(last=False)
        return allowed
