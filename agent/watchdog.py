"""Is a stage's child process still getting on? What its gate counts, the time, and for silent ones what Linux says.

A process that lives and computes nothing is as dead as one that ended, only that nobody is told. So what counts is
progress: an inference that began has to end. A process that is frozen as a whole does not beat either; one that waits
for a processor or for the disk does not beat, too, and is left alone for longer.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Protocol

PROC = Path("/proc")
LOOK_S = 0.25
INFERENCE_S = 60.0
"""Far more than the longest chunk takes on the slowest PC, far less than a person waits."""
SILENT_LOOKS = 5 if sys.platform == "linux" else 8
"""A child beats as often as it is looked at. Looks are counted, not seconds: a PC that slept freezes nobody. Fewer do
where the system tells a child that only waits for the PC from one that is frozen."""
STARVED_LOOKS = 60
"""How many may pass while the child only waits for the PC, as on one that is busy or swaps."""


class Progress(Protocol):
    """What a gate tells; times are nanoseconds of one clock."""

    @property
    def is_inside(self) -> bool: ...

    @property
    def moved_ns(self) -> int: ...


class Pulse:
    """Counts the looks at a child's beat that found nothing new. Pure."""

    def __init__(self) -> None:
        self._beat_ns = 0
        self.silent = 0

    def look(self, beat_ns: int) -> int:
        """Take a look; returns how many in a row found the same beat. A child that never beat is still loading."""
        self.silent = self.silent + 1 if beat_ns and beat_ns == self._beat_ns else 0
        self._beat_ns = beat_ns
        return self.silent

    def is_frozen(self, *, starved: bool) -> bool:
        """Whether the child is given up; `starved` says that it only waits for the PC."""
        return self.silent >= (STARVED_LOOKS if starved else SILENT_LOOKS)


def stall_of(gate: Progress, now_ns: int) -> str:
    """Say why a child is given up that beats; empty while it gets on."""
    if gate.is_inside and now_ns - gate.moved_ns > INFERENCE_S * 1e9:
        return f"An inference did not end within {INFERENCE_S:.0f} s; the stage's process was ended."
    return ""


def waits_for_the_pc(pid: int) -> bool:
    """Whether a thread of a process is ready to run or waits for the disk; False but on Linux, which tells."""
    for stat in (PROC / str(pid) / "task").glob("*/stat"):
        with contextlib.suppress(OSError, IndexError):
            # The state follows the name, which stands in parentheses and may hold anything.
            if stat.read_text(errors="replace").rpartition(")")[2].split()[0] in ("R", "D"):
                return True
    return False
