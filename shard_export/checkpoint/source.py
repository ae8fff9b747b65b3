"""What every checkpoint format offers: a config, the names of its tensors, and one tensor at a time.

`open_checkpoint` chooses the format: a Hugging Face folder of safetensors, or one `.gguf` file.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, NamedTuple

from shard_export.library.errors import CheckpointError, CheckpointTorn

if TYPE_CHECKING:
    from pathlib import Path

    import torch


class Blocks(NamedTuple):
    """A matrix as a quantized file holds it: the format's name, bytes uint8 [out, n] and how many make a block."""

    format: str
    data: Any
    block_bytes: int


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

    def same(self, one: str, other: str) -> bool:
        """Tell whether two tensors hold the same values."""
        import torch

        return bool(torch.equal(self.tensor(one), self.tensor(other)))

    def rope_factors(self) -> torch.Tensor | None:
        """Return divisors of the rotary frequencies that the format keeps outside the config, if any."""
        return None

    def end_ids(self) -> list[int]:
        """List ids that end an answer and that neither the tokenizer nor the configs name."""
        return []

    def stored_format(self, name: str) -> str:
        """Name the block format of a quantized tensor (`Q4_K`); empty for plain numbers."""
        return ""

    def blocks(self, name: str) -> Blocks | None:
        """Return a quantized matrix as it is stored, its rows in the model's order; None for plain numbers."""
        return None

    def notes(self) -> list[str]:
        """Say what a user should know about how the source is read; most sources give no reason to."""
        return []

    def forget(self) -> None:  # noqa: B027 - not every format keeps something
        """Give back what reading tensors left in memory; called between layers."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of open files and memory maps."""


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a Hugging Face folder or a `.gguf` file; raises CheckpointError or CheckpointTorn."""
    if path.is_dir():
        from shard_export.checkpoint.bin import INDEX_NAME, SINGLE_NAME, BinCheckpoint
        from shard_export.checkpoint.safetensors import SafetensorsCheckpoint

        if not any(path.glob("*.safetensors*")) and any((path / name).is_file() for name in (SINGLE_NAME, INDEX_NAME)):
            return BinCheckpoint(path)
        return SafetensorsCheckpoint(path)
    if not path.exists():
        raise CheckpointTorn(f"{path} does not exist; name a Hugging Face model folder or a .gguf file.")
    if path.suffix.lower() == ".gguf":
        from shard_export.checkpoint.gguf import GgufCheckpoint

        return GgufCheckpoint(path)
    raise CheckpointError(f"{path} is neither a Hugging Face model folder nor a .gguf file; name one of those.")
