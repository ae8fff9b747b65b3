"""The model families that were checked against transformers, and the error for any other."""

from __future__ import annotations

from shard_export.library.errors import UnknownFamily

# transformers' `model_type` of each family. Nothing is coded per family: this is the list of those that were tested.
SUPPORTED = (
    "gemma",
    "granite",
    "llama",
    "mistral",
    "olmo2",
    "phi3",
    "qwen2",
    "qwen3",
    "smollm3",
    "starcoder2",
)


def unknown_family(kind: str, reason: str = "") -> UnknownFamily:
    """Make the error for a model that cannot be exported."""
    why = f" ({reason})" if reason else ""
    return UnknownFamily(f"Models of the family {kind} cannot be exported yet{why}; supported: {', '.join(SUPPORTED)}.")
