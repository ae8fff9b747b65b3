"""Is a stage's child process still getting on? Pure: what its gate counts, and the time.

A process that lives and computes nothing is as dead as one that ended, only that nobody is told. So what counts is
progress: an inference that began has to end. A process that is frozen as a whole does not beat either.
"""

from __future__ import annotations

from typing import Protocol

LOOK_S = 1.0
INFERENCE_S = 60.0
"""Far more than the longest chunk takes on the slowest PC, far less than a person waits."""
SILENCE_S = 15.0
"""A child beats once a second; a PC that swaps may be this late."""


class Progress(Protocol):
    """What a gate tells; times are nanoseconds of one clock."""

    @property
    def is_inside(self) -> bool: ...

    @property
    def moved_ns(self) -> int: ...

    @property
    def beat_ns(self) -> int: ...


def stall_of(gate: Progress, now_ns: int) -> str:
    """Say why a child is given up, empty while it gets on. A child that never beat is still loading."""
    if gate.is_inside and now_ns - gate.moved_ns > INFERENCE_S * 1e9:
        return f"An inference did not end within {INFERENCE_S:.0f} s; the stage's process was ended."
    if gate.beat_ns and now_ns - gate.beat_ns > SILENCE_S * 1e9:
        return f"The stage's process was frozen for {SILENCE_S:.0f} s and was ended."
    return ""
