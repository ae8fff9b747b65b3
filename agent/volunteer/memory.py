"""How much memory stages may take, how much one will need, and whether it may begin. Pure.

    budget = min(cap, available - floor, commit left - 2 GiB, 0.9 * total of the device - what is held there,
                 what Windows grants a program on the device)

An integrated GPU and an NPU have no memory of their own: theirs is main memory by another name, so it is counted once
and their total is only one more ceiling. On Windows the GPU plugin warns instead of failing when that is too much, and
the PC swaps; so the need is compared with the budget before anything is loaded.

    need = (the process itself + weights + cache) * 1.15, or * what was measured / what was expected last time * 1.05

and while a GPU or NPU compiles, main memory holds the weights a second time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import msgspec

from agent.volunteer.facts import Memory

DEVICE_SHARE = 0.9
COMMIT_RESERVE_BYTES = 2 << 30
PROCESS_BYTES = 128_000_000
"""The child process itself: interpreter, OpenVINO, activations of one step. The console plans with the same."""
UNMEASURED_FACTOR = 1.15
MEASURED_MARGIN = 1.05
SMALLEST_RATIO, LARGEST_RATIO = 0.8, 4.0
"""Mapped weights are not measured, and yet have to stay in memory for speed: it is never much less than the books."""
MOST_BYTES = 1 << 48
MAX_CORRECTIONS = 128

MemoryKind = Literal["main", "unified", "own"]


class DeviceMemory(msgspec.Struct, frozen=True):
    """What a device says of its memory. 0 and empty: it does not say.

    `main` is a CPU, `unified` main memory that a GPU or NPU uses, `own` a graphics card's. `address` is how the
    operating system calls the device: PCI address on Linux, locally unique id on Windows.
    """

    kind: MemoryKind = "main"
    total_bytes: int = 0
    largest_buffer_bytes: int = 0
    address: str = ""
    driver: str = ""


class Room(msgspec.Struct, frozen=True):
    """What stages may take now, and what limits it: a phrase for people."""

    size_bytes: int
    limited_by: str


class Need(msgspec.Struct, frozen=True):
    """What a stage will take: for good, in main memory while it loads, and its largest single buffer."""

    steady_bytes: int
    load_bytes: int
    largest_buffer_bytes: int = 0


def room(
    device: DeviceMemory,
    memory: Memory,
    *,
    floor_bytes: int,
    cap_bytes: int,
    held_bytes: int = 0,
    commit_free_bytes: int | None = None,
    granted_bytes: int | None = None,
) -> Room:
    """Return the budget on a device for one more stage.

    `floor_bytes` of main memory stay free for the owner, `cap_bytes` is what the settings leave to it, `held_bytes` are
    held on the device already, `commit_free_bytes` can still be promised to programs and `granted_bytes` is what one
    may take on the device (Windows).
    """
    limits = [(cap_bytes, "the settings"), *_main_limits(memory, floor_bytes, commit_free_bytes)]
    if device.kind == "own":
        limits = limits[:1]
    if device.kind != "main" and device.total_bytes:
        limits.append((int(device.total_bytes * DEVICE_SHARE) - held_bytes, "the device's memory"))
    if device.kind != "main" and granted_bytes is not None:
        limits.append((granted_bytes, "what Windows grants on the device"))
    size, why = min(limits)
    return Room(max(0, size), why)


def load_room(memory: Memory, *, floor_bytes: int, commit_free_bytes: int | None = None) -> Room:
    """Return what loading may take of main memory for a moment: half of the floor may be used then."""
    size, why = min(_main_limits(memory, floor_bytes // 2, commit_free_bytes))
    return Room(max(0, size), why)


def need(
    device: DeviceMemory, *, weights_bytes: int, cache_bytes: int, largest_bytes: int, ratio: float | None
) -> Need:
    """Estimate a stage. `ratio` is measured / expected of the last time, None if there was none."""
    held = expected_bytes(weights_bytes, cache_bytes)
    steady = math.ceil(held * factor(ratio))
    if device.kind == "main":
        loading = steady
    elif device.kind == "unified":
        loading = steady + weights_bytes
    else:
        loading = PROCESS_BYTES + weights_bytes
    return Need(steady, loading, largest_bytes)


def expected_bytes(weights_bytes: int, cache_bytes: int) -> int:
    """Return what a stage holds by the books."""
    return PROCESS_BYTES + weights_bytes + cache_bytes


def factor(ratio: float | None) -> float:
    """Return what the books are multiplied with."""
    return UNMEASURED_FACTOR if ratio is None else ratio * MEASURED_MARGIN


def plannable_bytes(budget_bytes: int, ratios: Iterable[float] = ()) -> int:
    """Return what the console may plan with: that much by the books fits the budget, whichever model it is.

    `ratios` are those measured on the device: the worst of them counts.
    """
    return int(budget_bytes / max([UNMEASURED_FACTOR, *map(factor, ratios)]))


def refusal(need: Need, device: DeviceMemory, steady: Room, loading: Room) -> str:
    """Say why a stage must not begin, as the rest of a sentence; empty: it may."""
    sizes = (need.steady_bytes, need.load_bytes)
    if not all(0 < size <= MOST_BYTES for size in sizes) or need.largest_buffer_bytes < 0:
        return "have sizes that cannot be; export the model again."
    if need.steady_bytes > steady.size_bytes:
        return (
            f"need about {_mib(need.steady_bytes)}, but only {_mib(steady.size_bytes)} may be used here because of "
            f"{steady.limited_by}; plan fewer layers or allow more memory."
        )
    if need.load_bytes > loading.size_bytes:
        return (
            f"need about {_mib(need.load_bytes)} while they load, but only {_mib(loading.size_bytes)} are left because "
            f"of {loading.limited_by}; plan fewer layers or close programs."
        )
    largest = device.largest_buffer_bytes
    if largest and need.largest_buffer_bytes > largest:
        return (
            f"have a buffer of {_mib(need.largest_buffer_bytes)}, and the device takes {_mib(largest)} at most in one; "
            "use another device or a shorter context."
        )
    return ""


class Correction(msgspec.Struct, frozen=True):
    """What one kind of stage was measured to take, over what it was expected to."""

    library: str
    device: str
    driver: str
    ratio: float


class Corrections:
    """The last measurement of each library on each device with each driver, the latest last. Not thread-safe."""

    def __init__(self, known: Iterable[Correction] = ()) -> None:
        self._known = {(one.library, one.device, one.driver): one for one in known if _is_ratio(one.ratio)}

    def all(self) -> list[Correction]:
        """List what is known."""
        return list(self._known.values())

    def ratio(self, library: str, device: str, driver: str) -> float | None:
        """Return measured / expected, None if this was never loaded here."""
        found = self._known.get((library, device, driver))
        return None if found is None else found.ratio

    def ratios(self, device: str, driver: str) -> list[float]:
        """List the ratios of all libraries on a device."""
        return [one.ratio for one in self._known.values() if (one.device, one.driver) == (device, driver)]

    def learn(self, library: str, device: str, driver: str, *, expected: int, measured: int) -> bool:
        """Take a measurement; False if it is none. A new driver forgets the old one's."""
        if expected <= 0 or measured <= 0:
            return False
        ratio = min(max(measured / expected, SMALLEST_RATIO), LARGEST_RATIO)
        stale = [key for key in self._known if key[1] == device and key[2] != driver]
        for key in [(library, device, driver), *stale]:
            self._known.pop(key, None)
        self._known[library, device, driver] = Correction(library, device, driver, round(ratio, 4))
        while len(self._known) > MAX_CORRECTIONS:
            del self._known[next(iter(self._known))]
        return True


def _main_limits(memory: Memory, floor_bytes: int, commit_free_bytes: int | None) -> list[tuple[int, str]]:
    limits = [(memory.available_bytes - floor_bytes, "the memory that is kept free for the owner")]
    if commit_free_bytes is not None:
        limits.append((commit_free_bytes - COMMIT_RESERVE_BYTES, "what Windows can still promise to programs"))
    return limits


def _is_ratio(ratio: float) -> bool:
    return SMALLEST_RATIO <= ratio <= LARGEST_RATIO


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"
