"""What a build will need, from the sizes of its units: memory, disk, time. Without torch: the console says it, too."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

# The packages themselves and the blocks that are worked on, then per weight of the largest unit the float32 source and
# what is collected to round it by. Measured (x86, 2 cores): 1.6 GB for a layer of 218 million weights in plain INT4.
BASE_MEMORY_BYTES = 1_200 << 20
MEMORY_BYTES_PER_WEIGHT = 5.0
WEIGHTS_PER_CORE_SECOND = 8e6
START_SECONDS = 15.0
OVERHEAD_BYTES = 16 << 20
"""Graphs, tokenizer, manifest."""
BITS = {"int4_sym": 4.5, "int4_asym": 4.7, "int4_gptq": 5.1, "int8_asym": 8.1, "Q4_0": 4.5, "Q4_1": 5.1, "Q4_K": 5.1}
"""Bits a weight of each kind, with scales and zero points at 32 columns a group; a bit over."""
BITS_IN_EIGHT = 9.0
"""Of what is kept in eight bits as the source has it."""


class Estimate(NamedTuple):
    """What one build needs: peak resident memory, room on the disk, time."""

    memory_bytes: int
    disk_bytes: int
    seconds: float


def estimate_build(*, weights: int, largest_unit: int, library_bytes: float, cores: int) -> Estimate:
    """Estimate from the number of weights in all units and in the largest, and the bytes all units will take."""
    return Estimate(
        memory_bytes=int(BASE_MEMORY_BYTES + MEMORY_BYTES_PER_WEIGHT * largest_unit),
        disk_bytes=int(library_bytes) + OVERHEAD_BYTES,
        seconds=START_SECONDS + weights / (WEIGHTS_PER_CORE_SECOND * max(1, cores)),
    )


def bytes_of(*, matrices: int, matrix_bits: float, others: int, ends: int, int8_ratio: float) -> float:
    """Return the size of all units' weights: `matrix_bits` for all `matrices`, of which a share goes to eight bits."""
    bits = matrix_bits + int8_ratio * max(0.0, BITS_IN_EIGHT * matrices - matrix_bits)
    # What is no matrix stays in 32 bits.
    return bits / 8 + others * 4 + ends * BITS_IN_EIGHT / 8


def usable_cores() -> int:
    """Count the cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
