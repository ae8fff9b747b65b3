"""What every checkpoint format offers: a config, the names of its tensors, and one tensor at a time.

`open_checkpoint` chooses the format: a Hugging Face folder of safetensors, or one `.gguf` file.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

from shard_export.library.errors import CheckpointError, CheckpointTorn

if TYPE_CHECKING:
    from pathlib import Path

    import torch


class Checkpoint(abc.ABC):
    """A model at rest. Names are those of the transformers model's `state_dict`. Use from one thread."""

    path: Path
    model_id: str
    revision: str

    @abc.abstractmethod
    def config(self) -> Any:
        """Return the transformers config; raises CheckpointError or CheckpointTorn."""

    @abc.abstractmethod
    def tokenizer(self) -> Any:
        """Return the transformers tokenizer; raises CheckpointTorn when its files are missing or unreadable."""

    @abc.abstractmethod
    def bind(self, model: torch.nn.Module) -> None:
        """Learn the model the tensors are for (a model on the `meta` device will do). Call before `names`."""

    @abc.abstractmethod
    def names(self) -> frozenset[str]:
        """List every tensor of the checkpoint."""

    @abc.abstractmethod
    def tensor(self, name: str) -> torch.Tensor:
        """Read one tensor as float32 into memory; raises KeyError or CheckpointTorn."""

    def rope_factors(self) -> torch.Tensor | None:
        """Return divisors of the rotary frequencies that the format keeps outside the config, if any."""
        return None

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of open files and memory maps."""


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a Hugging Face folder or a `.gguf` file; raises CheckpointError or CheckpointTorn."""
    if path.is_dir():
        from shard_export.checkpoint.safetensors import SafetensorsCheckpoint

        return SafetensorsCheckpoint(path)
    if not path.exists():
        raise CheckpointTorn(f"{path} does not exist; name a Hugging Face model folder or a .gguf file.")
    if path.suffix.lower() == ".gguf":
        from shard_export.checkpoint.gguf import GgufCheckpoint

        return GgufCheckpoint(path)
    raise CheckpointError(f"{path} is neither a Hugging Face model folder nor a .gguf file; name one of those.")
