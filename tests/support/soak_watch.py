"""What the processes of a soak hold, before and after, and whether their memory grows on the way."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psutil

from installer.loopback import LoopbackFleet
from tests.support.faults import stage_processes
from tests.support.patience import PATIENCE_S
from tests.support.telling import Held, ask_process, own_path

WARM_UP = 0.25
"""Of the whole time: what is read, imported and cached once is there by then."""
MAY_GROW = 1.05
"""By its limits a heap is not flat: what is between the thirds of the time after the warm-up."""
SETTLED_S = 30.0
"""After this much quiet nothing of what was asked may be held: kept beginnings live for less."""
FILES_MORE = 2
"""Open files a process may have more than before: a connection to the registry that is kept open."""


class Samples:
    """Memory of some processes over time, in bytes, and the processor time they took together."""

    def __init__(self, processes: dict[str, psutil.Process]) -> None:
        self._processes = processes
        self.resident: dict[str, list[int]] = {name: [] for name in processes}
        self._began_s = time.monotonic()
        self._cpu_began_s = self._cpu_s()

    def take(self) -> None:
        """Look once at all."""
        for name, process in self._processes.items():
            self.resident[name].append(process.memory_info().rss)

    @property
    def core_share(self) -> float:
        """How much of one core all of them took."""
        return (self._cpu_s() - self._cpu_began_s) / (time.monotonic() - self._began_s)

    def _cpu_s(self) -> float:
        times = [process.cpu_times() for process in self._processes.values()]
        return sum(one.user + one.system for one in times)

    def grown(self) -> dict[str, str]:
        """Say which processes' memory is not flat."""
        return {name: said for name, taken in self.resident.items() if (said := growth(taken))}

    def summary(self) -> str:
        """Tell how much memory each took after the warm-up and in the end, in MB."""
        warm = int(WARM_UP * len(next(iter(self.resident.values()))))
        ends = {name: (taken[warm] / 1e6, taken[-1] / 1e6) for name, taken in self.resident.items() if taken}
        return ", ".join(f"{name} {first:.1f} to {last:.1f} MB" for name, (first, last) in ends.items())


def growth(resident: Sequence[int]) -> str:
    """Compare the last third of the samples after the warm-up with the first; empty: the memory is flat."""
    warm = resident[int(WARM_UP * len(resident)) :]
    third = len(warm) // 3
    if not third:
        return ""
    first, last = statistics.median(warm[:third]), statistics.median(warm[-third:])
    return "" if last <= MAY_GROW * first else f"{first / 1e6:.1f} MB grew to {last / 1e6:.1f} MB"


class Watch:
    """The console, the agents and the stages of a fleet whose processes tell what they hold. Blocking calls."""

    def __init__(self, fleet: LoopbackFleet, agents: Sequence[str]) -> None:
        self._fleet = fleet
        self._told = {"console": fleet.process("console").pid}
        for name in agents:
            agent = fleet.process(name).pid
            (stage,) = stage_processes(agent)
            self._told |= {name: agent, f"stage of {name}": stage.pid}
        self._processes = {name: psutil.Process(process_id) for name, process_id in self._told.items()}

    def held(self) -> dict[str, Held]:
        """Ask all of them."""
        return {
            name: ask_process(process_id, own_path(process_id)) | self._from_outside(name)
            for name, process_id in self._told.items()
        }

    def _from_outside(self, name: str) -> Held:
        process = self._processes[name]
        return {"files": process.num_fds(), "threads": process.num_threads()}

    def samples(self) -> Samples:
        """Begin to look at their memory."""
        return Samples(self._processes)

    @contextmanager
    def sampled(self, every_s: float) -> Iterator[Samples]:
        """Look at their memory, again and again, for as long as the block runs."""
        samples, over = self.samples(), threading.Event()

        def look() -> None:
            while not over.wait(every_s):
                samples.take()

        thread = threading.Thread(target=look, name="samples")
        thread.start()
        try:
            yield samples
        finally:
            over.set()
            thread.join()

    def settle(self, wanted: Callable[[dict[str, Held]], str]) -> dict[str, Held]:
        """Wait until what is held is as wanted; `wanted` says what is not. Returns what is held."""
        deadline_s = time.monotonic() + SETTLED_S + PATIENCE_S
        while why := wanted(held := self.held()):
            view = self._fleet.admin.status().pipelines[0]
            assert time.monotonic() < deadline_s, (why, view, held)
            time.sleep(0.5)
        return held


def nothing_cached(held: dict[str, Held]) -> str:
    """Say which stage holds something of a stream; empty: none does."""
    caches = ("streams", "holders", "tokens", "sampled", "constraints", "refused")
    left = {name: {kind: said[kind] for kind in caches if said.get(kind)} for name, said in held.items()}
    return str({name: kinds for name, kinds in left.items() if kinds} or "")


def more_than(before: dict[str, Held]) -> Callable[[dict[str, Held]], str]:
    """Return what says what is held beyond `before`; empty: nothing."""

    def more(held: dict[str, Held]) -> str:
        found = [
            f"{name}: {count} {kind} instead of {before[name].get(kind, 0)}"
            for name, said in held.items()
            for kind, count in said.items()
            if count > before[name].get(kind, 0) + (FILES_MORE if kind in {"files", "threads"} else 0)
        ]
        return nothing_cached(held) or "; ".join(found)

    return more
