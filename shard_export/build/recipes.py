"""Which format each matrix of a library gets: what was asked for, and what the source allows.

`auto` keeps the blocks of a quantized GGUF file as they are and rounds everything else to four bits by its inputs. The
figures behind that choice are in the package's README.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

import numpy as np

from shard_export.build.calibration import Calibration, Inputs
from shard_export.build.packed import GGUF_FORMATS, Array, Mode, PlainMode, group_size_for
from shard_export.build.quantize import compress_unit
from shard_export.build.rounding import KeepBlocks, Matrices, RoundByInputs
from shard_export.build.sensitivity import choose_for_eight_bits, room_for_eight_bits
from shard_export.library.counts import counted
from shard_export.library.errors import CompressionError
from shard_export.library.estimates import BITS, BITS_IN_EIGHT, bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import openvino as ov

    from shard_export.build.options import BuildOptions
    from shard_export.build.skeleton import End, Skeleton
    from shard_export.build.trace import LayerCall
    from shard_export.library.manifest import Unit

    Compress = Callable[[ov.Model], None]

CHOICES: tuple[str, ...] = ("auto", *get_args(Mode))

_KEPT = ("gguf", "int8_asym")


class Seen(NamedTuple):
    """What the calibration text says about a layer; its hidden states behind the layer go on to the next."""

    inputs: list[Inputs]
    damage: dict[str, float]
    behind: Array


class Recipe:
    """How the units of one build are stored. `layers` and `ends` are the modes that `auto` turned out to be."""

    def __init__(self, skeleton: Skeleton, options: BuildOptions) -> None:
        self._skeleton, self._group_size, self._ratio = skeleton, options.group_size, options.int8_ratio
        self._formats = {
            skeleton.full_name(index, name): skeleton.ledger.stored_format(skeleton.full_name(index, name))
            for index, shapes in enumerate(skeleton.shapes)
            for name, shape in shapes.items()
            if len(shape) == 2
        }
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
            counted(
                sum(found == name for found in self._formats.values()),
                f"matrix in {name} has no counterpart in OpenVINO and is stored as int8_asym.",
                f"matrices in {name} have no counterpart in OpenVINO and are stored as int8_asym.",
            )
            for name in lost
        ]

    def library_bytes(self) -> float:
        """Estimate the size of the units."""
        layers, ends = self._skeleton.weight_count()
        bits, matrices = 0.0, 0
        for index, shapes in enumerate(self._skeleton.shapes):
            for name, shape in shapes.items():
                matrices += math.prod(shape)
                bits += math.prod(shape) * self._bits(self._skeleton.full_name(index, name))
        others = layers - matrices
        return bytes_of(matrices=matrices, matrix_bits=bits, others=others, ends=ends, int8_ratio=self._ratio)

    def start(self, tokenizer: Any) -> None:
        """Prepare the text that roundings are chosen by, if they are."""
        if self.layers == "int4_gptq" or self._ratio:
            self._calibration = Calibration(self._skeleton, tokenizer)

    def first_inputs(self) -> Array:
        """Return the hidden states of that text before the first layer (empty without); the embedding must be there."""
        return self._calibration.start() if self._calibration is not None else np.zeros((0, 0, 0), np.float32)

    def look_at(self, call: LayerCall, hidden: Array, kind: tuple[int, int]) -> Seen:
        """Take that text through a filled layer of that (rope, window)."""
        if self._calibration is None:
            return Seen([], {}, hidden)
        inputs, behind = self._calibration.layer(call, hidden, kind)
        damage = {}
        if self._ratio:
            damage = self._calibration.damage(call, hidden, kind, self._group_size)
        return Seen(inputs, damage, behind)

    def for_layer(self, index: int, seen: Seen, finished: Sequence[Unit]) -> Compress:
        """Return what compresses the layer's unit in place, and raises CompressionError; the layer may be dropped then.

        Matrices are let go of one by one while it works.
        """
        if self.layers == "int8_asym":
            return lambda model: compress_unit(model, "int8_asym", None)
        matrices = Matrices(self._skeleton.matrices(index))
        if self.layers == "gguf":
            blocks = KeepBlocks(matrices, self._skeleton.ledger.blocks)
            return lambda model: compress_unit(model, "int8_asym", None, blocks)
        inputs = seen.inputs if self.layers == "int4_gptq" else []
        plain = cast("PlainMode", "int4_asym" if self.layers == "int4_gptq" else self.layers)
        pack = RoundByInputs(matrices, inputs, self._group_size, self._in_eight(index, seen.damage, finished))
        return lambda model: compress_unit(model, plain, self._group_size, pack)

    def _in_eight(self, index: int, damage: dict[str, float], finished: Sequence[Unit]) -> frozenset[str]:
        if not self._ratio:
            return frozenset()
        shapes = self._skeleton.shapes
        sizes = {name: math.prod(shapes[index][name]) for name in damage}
        weights = {layer: sum(map(math.prod, found.values())) for layer, found in enumerate(shapes)}
        return choose_for_eight_bits(damage, sizes, room_for_eight_bits(self._ratio, weights, index, finished))

    def for_end(self, end: End) -> Compress:
        """Return what compresses the unit `embed` or `head` in place; see `for_layer`."""
        if self.ends != "gguf":
            return lambda model: compress_unit(model, cast("PlainMode", self.ends), None)
        blocks = KeepBlocks(Matrices(self._skeleton.matrices(end)), self._skeleton.ledger.blocks)
        return lambda model: compress_unit(model, "int8_asym", None, blocks)

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
        if self._ratio and (self.layers in _KEPT or not 0 < self._ratio < 1):
            raise CompressionError(
                "A share of eight-bit weights lies between 0 and 1 and needs layers of four bits; "
                "correct --int8-ratio or choose --layers int4_gptq."
            )
        if self.layers not in _KEPT:
            for index, shapes in enumerate(self._skeleton.shapes):
                for name, shape in shapes.items():
                    group_size_for(shape[-1], self._group_size, self._skeleton.full_name(index, name))

    def _bits(self, name: str) -> float:
        applied = self._formats.get(name, "") if self.layers == "gguf" else self.layers
        return BITS.get(applied, BITS_IN_EIGHT)
