"""What a build will need, said before anything is started: memory, disk, time. Pure.

The figures are those of `shard_export.build`, which cannot be imported without torch; a test keeps them the same.
"""

from __future__ import annotations

from typing import NamedTuple

from console.api.admin.build_types import BuildRequest
from console.builds.checkpoints import CheckpointFacts

BASE_MEMORY_BYTES = 1_200 << 20
MEMORY_BYTES_PER_WEIGHT = 5.0
WEIGHTS_PER_CORE_SECOND = 8e6
START_SECONDS = 15.0
OVERHEAD_BYTES = 16 << 20
BITS = {"int4_sym": 4.5, "int4_asym": 4.7, "int4_gptq": 5.1, "int8_asym": 8.1}
BITS_IN_EIGHT = 9.0
MOST_BITS_OF_FOUR = 5.2
"""Blocks with more bits a weight than this are stored in eight."""
EVALUATION_BYTES_PER_WEIGHT = 4.0
"""The source is there in 32 bits, whole, while a library is measured against it."""


class Needs(NamedTuple):
    """What one build needs: peak memory, the library's size, seconds; and the memory to evaluate it."""

    memory_bytes: int
    library_bytes: int
    seconds: float
    evaluate_memory_bytes: int


def needs_of(facts: CheckpointFacts, request: BuildRequest, cores: int) -> Needs:
    """Estimate a build on a PC with so many cores."""
    library_bytes = round(_library_bytes(facts, request)) + OVERHEAD_BYTES
    return Needs(
        memory_bytes=int(BASE_MEMORY_BYTES + MEMORY_BYTES_PER_WEIGHT * facts.largest_unit),
        library_bytes=library_bytes,
        seconds=START_SECONDS + facts.weights / (WEIGHTS_PER_CORE_SECOND * max(1, cores)),
        evaluate_memory_bytes=int(BASE_MEMORY_BYTES + EVALUATION_BYTES_PER_WEIGHT * facts.weights + library_bytes),
    )


def _library_bytes(facts: CheckpointFacts, request: BuildRequest) -> float:
    bits = _matrix_bits(facts, request)
    bits += request.int8_ratio * max(0.0, BITS_IN_EIGHT * facts.matrices - bits)
    # What is no matrix stays in 32 bits.
    return bits / 8 + (sum(facts.layers) - facts.matrices) * 4 + facts.ends * BITS_IN_EIGHT / 8


def _matrix_bits(facts: CheckpointFacts, request: BuildRequest) -> float:
    if request.layers in BITS:
        return BITS[request.layers] * facts.matrices
    kept = sum(
        weights * (BITS["int4_gptq"] if bits <= MOST_BITS_OF_FOUR else BITS_IN_EIGHT)
        for bits, weights in facts.block_bits
    )
    others = facts.matrices - sum(weights for _, weights in facts.block_bits)
    return kept + BITS["int4_gptq"] * others
