"""What a build will need, said before anything is started: memory, disk, time. Pure."""

from __future__ import annotations

from typing import NamedTuple

from console.api.admin.build_types import BuildRequest
from console.builds.checkpoints import CheckpointFacts
from shard_export.library.estimates import BASE_MEMORY_BYTES, BITS, BITS_IN_EIGHT, bytes_of, estimate_build

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
    raw_bytes = bytes_of(
        matrices=facts.matrices,
        matrix_bits=_matrix_bits(facts, request),
        others=sum(facts.layers) - facts.matrices,
        ends=facts.ends,
        int8_ratio=request.int8_ratio,
    )
    found = estimate_build(weights=facts.weights, largest_unit=facts.largest_unit, library_bytes=raw_bytes, cores=cores)
    evaluate_bytes = BASE_MEMORY_BYTES + EVALUATION_BYTES_PER_WEIGHT * facts.weights + found.disk_bytes
    return Needs(found.memory_bytes, found.disk_bytes, found.seconds, int(evaluate_bytes))


def _matrix_bits(facts: CheckpointFacts, request: BuildRequest) -> float:
    if request.layers in BITS:
        return BITS[request.layers] * facts.matrices
    kept = sum(
        weights * (BITS["int4_gptq"] if bits <= MOST_BITS_OF_FOUR else BITS_IN_EIGHT)
        for bits, weights in facts.block_bits
    )
    others = facts.matrices - sum(weights for _, weights in facts.block_bits)
    return kept + BITS["int4_gptq"] * others
