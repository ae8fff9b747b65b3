"""What the other programs ask of the PC: processor time, memory, and which of the exclusive programs run.

On every system through psutil; our own process and all its descendants never count, or the agent would wait for itself.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from agent.volunteer.facts import Memory
from agent.volunteer.probes.base import Absent, Seen, Unreadable
from agent.volunteer.probes.reading import Simple

PRESSURE = Path("/proc/pressure/memory")
LEAST_SPAN_S = 0.5
"""Shorter spans of processor time are dominated by the kernel's ticks."""


class OtherCpu(Simple):
    """Processor time of everything but our own process tree, as a share of all cores since the last read."""

    def __init__(
        self,
        system: Callable[[], tuple[float, float]] | None = None,
        own_s: Callable[[], float] | None = None,
    ) -> None:
        """`system` returns (busy, all) seconds of all cores since the start; `own_s` those of our tree."""
        self._system = system or system_cpu_s
        self._own_s = own_s or own_cpu_s
        self._before: tuple[float, float, float] | None = None
        self._percent: float | None = None

    def read(self) -> Seen:
        busy_s, all_s = self._system()
        own_s = self._own_s()
        if self._before is None:
            self._before = (busy_s, all_s, own_s)
            raise Unreadable("two reads are needed")
        span_s = all_s - self._before[1]
        if span_s < LEAST_SPAN_S and self._percent is not None:
            return {"other_cpu_percent": self._percent}
        if span_s <= 0:
            raise Unreadable("the processor's clock stands still")
        # A child that ended takes its time along where its parent does not inherit it: never less than nothing.
        own = max(0.0, own_s - self._before[2])
        others = max(0.0, busy_s - self._before[0] - own)
        self._before = (busy_s, all_s, own_s)
        self._percent = min(100.0, 100 * others / span_s)
        return {"other_cpu_percent": self._percent}


def system_cpu_s() -> tuple[float, float]:
    """Return the seconds that all cores together were busy, and that they counted at all."""
    times = psutil.cpu_times()._asdict()
    idle = times["idle"] + times.get("iowait", 0.0)
    # A guest's time is part of the user's on Linux; interrupts are part of the system's on Windows.
    busy = sum(times.get(name, 0.0) for name in ("user", "nice", "system", "irq", "softirq"))
    return busy, busy + idle + times.get("steal", 0.0)


def own_cpu_s() -> float:
    """Return the seconds our process tree has used, with those of children that ended where the system adds them up."""
    total = 0.0
    for process in own_tree():
        try:
            used = process.cpu_times()
        except psutil.Error:
            continue
        total += used.user + used.system + getattr(used, "children_user", 0.0) + getattr(used, "children_system", 0.0)
    return total


def own_tree() -> list[psutil.Process]:
    """Return our process and its descendants."""
    own = psutil.Process()
    pids = _descendants_by_proc(own.pid)
    if pids is None:
        return [own, *own.children(recursive=True)]
    found = [own]
    for pid in pids:
        try:
            found.append(psutil.Process(pid))
        except psutil.Error:
            continue
    return found


def own_pids() -> frozenset[int]:
    """Return the ids of our process and its descendants."""
    return frozenset(process.pid for process in own_tree())


def _descendants_by_proc(pid: int) -> list[int] | None:
    """Follow the kernel's own lists of children, which costs as much as we have; None where it keeps none.

    psutil asks every process of the PC for its parent instead: 400 of them every 2 s is half a percent of a core.
    """
    if not Path(f"/proc/{pid}/task/{pid}/children").exists():
        return None
    found, waiting = list[int](), [pid]
    while waiting:
        folder = f"/proc/{waiting.pop()}/task"
        with contextlib.suppress(OSError):  # the process ended meanwhile
            for thread in os.listdir(folder):  # noqa: PTH208 - pathlib takes four times as long, every 2 s
                children = _children_of_thread(f"{folder}/{thread}/children")
                found += children
                waiting += children
    return found


def _children_of_thread(path: str) -> list[int]:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
            return [int(child) for child in file.read().split()]
    except OSError:
        return []  # the thread ended meanwhile


class ExclusiveApps(Simple):
    """Which of the named programs run. `look_for` from any thread."""

    def __init__(self, running: Callable[[], Iterable[str]] | None = None) -> None:
        self._running = running or running_names
        self._lock = threading.Lock()
        self._wanted: frozenset[str] = frozenset()

    def look_for(self, names: Iterable[str]) -> None:
        """Name the programs: by file name, case does not matter, `.exe` may be left out."""
        with self._lock:
            self._wanted = frozenset(filter(None, map(program_key, names)))

    def read(self) -> Seen:
        with self._lock:
            wanted = self._wanted
        if not wanted:
            return {"exclusive": ()}
        return {"exclusive": tuple(sorted(wanted & set(map(program_key, self._running()))))}


def program_key(name: str) -> str:
    """Return what two spellings of a program's file name have in common."""
    return name.strip().casefold().removesuffix(".exe")


def running_names() -> list[str]:
    """List the programs that run, by file name, without their users' other data."""
    return [process.info["name"] or "" for process in psutil.process_iter(["name"])]


class MainMemory(Simple):
    """Main memory; on Linux also how much of the time programs wait for it."""

    def __init__(self, pressure: Path = PRESSURE, low: Callable[[], bool] = lambda: False) -> None:
        """`low` is the system's own alarm, where it has one."""
        self._pressure = pressure
        self._low = low

    def read(self) -> Seen:
        memory = psutil.virtual_memory()
        return {"memory": Memory(memory.total, memory.available, self._low(), read_pressure(self._pressure))}


def read_pressure(path: Path = PRESSURE) -> float | None:
    """Return `some avg10` in percent; None where the kernel does not tell (PSI off, another system)."""
    try:
        first = path.read_text("ascii").partition("\n")[0]
        fields = dict(field.split("=") for field in first.split()[1:])
        value = float(fields["avg10"])
    except (OSError, ValueError, KeyError):
        return None
    return value if 0 <= value <= 100 else None


def read_disk(folder: Path) -> Seen:
    """Return what is free where the model files lie. Raises Absent before there is such a folder."""
    try:
        return {"disk_free_bytes": shutil.disk_usage(folder).free}
    except FileNotFoundError:
        raise Absent(f"there is no {folder}") from None
