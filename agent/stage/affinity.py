"""Where threads run: the computing thread on cores of its own, everything else beside it and before it.

An I/O thread on the core that computes costs a quarter of the throughput (371 against 484 tokens/s). Linux only;
elsewhere the runtime's own thread placement stays.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from agent.stage import slices


def pin_this_thread(cores: Iterable[int]) -> None:
    """Keep the calling thread, and threads it starts from now on, on these cores. Unknown cores are ignored."""
    if sys.platform == "linux":
        usable = set(cores) & set(range(os.cpu_count() or 1))
        if usable:
            os.sched_setaffinity(0, usable)


def compute_here(cores: Iterable[int]) -> None:
    """Let the calling thread, and threads it starts from now on, compute on these cores and make way for all others."""
    pin_this_thread(cores)
    slices.ask_for_long()


def stay_beside(cores: Iterable[int]) -> None:
    """Keep the calling thread, which does not compute, on these cores, and before those that do."""
    pin_this_thread(cores)
    slices.ask_for_usual()


def other_cores(cores: Iterable[int]) -> set[int]:
    """List the cores this process may use beside `cores`; all of them when none would be left."""
    if sys.platform != "linux":
        return set()
    allowed = os.sched_getaffinity(0)
    return (allowed - set(cores)) or allowed
