"""Is the memory of a stage back? Its process has to be gone, and what it held on its device with it.

Drivers may hold on to a dead process's memory for a moment, and a broken one for ever. On a CPU, and where the system
does not tell who holds what, the end of the process is all the proof there is. Blocking for some milliseconds.
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
    """What a stage held on its device, and all programs together, right before its end."""

    pid: int
    name: str
    device: DeviceMemory
    stage_bytes: int
    all_bytes: int


def take_stock(pid: int, name: str, device: DeviceMemory) -> Taken:
    """Look at a stage that still lives; `name` is the device's."""
    if not device.address:
        return Taken(pid, name, device, 0, 0)
    on_device = device_use.stage_bytes_now(pid, device) - device_use.private_bytes(pid)
    return Taken(pid, name, device, max(0, on_device), device_use.held_on_device(device))


def missing(
    taken: Iterable[Taken], clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> str:
    """Wait until everything is back; returns what is not after `PATIENCE_S`, as a phrase, empty if nothing."""
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
    if not taken.stage_bytes:
        return True
    return device_use.held_on_device(taken.device) <= taken.all_bytes - (1 - TOLERANCE) * taken.stage_bytes
