"""A Hugging Face folder with weights in PyTorch's own format, in one file or in shards named by an index.

Only tensors are taken out of the files: code in them is never run. Files of other names, such as `training_args.bin`,
are no weights.
"""

from __future__ import annotations

import pickle  # for the name of its error only: torch reads the file, weights only
from typing import TYPE_CHECKING, Any

from shard_export.checkpoint.safetensors import SafetensorsCheckpoint, first_line
from shard_export.library.errors import CheckpointError, CheckpointTorn

if TYPE_CHECKING:
    from pathlib import Path

    import torch

SINGLE_NAME = "pytorch_model.bin"
INDEX_NAME = "pytorch_model.bin.index.json"


class BinCheckpoint(SafetensorsCheckpoint):
    """Tensors are views of memory maps, so opening costs nothing and a layer costs a layer."""

    single_name, index_name = SINGLE_NAME, INDEX_NAME

    def same(self, one: str, other: str) -> bool:
        import torch

        return bool(torch.equal(self._read(one), self._read(other)))

    def _keys(self, path: Path) -> set[str]:
        return set(self._open(path))

    def _read(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._open(self._where[name])[name]
        return tensor

    def _map(self, path: Path) -> Any:
        import torch

        try:
            content = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        except pickle.UnpicklingError as error:
            raise CheckpointError(
                f"{path} holds more than tensors, and code of a model file is never run; use its safetensors weights."
            ) from error
        except (RuntimeError, ValueError, OSError, EOFError) as error:
            raise CheckpointTorn(
                f"{path} is not a whole file of PyTorch 1.6 or later ({first_line(error)}); download it again or use "
                "safetensors weights."
            ) from error
        if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
            raise CheckpointError(f"{path} holds more than named tensors; use the model's safetensors weights.")
        return content
