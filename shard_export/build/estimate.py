"""Whether this PC has what a build needs, and keeping the memory of this process small."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import sys
from typing import TYPE_CHECKING

import psutil

from shard_export.library.errors import MemoryShort
from shard_export.library.estimates import Estimate
from shard_export.library.store import disk_full, existing_parent

if TYPE_CHECKING:
    from pathlib import Path

_MMAP_THRESHOLD = -3  # glibc's M_MMAP_THRESHOLD
_LARGE_BLOCK_BYTES = 1 << 20


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
