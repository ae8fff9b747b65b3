"""Which format each matrix of a library gets: what was asked for, and what the source allows.

`auto` keeps the blocks of a quantized GGUF file as they are and rounds everything else to four bits by its inputs. The
figures behind that choice are in the package's README.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
import torch

from shard_export.build.calibration import Calibration, Inputs
from shard_export.build.gptq import BLOCK_COLUMNS, round_by_inputs
from shard_export.build.quantize import (
    GGUF_FORMATS,
    PER_CHANNEL,
    Array,
    Mode,
    Packed,
    PlainMode,
    compress_unit,
    group_size_for,
)
from shard_export.build.repack import repack
from shard_export.library.errors import CompressionError

if TYPE_CHECKING:
    import openvino as ov

    from shard_export.build.job import BuildOptions
    from shard_export.build.skeleton import End, Skeleton
    from shard_export.build.trace import LayerCall

Choice = Mode | Literal["auto"]
CHOICES: tuple[str, ...] = ("auto", *get_args(Mode))

# With scales and zero points, at 32 columns a group; a bit over, for an estimate before the start.
_BITS = {"int4_sym": 4.5, "int4_asym": 4.7, "int4_gptq": 5.1, "int8_asym": 8.1, "Q4_0": 4.5, "Q4_1": 5.1, "Q4_K": 5.1}
_BITS_IN_EIGHT = 9.0


class Recipe:
    """How the units of one build are stored. `layers` and `ends` are the modes that `auto` turned out to be."""

    def __init__(self, skeleton: Skeleton, options: BuildOptions) -> None:
        self._skeleton, self._group_size = skeleton, options.group_size
        self._formats = {name: skeleton.ledger.stored_format(name) for name in skeleton.matrix_shapes()}
        has_blocks = any(self._formats.values())
        self.layers: Mode = options.layers if options.layers != "auto" else "gguf" if has_blocks else "int4_gptq"
        self.ends: Mode = options.ends if options.ends != "auto" else "gguf" if has_blocks else "int8_asym"
        self._calibration: Calibration | None = None
        self._check(has_blocks)

    def recompressed(self) -> list[str]:
        """Say which blocks of a file could not be kept, one sentence a format."""
        if self.layers != "gguf":
            return []
        lost = sorted({found for found in self._formats.values() if found and found not in GGUF_FORMATS})
        return [
            f"{sum(found == name for found in self._formats.values())} matrices in {name} have no counterpart in "
            "OpenVINO and are stored as int8_asym."
            for name in lost
        ]

    def library_bytes(self) -> float:
        """Estimate the size of the units."""
        layers, ends = self._skeleton.weight_count()
        shapes = self._skeleton.matrix_shapes()
        matrices = sum(rows * width for rows, width in shapes.values())
        bits = sum(rows * width * self._bits(name) for name, (rows, width) in shapes.items())
        # What is no matrix stays in 32 bits.
        return bits / 8 + (layers - matrices) * 4 + ends * _BITS_IN_EIGHT / 8

    def start(self, tokenizer: Any) -> None:
        """Prepare the text that roundings are chosen by, if they are."""
        if self.layers == "int4_gptq":
            self._calibration = Calibration(self._skeleton, tokenizer)

    def first_inputs(self) -> Array:
        """Return the hidden states of that text before the first layer (empty without); the embedding must be there."""
        return self._calibration.start() if self._calibration is not None else np.zeros((0, 0, 0), np.float32)

    def layer_inputs(self, call: LayerCall, hidden: Array, kind: tuple[int, int]) -> tuple[list[Inputs], Array]:
        """Take the text through a layer; returns what its matrices read and the hidden states behind it."""
        return self._calibration.layer(call, hidden, kind) if self._calibration is not None else ([], hidden)

    def compress_layer(self, model: ov.Model, index: int, inputs: list[Inputs]) -> None:
        """Compress a layer's unit in place; raises CompressionError."""
        if self.layers == "gguf":
            compress_unit(model, "int8_asym", None, self._repacking(index))
        elif self.layers == "int4_gptq":
            compress_unit(model, "int4_asym", self._group_size, self._rounding(index, inputs))
        else:
            compress_unit(model, self.layers, self._group_size)

    def compress_end(self, model: ov.Model, end: End) -> None:
        """Compress the unit `embed` or `head` in place; raises CompressionError."""
        if self.ends == "gguf":
            compress_unit(model, "int8_asym", None, self._repacking(end))
        else:
            compress_unit(model, cast("PlainMode", self.ends), None)

    def _check(self, has_blocks: bool) -> None:
        """Refuse what cannot be before any work is done."""
        if "gguf" in {self.layers, self.ends} and not has_blocks:
            raise CompressionError(
                "The source holds no quantized blocks to keep, so it cannot be stored as gguf; leave out --layers."
            )
        if self.ends == "int4_gptq":
            raise CompressionError("Embedding and head cannot be rounded by their inputs; store them as int8_asym.")
        if self.layers == "gguf" and self._group_size is not None:
            raise CompressionError("The blocks of the file have their own group sizes; leave out --group-size.")
        if self.layers not in {"gguf", "int8_asym"}:
            for name, shape in self._skeleton.matrix_shapes().items():
                group_size_for(shape[1], self._group_size, name)

    def _bits(self, name: str) -> float:
        applied = self._formats[name] if self.layers == "gguf" else self.layers
        return _BITS.get(applied, _BITS_IN_EIGHT)

    def _repacking(self, unit: int | End) -> Any:
        matrices = self._skeleton.matrices(unit)

        def pack(values: Array) -> Packed | None:
            name = _named(matrices, values)
            blocks = self._skeleton.ledger.blocks(name) if name else None
            return repack(blocks, values) if blocks is not None else None

        return pack

    def _rounding(self, index: int, inputs: list[Inputs]) -> Any:
        matrices = self._skeleton.matrices(index)
        packed: dict[str, Packed] = {}
        for names, moments in inputs:
            known = {short: name for short in names for name in matrices if name.endswith(f".{short}")}
            if known:
                # Matrices that read the same inputs are rounded together: it is one loop over the columns.
                stacked = torch.cat([matrices[name] for name in known.values()])
                packed.update(self._rounded(stacked, moments, [(n, len(matrices[n])) for n in known.values()]))

        def pack(values: Array) -> Packed | None:
            return packed.get(_named(matrices, values))

        return pack

    def _rounded(
        self, stacked: torch.Tensor, moments: list[torch.Tensor], parts: list[tuple[str, int]]
    ) -> dict[str, Packed]:
        size = group_size_for(stacked.shape[1], self._group_size, parts[0][0])
        if size == PER_CHANNEL or (len(moments) > 1 and BLOCK_COLUMNS % size):
            return {}
        whole = round_by_inputs(stacked, moments, size)
        found, first = {}, 0
        for name, rows in parts:
            found[name] = whole.rows(slice(first, first + rows))
            first += rows
        return found


def _named(matrices: dict[str, torch.Tensor], values: Array) -> str:
    """Find a constant among the matrices by its values, because tracing does not always keep names."""
    for name, tensor in matrices.items():
        if not tensor.is_meta and tuple(tensor.shape) == values.shape and np.array_equal(tensor.numpy(), values):
            return name
    return ""
