"""What a checkpoint is, read off its headers: family, layers, weights. Blocks on the disk; no weight is read."""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import msgspec

from console.builds.gguf_header import HeaderBad, read_gguf_header
from console.errors import BuildRefused

CONFIG_NAME = "config.json"
WEIGHT_PATTERNS = ("*.safetensors", "pytorch_model*.bin")
MAX_HEADER_BYTES = 100 << 20
MAX_CONFIG_BYTES = 4 << 20
_LAYER = re.compile(r"\.(\d+)\.")
_QUANTIZATION = re.compile(r"[.-](I?Q\d\w*|B?F16|F32)$", re.IGNORECASE)
_PLAIN_BITS = 15.9
"""What has fewer bits a weight in its file is stored in blocks."""


class Tensor(NamedTuple):
    """A tensor: its name, weights, dimensions, and the bytes it takes in its file."""

    name: str
    weights: int
    dimensions: int
    size_bytes: int


class CheckpointFacts(NamedTuple):
    """A checkpoint in figures. `layers` and `matrices` are weights: of each layer, and of its matrices alone.

    `block_bits` are the bits a weight of the matrices that are stored in blocks, with how many weights have them.
    `ends` is how many weights the embedding and the head have together; `family` the `model_type`.
    """

    model_id: str
    family: str
    size_bytes: int
    layers: list[int]
    matrices: int
    ends: int
    block_bits: list[tuple[float, int]] = []  # noqa: RUF012 - of a NamedTuple, and never changed

    @property
    def weights(self) -> int:
        return sum(self.layers) + self.ends

    @property
    def largest_unit(self) -> int:
        return max(*self.layers, self.ends // 2, 1)


def look_at(source: Path) -> CheckpointFacts:
    """Look at a Hugging Face folder or `.gguf` file. Raises BuildRefused."""
    try:
        if source.is_dir():
            return _folder(source)
        if source.suffix.lower() == ".gguf" and source.is_file():
            return _gguf(source)
    except (OSError, HeaderBad) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BuildRefused(f"{source} cannot be read ({reason}); download or copy it again.") from None
    raise BuildRefused(f"{source} is neither a folder with a model nor a .gguf file; choose one of those.")


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder looks like a Hugging Face model."""
    return (folder / CONFIG_NAME).is_file() and any(True for _ in _weight_files(folder))


def weight_bytes(folder: Path) -> int:
    """Return how large the files with weights in a folder are together."""
    return sum(path.stat().st_size for path in _weight_files(folder))


def _weight_files(folder: Path) -> Iterable[Path]:
    for pattern in WEIGHT_PATTERNS:
        yield from folder.glob(pattern)


def _folder(folder: Path) -> CheckpointFacts:
    config = _config(folder)
    family = str(config.get("model_type", ""))
    safe = sorted(folder.glob("*.safetensors"))
    if safe:
        tensors = [tensor for path in safe for tensor in _safetensors(path)]
        return _facts(folder.name, family, sum(path.stat().st_size for path in safe), tensors, config)
    size_bytes = weight_bytes(folder)
    if not size_bytes:
        raise BuildRefused(f"{folder} holds no weights (*.safetensors or pytorch_model*.bin); choose a model's folder.")
    return _by_size(folder.name, family, size_bytes, config)


def _config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_NAME
    if not path.is_file():
        raise BuildRefused(f"{folder} holds no {CONFIG_NAME}, so it is no model's folder; choose one that does.")
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise HeaderBad(f"{CONFIG_NAME} is too large")
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise HeaderBad(f"{CONFIG_NAME} is no JSON object") from None


def _number(config: dict[str, Any], name: str) -> int:
    """Return a positive number of a config, also one of the text part of a model for more than text; 0: not there."""
    inner = config.get("text_config")
    for part in (config, inner if isinstance(inner, dict) else {}):
        value = part.get(name)
        if isinstance(value, int) and 0 < value < 1 << 40:
            return value
    return 0


def _safetensors(path: Path) -> Iterable[Tensor]:
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= length <= MAX_HEADER_BYTES:
            raise HeaderBad(f"{path.name} is no safetensors file")
        raw = file.read(length)
    try:
        named = msgspec.json.decode(raw, type=dict[str, dict[str, Any]])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise HeaderBad(f"{path.name} is torn") from None
    for name, about in named.items():
        if name == "__metadata__":
            continue
        shape, offsets = about.get("shape"), about.get("data_offsets")
        if not (_are_sizes(shape) and _are_sizes(offsets)) or len(offsets) != 2:
            raise HeaderBad(f"{path.name} describes {name[:100]} in an odd way")
        weights = 1
        for size in shape:
            weights *= size
        yield Tensor(name, weights, len(shape), offsets[1] - offsets[0])


def _are_sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(isinstance(one, int) and one >= 0 for one in value)


def _gguf(path: Path) -> CheckpointFacts:
    header = read_gguf_header(path)
    tensors = [Tensor(*tensor) for tensor in header.tensors]
    facts = _facts(_QUANTIZATION.sub("", path.stem), header.architecture, path.stat().st_size, tensors, {})
    blocks: dict[float, int] = defaultdict(int)
    for tensor in tensors:
        if tensor.dimensions >= 2 and tensor.weights and _layer_of(tensor.name) is not None:
            bits = 8 * tensor.size_bytes / tensor.weights
            if bits < _PLAIN_BITS:
                blocks[round(bits, 2)] += tensor.weights
    return facts._replace(block_bits=sorted(blocks.items()))


def _layer_of(name: str) -> int | None:
    found = _LAYER.search(name)
    return None if found is None else int(found.group(1))


def _facts(
    model_id: str, family: str, size_bytes: int, tensors: Iterable[Tensor], config: dict[str, Any]
) -> CheckpointFacts:
    layers: dict[int, int] = defaultdict(int)
    matrices = largest_end = 0
    for tensor in tensors:
        index = _layer_of(tensor.name)
        if index is None:
            largest_end = max(largest_end, tensor.weights if tensor.dimensions == 2 else 0)
            continue
        layers[index] += tensor.weights
        matrices += tensor.weights if tensor.dimensions >= 2 else 0
    if not layers:
        raise HeaderBad("no layers were found in it")
    end = _number(config, "vocab_size") * _number(config, "hidden_size") or largest_end
    return CheckpointFacts(model_id, family, size_bytes, [layers[index] for index in sorted(layers)], matrices, 2 * end)


def _by_size(model_id: str, family: str, size_bytes: int, config: dict[str, Any]) -> CheckpointFacts:
    """PyTorch's own files cannot be looked into without running code in them: go by their size."""
    stored = config.get("torch_dtype", config.get("dtype"))
    weights = size_bytes // (4 if stored == "float32" else 2)
    count = _number(config, "num_hidden_layers")
    if not count:
        raise HeaderBad(f"{CONFIG_NAME} does not say how many layers there are")
    end = _number(config, "vocab_size") * _number(config, "hidden_size")
    each = max(0, weights - 2 * end) // count
    return CheckpointFacts(model_id, family, size_bytes, [each] * count, each * count, 2 * end)
