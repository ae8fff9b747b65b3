"""Is the memory of a stage back? Its process has to be gone, and what the system says it holds on its device with it.

Only what is counted as this process's is looked at: what other programs take meanwhile is their own affair. Where the
system does not tell who holds what (a CPU, or Linux, which tells of living processes only), the end of the process is
all the proof there is. Blocking for some milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec

from agent.volunteer import device_use
from agent.volunteer.memory import DeviceMemory

TOLERANCE = 0.05
PATIENCE_S = 2.0
LOOK_S = 0.05


class Taken(msgspec.Struct, frozen=True):
    """A stage that was told to end; `name` is its device's, `device_bytes` what it held there once it was loaded.

    `device_bytes` is 0 where the system does not tell.
    """

    pid: int
    name: str
    device: DeviceMemory
    device_bytes: int


def missing(
    taken: Iterable[Taken], clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> str:
    """Wait until everything is back; returns what is not after `PATIENCE_S`, as a phrase, empty if nothing.

    A driver may hold on to a dead process's memory for a moment, and a broken one for ever.
    """
    end_s = clock() + PATIENCE_S
    for one in taken:
        while not _is_back(one):
            if clock() >= end_s:
                return f"a stage's process, or its memory on {one.name}, is still there"
            sleep(LOOK_S)
    return ""


def _is_back(taken: Taken) -> bool:
    if device_use.private_bytes(taken.pid):
        return False
    return device_use.held_by_process(taken.pid, taken.device) <= TOLERANCE * taken.device_bytes
