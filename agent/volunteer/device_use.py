"""Who holds how much memory now: other programs on a device, one of our stages, and what Windows can still promise.

Blocking for some milliseconds: call it from a worker thread. What the system does not tell counts as nothing, because
main memory, which every system tells, is a limit beside it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from pathlib import Path

import psutil

from agent.volunteer.facts import Memory
from agent.volunteer.memory import DeviceMemory
from agent.volunteer.probes.base import ProbeError
from agent.volunteer.probes.load import own_pids

log = logging.getLogger(__name__)


def main_memory() -> Memory:
    """Return main memory now."""
    memory = psutil.virtual_memory()
    return Memory(memory.total, memory.available)


def held_on_device(device: DeviceMemory) -> int:
    """Return what all programs together hold on a device."""
    return sum(size for _, size in _held(device.address))


def held_by_process(pid: int, device: DeviceMemory) -> int:
    """Return what the system counts on a device as this process's, whether it lives or not."""
    return sum(size for pids, size in _held(device.address) if pid in pids)


def held_by_stages() -> int:
    """Return the main memory that our child processes hold."""
    return sum(private_bytes(pid) for pid in own_pids() if pid != os.getpid())


def stage_bytes_now(pid: int, device: DeviceMemory) -> int:
    """Return what a stage's process holds: memory of its own, and on its device; 0 if it is gone.

    Files that are only mapped are not its own: the system takes them back when it needs room.
    """
    own = private_bytes(pid)
    return own + held_by_process(pid, device) if own else 0


def private_bytes(pid: int) -> int:
    """Return the memory that only ending a process gives back; 0 if it is gone."""
    try:
        return _private_bytes(pid)
    except (OSError, ValueError, KeyError, psutil.Error):
        return 0


if sys.platform == "linux":

    def _private_bytes(pid: int) -> int:
        lines = Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines()
        fields = dict(line.partition(":")[::2] for line in lines)
        return sum(int(fields[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem", "VmSwap"))

else:

    def _private_bytes(pid: int) -> int:
        info = psutil.Process(pid).memory_info()
        return int(getattr(info, "private", info.rss))


Held = list[tuple[frozenset[int], int]]
"""Bytes on a device, each with the processes that share them."""


def _held(address: str) -> Held:
    """Return what is held on a device; empty where the system does not tell."""
    if not address:
        return []
    try:
        return _held_on_device(address)
    except ProbeError as error:
        log.debug("Memory on %s is not known: %s", address, error)
        return []


if sys.platform == "win32":
    from agent.volunteer.probes.windows.api import RealWindows
    from agent.volunteer.probes.windows.counters import DEDICATED, SHARED, PdhCounters, memory_by_process
    from agent.volunteer.probes.windows.dxgi import granted_by_windows

    def _held_on_device(address: str) -> Held:
        found = Held()
        for path in (SHARED, DEDICATED):
            with contextlib.closing(PdhCounters(path)) as counters:
                found += [(frozenset({pid}), size) for pid, size in memory_by_process(counters.read(), address).items()]
        return found

    def commit_free_bytes() -> int | None:
        """Return what Windows can still promise to programs; None where it does not say."""
        with contextlib.suppress(ProbeError):
            return RealWindows().commit_free_bytes()
        return None

    def granted_on_device(device: DeviceMemory) -> int | None:
        """Return what Windows grants a program on a device; None where it does not say."""
        if not device.address:
            return None
        with contextlib.suppress(ProbeError):
            return granted_by_windows(device.address)
        return None

else:
    from agent.volunteer.probes.linux.gpu import GpuClients

    def _held_on_device(address: str) -> Held:
        clients = GpuClients(time.monotonic).read().values()
        return [(frozenset(one.pids), sum(one.resident_bytes.values())) for one in clients if one.device == address]

    def commit_free_bytes() -> int | None:
        """Return None: promises are no limit here, the memory that is available is."""
        return None

    def granted_on_device(_device: DeviceMemory) -> int | None:
        """Return None: nobody is granted a part here, the device's total is the limit."""
        return None
