"""The one place that says how much memory stages may take here, and remembers what they took.

Budgets come from `agent.volunteer.memory`; this collects the figures and keeps the corrections in `memory.json`.
Blocking for some milliseconds; one thread at a time, but for `budget` and `offer`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from agent.kept import read_kept, write_kept
from agent.volunteer import device_use
from agent.volunteer.memory import (
    Correction,
    Corrections,
    DeviceMemory,
    Room,
    expected_bytes,
    load_room,
    need,
    plannable_bytes,
    refusal,
    room,
)
from agent.volunteer.policy import GIB, Policy, memory_cap_bytes, memory_floor_bytes
from agent.volunteer.probes.load import own_pids

log = logging.getLogger(__name__)

UNATTENDED_FLOOR_BYTES = GIB
"""What stays free on a machine nobody sits at: the system's own share."""
_LOST = "stages are estimated anew"


class Load(msgspec.Struct, frozen=True):
    """A stage by the books: which model on which device, its weights, its full cache, its largest single buffer."""

    library: str
    device: str
    weights_bytes: int
    cache_bytes: int
    largest_bytes: int = 0


class MemoryBook:
    """Budgets and corrections of one PC."""

    def __init__(self, folder: Path, policy: Callable[[], Policy], *, limit_bytes: int = 0) -> None:
        """`limit_bytes` is the owner's own limit in `agent.toml`, 0 for none. A damaged file is begun anew."""
        self._path = folder / "memory.json"
        self._policy = policy
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._devices: dict[str, DeviceMemory] = {}
        self._corrections = Corrections(read_kept(self._path, list[Correction], lost=_LOST) or [])
        self._when_loaded: dict[int, int] = {}
        """What a stage's process held on its device right after its load, by process."""

    def know(self, devices: Mapping[str, DeviceMemory]) -> None:
        """Take what the devices say of themselves, by name."""
        with self._lock:
            self._devices = dict(devices)

    def budget(self, device: str = "CPU") -> Room:
        """Return what stages may take on a device now, beside those that are loaded."""
        return self._room(self.device(device))

    def offer_bytes(self, device: str = "CPU") -> int:
        """Return what the console may plan with on a device."""
        said = self.device(device)
        with self._lock:
            ratios = self._corrections.ratios(device, said.driver)
        return plannable_bytes(self._room(said).size_bytes, ratios)

    def refusal(self, load: Load) -> str:
        """Say why a stage must not begin now, as the rest of a sentence; empty: it may."""
        device = self.device(load.device)
        with self._lock:
            ratio = self._corrections.ratio(load.library, load.device, device.driver)
        wanted = need(
            device,
            weights_bytes=load.weights_bytes,
            cache_bytes=load.cache_bytes,
            largest_bytes=load.largest_bytes,
            ratio=ratio,
        )
        memory = device_use.main_memory()
        floor = self._floor_bytes(memory.total_bytes)
        loading = load_room(memory, floor_bytes=floor, commit_free_bytes=device_use.commit_free_bytes())
        return refusal(wanted, device, self._room(device), loading)

    def learn(self, load: Load, pid: int) -> None:
        """Measure a stage that has just been loaded, and remember it for the next time.

        Its cache counts in full: pages are taken as they are first written.
        """
        device = self.device(load.device)
        measured = device_use.stage_bytes_now(pid, device)
        on_device, living = device_use.held_by_process(pid, device), own_pids()
        with self._lock:
            self._when_loaded = {one: size for one, size in self._when_loaded.items() if one in living}
            self._when_loaded[pid] = on_device
            expected = expected_bytes(load.weights_bytes, load.cache_bytes)
            known = measured and self._corrections.learn(
                load.library, load.device, device.driver, expected=expected, measured=measured + load.cache_bytes
            )
            corrections = self._corrections.all() if known else []
        if corrections:
            log.info("The stage takes %d MiB; %d MiB were expected.", measured >> 20, expected >> 20)
            write_kept(self._path, corrections, lost=_LOST)

    def device_bytes_when_loaded(self, pid: int) -> int:
        """Return what a stage held on its device right after its load; 0 where the system does not tell."""
        with self._lock:
            return self._when_loaded.get(pid, 0)

    def device(self, name: str) -> DeviceMemory:
        """Return what a device says of itself; one nobody has told of is suspected of using main memory."""
        with self._lock:
            return self._devices.get(name, DeviceMemory(kind="main" if name == "CPU" else "unified"))

    def _room(self, device: DeviceMemory) -> Room:
        memory = device_use.main_memory()
        cap = memory_cap_bytes(self._policy(), memory.total_bytes)
        cap = min(cap, self._limit_bytes) if self._limit_bytes else cap
        return room(
            device,
            memory,
            floor_bytes=self._floor_bytes(memory.total_bytes),
            cap_bytes=cap - device_use.held_by_stages(),
            held_bytes=device_use.held_on_device(device),
            commit_free_bytes=device_use.commit_free_bytes(),
            granted_bytes=device_use.granted_on_device(device),
        )

    def _floor_bytes(self, total_bytes: int) -> int:
        policy = self._policy()
        return UNATTENDED_FLOOR_BYTES if policy.unattended else memory_floor_bytes(policy, total_bytes)
