"""How long a thread computes before the scheduler looks for others, and who may interrupt it.

Linux lets a thread that wakes up go first when it has a shorter slice than the one that runs (6.12 and newer). So with
slices a little longer than usual for what computes, every other thread of the PC, the owner's as well as those that
read and send steps, gets its core at once and not up to three milliseconds later. No thread's share of the processor
changes. Two stages on two cores gave 8 and 16 answers at once 2 to 9% more tokens per second. Older kernels and other
systems ignore all this.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys

LONG_NS = 6_000_000
"""Above the usual slice, which is 0.7 ms on one core and 2.8 ms on eight or more, and short enough for a program that
never waits: it may be kept waiting this long."""
_CALLS = {"x86_64": (315, 314), "aarch64": (275, 274), "riscv64": (275, 274)}
"""By machine, the numbers of sched_getattr and sched_setattr, for which the C library has no functions yet."""


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32), ("policy", ctypes.c_uint32), ("flags", ctypes.c_uint64), ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32), ("runtime_ns", ctypes.c_uint64), ("deadline_ns", ctypes.c_uint64),
        ("period_ns", ctypes.c_uint64),
    )  # fmt: skip


def ask_for_long() -> None:
    """Let this thread, and those it starts from now on, compute in longer slices than all others. Never raises."""
    _ask_for(LONG_NS)


def ask_for_usual() -> None:
    """Take that back for this thread. Never raises."""
    _ask_for(0)


def slice_ns() -> int:
    """Return this thread's slice; 0 where there is no such thing."""
    attributes = _get()
    return 0 if attributes is None or attributes.policy != os.SCHED_OTHER else int(attributes.runtime_ns)


def _ask_for(runtime_ns: int) -> None:
    attributes = _get()
    # Another policy than the usual one was somebody's choice, and its run time means something else.
    if attributes is None or attributes.policy != os.SCHED_OTHER:
        return
    attributes.runtime_ns = runtime_ns
    _call(1, ctypes.byref(attributes), 0)


def _get() -> _Attributes | None:
    attributes = _Attributes()
    size = ctypes.sizeof(attributes)
    return attributes if _call(0, ctypes.byref(attributes), size, 0) else None


def _call(which: int, *arguments: object) -> bool:
    """Make one of the two calls for this thread; returns whether it was done."""
    numbers = _CALLS.get(platform.machine()) if sys.platform == "linux" and sys.maxsize > 2**32 else None
    return numbers is not None and ctypes.CDLL(None).syscall(numbers[which], 0, *arguments) == 0
