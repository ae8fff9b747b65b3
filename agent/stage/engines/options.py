"""What the runtime is told when it compiles a stage: numerics, cache, threads and cores."""

from __future__ import annotations

from typing import Any

import openvino as ov
import psutil

from agent.stage.errors import StageLoadError
from agent.stage.types import StageSpec
from shard_export.library.counts import counted

EXACT: dict[str, Any] = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
}
"""Activations, attention and cache in f32: a row's result no longer depends on what shares its step."""


def compile_options(spec: StageSpec, core: ov.Core) -> dict[str, Any]:
    """Choose the runtime's properties for a stage. Raises StageLoadError for a cache or device its numerics exclude."""
    return {"PERFORMANCE_HINT": "LATENCY", **_numerics(spec, core), **_device_threads(spec)}


def _numerics(spec: StageSpec, core: ov.Core) -> dict[str, Any]:
    if spec.device.startswith("NPU"):
        if spec.numerics == "exact":
            raise StageLoadError(
                "mismatch", "An NPU computes in 16 bits and cannot be exact; deploy with fast numerics."
            )
        return {}
    if spec.numerics == "exact":
        if spec.cache not in {"auto", "f32"}:
            raise StageLoadError(
                "mismatch", f"Exact numerics need an f32 cache, not {spec.cache}; leave the cache unsaid or load fast."
            )
        return dict(EXACT)
    if spec.cache == "auto":
        return {}
    if spec.cache == "half":
        computes_bf16 = "BF16" in core.get_property(spec.device, "OPTIMIZATION_CAPABILITIES")
        return {"KV_CACHE_PRECISION": "bf16" if computes_bf16 else "f16"}
    # Paged attention that computes in bf16 refuses an f32 cache.
    precision = {"INFERENCE_PRECISION_HINT": "f32"} if spec.cache == "f32" else {}
    return {"KV_CACHE_PRECISION": spec.cache, **precision}


def _device_threads(spec: StageSpec) -> dict[str, Any]:
    return thread_options(spec) if spec.device.startswith("CPU") else {}


def thread_options(spec: StageSpec) -> dict[str, Any]:
    """Choose how many threads compute on the CPU."""
    options: dict[str, Any] = {}
    if spec.threads or spec.cores:
        options["INFERENCE_NUM_THREADS"] = spec.threads or len(spec.cores)
    if spec.cores:
        # The calling thread was pinned before the runtime started; its own pinning would undo that.
        options["ENABLE_CPU_PINNING"] = False
    return options


def cached_tokens(spec: StageSpec, token_bytes: float) -> int:
    """Size a cache: how many tokens the spec's memory holds, or all its streams at full length. Raises StageLoadError.

    `token_bytes` is what one token takes in all layers of the range.
    """
    if not spec.kv_bytes:
        return spec.streams * spec.context_tokens
    tokens = int(spec.kv_bytes / max(token_bytes, 1))
    if tokens < spec.context_tokens:
        raise StageLoadError(
            "memory",
            f"A cache of {spec.kv_bytes >> 20} MiB holds {counted(tokens, 'token')}, fewer than the "
            f"{spec.context_tokens} of one "
            "stream; give it more memory or load a shorter context.",
        )
    return tokens


def check_free_memory(cache_bytes: int) -> None:
    """Raise StageLoadError when a cache of that size does not fit the memory that is free now."""
    free = psutil.virtual_memory().available
    if cache_bytes > free:
        raise StageLoadError(
            "memory",
            f"The cache needs {cache_bytes >> 20} MiB and {free >> 20} MiB are free; plan fewer streams or a shorter "
            "context.",
        )
