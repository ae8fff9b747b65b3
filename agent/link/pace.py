"""How fast model files may travel to and from this PC, and when. Pure: times come in as numbers.

A PC has one of these for all of its fetches and all it serves, so the limit is that of its network link, both ways
and whoever is at the other end.
"""

from __future__ import annotations

from collections.abc import Callable

_LEAST_CHUNK_BYTES, _MOST_CHUNK_BYTES = 16 << 10, 1 << 20


class Pace:
    """At most `bytes_per_s` in the hours from `first_hour` until `last_hour` (local time), as fast as it goes outside.

    Equal hours mean: always; 0 bytes a second mean: no limit. Hours may pass midnight (22 until 6).
    """

    def __init__(self, bytes_per_s: float, first_hour: int, last_hour: int, hour: Callable[[], float]) -> None:
        """`hour` returns the local time in hours since midnight."""
        self._bytes_per_s = bytes_per_s
        self._hours = (first_hour, last_hour)
        self._hour = hour
        self._free_at_s = 0.0

    def wait_s(self, size_bytes: int, now_s: float) -> float:
        """Count `size_bytes` and return how long to wait before going on."""
        if not self.limits_now:
            return 0.0
        self._free_at_s = max(self._free_at_s, now_s) + size_bytes / self._bytes_per_s
        return self._free_at_s - now_s

    @property
    def limits_now(self) -> bool:
        """Whether there is a limit at this hour."""
        return bool(self._bytes_per_s) and self._applies()

    @property
    def chunk_bytes(self) -> int:
        """What to send at once so that nobody waits much longer than a second per party for a sign of life."""
        return max(_LEAST_CHUNK_BYTES, int(self._bytes_per_s)) if self._bytes_per_s else _MOST_CHUNK_BYTES

    def _applies(self) -> bool:
        (first, last), hour = self._hours, self._hour()
        if first == last:
            return True
        return first <= hour < last if first < last else hour >= first or hour < last
