"""How the steps of one stage reach the next: by the console's relay, or directly. Pure: time is a number.

No step is lost, repeated or overtaken when the way changes:
- To the direct way only after the receiver has taken every step that the relay was given; what comes meanwhile waits.
- Back to the relay by sending everything again that the receiver has not confirmed; it drops what it has already, by
  step id, because the ids of a plan epoch only grow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from agent.link.frames import MAX_FRAME_BYTES

MAX_KEPT_BYTES = 2 * MAX_FRAME_BYTES
"""What may wait for a slow receiver before the relay takes over."""
PATIENCE_S = 2.0
"""A receiver confirms within a fraction of this; one that does not is taken for gone, and the relay knows better."""


class Direct(Protocol):
    """The direct way."""

    def write(self, data: bytes) -> None:
        """Send one frame without waiting."""
        ...

    def abort(self) -> None:
        """Give the link up. Whatever it would still deliver is dropped by the receiver as repeated."""
        ...


class _Kept(NamedTuple):
    step: int
    data: bytes
    since_s: float


class Hop:
    """One stage's way to the next in one plan epoch. `relay` sends a frame to the console, without waiting."""

    def __init__(self, relay: Callable[[bytes], None], max_kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self._relay = relay
        self._max_kept_bytes = max_kept_bytes
        self._direct: Direct | None = None
        self._settled = False
        self._relayed = -1
        self._kept: deque[_Kept] = deque()
        """While settled: sent directly, not confirmed. Before: not sent at all."""
        self._kept_bytes = 0

    @property
    def is_direct(self) -> bool:
        """Whether the next step takes the direct way."""
        return self._settled

    def send(self, step: int, data: bytes, now_s: float) -> None:
        """Send one STEP frame; `step` is the id in its header."""
        direct = self._direct
        if direct is not None and self._kept_bytes + len(data) > self._max_kept_bytes:
            self.close()
            direct = None
        if direct is None:
            self._relayed = step
            self._relay(data)
            return
        self._kept.append(_Kept(step, data, now_s))
        self._kept_bytes += len(data)
        if self._settled:
            direct.write(data)

    def open(self, direct: Direct, taken: int) -> None:
        """Begin to change to `direct`, whose receiver has taken the steps up to `taken` (-1: none)."""
        self.close()
        self._direct = direct
        self.confirm(direct, taken)

    def confirm(self, direct: Direct, taken: int) -> None:
        """The receiver at the end of `direct` has taken the steps up to `taken`. A former link's word is ignored."""
        if direct is not self._direct:
            return
        if self._settled:
            while self._kept and self._kept[0].step <= taken:
                self._kept_bytes -= len(self._kept.popleft().data)
        elif taken >= self._relayed:
            self._settled = True
            for kept in self._kept:
                direct.write(kept.data)

    def is_overdue(self, now_s: float) -> bool:
        """Whether the receiver owes a confirmation for longer than it should: close the hop then."""
        return bool(self._kept) and now_s - self._kept[0].since_s > PATIENCE_S

    def lost(self, direct: Direct) -> None:
        """`direct` carries nothing any more. A former link's end is ignored."""
        if direct is self._direct:
            self.close()

    def close(self) -> None:
        """Go back to the relay, in order and without a gap. Safe to call again."""
        direct, kept = self._direct, list(self._kept)
        self._direct, self._settled, self._kept_bytes = None, False, 0
        self._kept.clear()
        if direct is not None:
            direct.abort()
        for step, data, _ in kept:
            self._relayed = step
            self._relay(data)
