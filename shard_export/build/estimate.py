"""What a build will need, said before it starts: memory, disk, time; and the refusal when the PC has too little."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import sys
from typing import TYPE_CHECKING, NamedTuple

import psutil

from shard_export.library.errors import MemoryShort
from shard_export.library.store import disk_full, existing_parent

if TYPE_CHECKING:
    from pathlib import Path

# The packages themselves and the blocks that are worked on, then per weight of the largest unit the float32 source and
# what is collected to round it by. Measured (x86, 2 cores): 1.6 GB for a layer of 218 million weights in plain INT4.
BASE_MEMORY_BYTES = 1_200 << 20
MEMORY_BYTES_PER_WEIGHT = 5.0
WEIGHTS_PER_CORE_SECOND = 8e6
START_SECONDS = 15.0
_OVERHEAD_BYTES = 16 << 20  # graphs, tokenizer, manifest
_MMAP_THRESHOLD = -3  # glibc's M_MMAP_THRESHOLD
_LARGE_BLOCK_BYTES = 1 << 20


class Estimate(NamedTuple):
    """What one build needs: peak resident memory, room on the disk, time."""

    memory_bytes: int
    disk_bytes: int
    seconds: float


def estimate_build(*, weights: int, largest_unit: int, library_bytes: float) -> Estimate:
    """Estimate from the number of weights in all units and in the largest, and the bytes all units will take."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return Estimate(
        memory_bytes=int(BASE_MEMORY_BYTES + MEMORY_BYTES_PER_WEIGHT * largest_unit),
        disk_bytes=int(library_bytes) + _OVERHEAD_BYTES,
        seconds=START_SECONDS + weights / (WEIGHTS_PER_CORE_SECOND * cores),
    )


def check_resources(estimate: Estimate, out: Path, *, kept_bytes: int = 0) -> None:
    """Raise MemoryShort or DiskFull when this PC has too little; `kept_bytes` of the library are there already."""
    free_bytes = psutil.virtual_memory().available + psutil.Process().memory_info().rss
    if free_bytes < estimate.memory_bytes:
        raise MemoryShort(
            f"Building {out} needs about {estimate.memory_bytes / 1e9:.1f} GB of memory and {free_bytes / 1e9:.1f} GB "
            "are free; close other programs or build on a PC with more memory."
        )
    if shutil.disk_usage(existing_parent(out.parent)).free < estimate.disk_bytes - kept_bytes:
        raise disk_full(out, estimate.disk_bytes - kept_bytes)


def keep_heap_small() -> None:
    """Let large blocks be mapped one by one, so that a freed layer leaves the process at once (glibc only).

    Without it glibc raises its own threshold to 32 MB, and layers of many sizes leave holes that are never returned.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL("libc.so.6").mallopt(_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)


def trim_heap() -> None:
    """Give free memory back to the system (glibc only)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
