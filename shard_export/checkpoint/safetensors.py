"""A Hugging Face folder with safetensors weights, in one file or in shards named by an index."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shard_export.checkpoint.scales import METHODS, is_beside_a_weight, scale_of, scaled
from shard_export.checkpoint.source import Checkpoint
from shard_export.library.errors import CheckpointError, CheckpointTorn

if TYPE_CHECKING:
    import torch

SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
_SLICE_ELEMENTS = 1 << 24
_MAPPED_BYTES = 1 << 28
"""What was read of a map counts as our memory; after so much of it the map is opened anew."""


class SafetensorsCheckpoint(Checkpoint):
    """Tensors are read one by one out of memory maps, so opening costs nothing and a layer costs a layer."""

    single_name, index_name = SINGLE_NAME, INDEX_NAME

    def __init__(self, path: Path) -> None:
        self.path = path
        self._settings = _read_json(path / "config.json")
        self.model_id = _model_id(self._settings, path)
        self.revision = str(self._settings.get("_commit_hash") or "")
        self._quantization = self._settings.get("quantization_config") or {}
        if self._quantization and self._quantization.get("quant_method") not in METHODS:
            raise CheckpointError(
                f"{path} is already quantized, and quantizing twice ruins the text; use the 16-bit original or a .gguf."
            )
        self._files: dict[str, Any] = {}
        self._mapped_bytes = 0
        self._where = self._locate()

    def config(self) -> Any:
        from transformers import AutoConfig

        try:
            config = AutoConfig.from_pretrained(str(self.path), local_files_only=True)
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            from shard_export.checkpoint.families import unknown_family

            kind = str(self._settings.get("model_type"))
            if not _is_known_to_transformers(kind):
                raise unknown_family(kind) from error
            raise CheckpointTorn(
                f"{self.path / 'config.json'} is not a usable {kind} config ({first_line(error)}); download it again."
            ) from error
        if self._quantization:
            del config.quantization_config  # `tensor` gives plain numbers
        return config

    def tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        if not (self.path / "tokenizer.json").is_file() and not (self.path / "tokenizer.model").is_file():
            raise CheckpointTorn(f"{self.path} has no tokenizer.json; download the model's tokenizer files too.")
        try:
            return AutoTokenizer.from_pretrained(str(self.path), local_files_only=True)
        except Exception as error:
            raise CheckpointTorn(
                f"The tokenizer of {self.path} cannot be read ({first_line(error)}); download its files again."
            ) from error

    def bind(self, model: torch.nn.Module) -> None:
        """Nothing to learn: the names on disk are the model's own."""

    def names(self) -> frozenset[str]:
        return frozenset(name for name in self._where if not is_beside_a_weight(name, self._where))

    def notes(self) -> list[str]:
        return ["The source is stored in 8 bits and was dequantized."] if self._quantization else []

    def tensor(self, name: str) -> torch.Tensor:
        import torch

        tensor = self._read(name)
        if tensor.dtype in {torch.float8_e4m3fn, torch.float8_e5m2}:
            scale = self._read(scale_of(name, self._where, self.path))
            self._count(tensor)
            return scaled(tensor, scale, self._quantization, name)
        if not tensor.is_floating_point() or tensor.element_size() < 2:
            raise CheckpointError(
                f"Tensor {name} of {self.path} is stored as {tensor.dtype}, which is already quantized; "
                "use the 16-bit original."
            )
        if tensor.ndim < 2:
            return torch.as_tensor(tensor).to(torch.float32, copy=True)
        shape, elements = tensor.shape, tensor.numel()
        del tensor  # it holds the map open
        result = torch.empty(shape, dtype=torch.float32)
        rows = max(1, _SLICE_ELEMENTS * shape[0] // max(1, elements))
        for first in range(0, shape[0], rows):
            part = self._read(name)[first : first + rows]
            result[first : first + rows].copy_(part)
            self._count(part)
        return result

    def _count(self, read: torch.Tensor) -> None:
        self._mapped_bytes += read.numel() * read.element_size()
        if self._mapped_bytes > _MAPPED_BYTES:
            self.forget()

    def same(self, one: str, other: str) -> bool:
        import torch

        # Tied tensors are the largest of all: a few rows at a time.
        ours, theirs = (self._open(self._where[name]).get_slice(name) for name in (one, other))
        shape = ours.get_shape()
        if shape != theirs.get_shape() or not shape:
            return shape == theirs.get_shape() and super().same(one, other)
        rows = max(1, _SLICE_ELEMENTS * shape[0] // max(1, math.prod(shape)))
        starts = range(0, shape[0], rows)
        return all(torch.equal(ours[first : first + rows], theirs[first : first + rows]) for first in starts)

    def forget(self) -> None:
        # What was read of a map counts as our memory until the system wants it back: in the end the whole model.
        self._files.clear()
        self._mapped_bytes = 0

    def close(self) -> None:
        # Windows cannot delete a file that is still mapped, so the maps go as soon as the build is done.
        self._files.clear()

    def _locate(self) -> dict[str, Path]:
        index_path, single = self.path / self.index_name, self.path / self.single_name
        if not index_path.is_file():
            if not single.is_file():
                raise CheckpointTorn(
                    f"{self.path} has neither {self.single_name} nor {self.index_name}; download the model's weights."
                )
            return dict.fromkeys(self._keys(single), single)
        weight_map = _read_json(index_path).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(value, str) for value in weight_map.values()):
            raise CheckpointTorn(f"{index_path} has no weight_map; download it again.")
        where = {name: self.path / Path(file).name for name, file in weight_map.items()}
        for file in sorted(set(where.values())):
            present = self._keys(file)
            if absent := sorted(name for name, place in where.items() if place == file and name not in present):
                raise CheckpointTorn(
                    f"{file} lacks tensor {absent[0]} which {self.index_name} promises; download it again."
                )
            for name in present:
                where.setdefault(name, file)
        return where

    def _keys(self, path: Path) -> set[str]:
        return set(self._open(path).keys())

    def _read(self, name: str) -> torch.Tensor:
        return self._open(self._where[name]).get_tensor(name)

    def _open(self, path: Path) -> Any:
        if str(path) not in self._files:
            if not path.is_file():
                raise CheckpointTorn(f"{path} is missing; download the model again.")
            self._files[str(path)] = self._map(path)
        return self._files[str(path)]

    def _map(self, path: Path) -> Any:
        from safetensors import SafetensorError, safe_open

        try:
            return safe_open(str(path), framework="pt")
        except (SafetensorError, OSError) as error:
            raise CheckpointTorn(
                f"{path} is not a whole safetensors file ({first_line(error)}); download it again."
            ) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise CheckpointTorn(f"{path} is missing; name a folder with a Hugging Face model.") from None
    except (ValueError, OSError) as error:
        raise CheckpointTorn(f"{path} cannot be read ({first_line(error)}); download it again.") from error
    if not isinstance(content, dict):
        raise CheckpointTorn(f"{path} is not a JSON object; download it again.")
    return content


def _model_id(settings: dict[str, Any], path: Path) -> str:
    named = str(settings.get("_name_or_path") or "")
    return path.resolve().name if not named or Path(named).is_absolute() else named


def _is_known_to_transformers(kind: str) -> bool:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return kind in CONFIG_MAPPING_NAMES


def first_line(error: BaseException) -> str:
    """Return the first line of what another package says, to be put in brackets."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:200]
