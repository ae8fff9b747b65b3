"""Weights of a traced unit stored in 4 or 8 bits, in the graph form OpenVINO executes without unpacking.

Each matrix W[out, in] becomes `(q - zero) * scale` per group of input columns: q in 4 or 8 bits, scale in float16, zero
in the type of q, or in float16 where a group's minimum must be met exactly. The plain formats are the arithmetic of
NNCF's data-free modes (a test compares them bit for bit); doing it here costs 0.1 s a layer instead of 1.5 s and gives
the same bytes every time. Other formats come in through a `Pack`: GGUF blocks (`repack.py`) and rounding by activations
(`gptq.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import openvino as ov
from openvino import opset13 as op

from shard_export.library.errors import CompressionError
from shard_export.library.manifest import Compression
from shard_export.library.minima import nibble_constant

if TYPE_CHECKING:
    from collections.abc import Callable

PlainMode = Literal["int4_asym", "int4_sym", "int8_asym"]
Mode = Literal["int4_asym", "int4_sym", "int8_asym", "int4_gptq", "gguf"]
DEFAULT_GROUP_SIZE = 32
PER_CHANNEL = -1
GGUF_FORMATS = {
    "Q4_0": "i4",
    "Q4_1": "u4",
    "Q4_K": "u4",
    "Q5_0": "i8",
    "Q5_1": "i8",
    "Q5_K": "i8",
    "Q6_K": "i8",
    "Q8_0": "i8",
}
"""Block formats that are stored code by code, with the type their codes get."""

FORMATS = {"int4_asym": "u4", "int4_sym": "i4", "int8_asym": "u8", "int4_gptq": "u4", **GGUF_FORMATS}
_PARTS = ("codes", "scale", "zero")
NAMED = tuple(f"/{part}" for part in _PARTS)
"""Endings of the names of constants that `read_compression` understands."""

# The biases of experts are looked up like an embedding, but they are no matrix; routers are small, and a rounded one
# sends tokens to other experts.
_LEFT = ("bias", ".gate.weight", ".router.weight")
_BITS = {"u4": 4, "i4": 4, "u8": 8, "i8": 8, "f16": 16, "f32": 32, "bf16": 16}
_TYPES = {"u4": ov.Type.u4, "i4": ov.Type.i4, "u8": ov.Type.u8, "i8": ov.Type.i8}

Array = np.ndarray[Any, Any]


class Quantized(NamedTuple):
    """A matrix in groups: `codes` [out, groups, group], `scale` and `zero` [out, groups, 1].

    No zero when symmetric; it is an integer of the codes' type, or a float that float16 will hold.
    """

    codes: Array
    scale: Array
    zero: Array | None


class Packed(NamedTuple):
    """A matrix ready to be stored in one of FORMATS."""

    format: str
    values: Quantized

    def rows(self, part: slice) -> Packed:
        """Return some of the rows."""
        codes, scale, zero = self.values
        return Packed(self.format, Quantized(codes[part], scale[part], None if zero is None else zero[part]))

    def dequantized(self) -> Array:
        """Return W[out, in] in float32 as the stored parts give it (scales and fractional zero points in float16)."""
        codes, scale, zero = self.values
        weight = codes.astype(np.float32)
        if zero is not None:
            weight = weight - zero.astype(np.float16).astype(np.float32)
        weight = weight * scale.astype(np.float16).astype(np.float32)
        return weight.reshape(len(codes), -1)


if TYPE_CHECKING:
    Pack = Callable[[Array], Packed | None]
    """Packs a matrix W[out, in], recognised by its values; None leaves it to the plain mode."""


def group_size_for(width: int, wanted: int | None, matrix: str) -> int:
    """Choose the group size of a matrix with `width` input columns.

    Without a wish it is the largest power of two up to 32 that divides the width, else one group per channel. A wish
    that does not divide raises CompressionError, for a library must not claim a group size it does not have.
    """
    if wanted is None:
        size = DEFAULT_GROUP_SIZE
        while size > 4 and width % size:
            size //= 2
        return size if width % size == 0 else PER_CHANNEL
    if wanted == PER_CHANNEL:
        return PER_CHANNEL
    if wanted < 1 or width % wanted:
        raise CompressionError(
            f"Group size {wanted} does not divide the {width} input columns of {matrix}; "
            "choose one that does or leave out --group-size."
        )
    return wanted


def quantize_matrix(weight: Array, mode: PlainMode, group_size: int) -> Quantized:
    """Quantize W[out, in] (float32); `group_size` divides `in`, or is -1 for one group per output channel."""
    rows, width = weight.shape
    groups = weight.reshape(rows, -1, width if group_size == PER_CHANNEL else group_size)
    eps = np.finfo(np.float32).eps
    if mode == "int4_sym":
        low, high = groups.min(-1, keepdims=True), groups.max(-1, keepdims=True)
        # The end of the range that is further out gets the code -8, which has one step more than +7.
        scale = np.where(np.abs(low) >= high, np.abs(low), -high) / np.float32(8)
        scale = np.where(np.abs(scale) < eps, eps, scale).astype(np.float32)
        return Quantized(np.clip(np.rint(groups / scale), -8, 7).astype(np.int8), scale, None)
    top = 15 if mode == "int4_asym" else 255
    low, high = groups.min(-1, keepdims=True), groups.max(-1, keepdims=True)
    scale = ((high - low) / np.float32(top)).astype(np.float32)
    scale = np.where(np.abs(scale) < eps, eps, scale).astype(np.float32)
    zero = np.clip(-np.rint(low / scale), 0, top)
    codes = np.clip(np.rint(groups / scale + zero), 0, top)
    return Quantized(codes.astype(np.uint8), scale, zero.astype(np.uint8))


def compress_unit(model: ov.Model, mode: PlainMode, group_size: int | None, pack: Pack | None = None) -> None:
    """Replace every weight matrix of a float32 unit in place; raises CompressionError.

    `pack` is asked first; what it does not pack is stored in the plain `mode`. `group_size` None chooses per matrix;
    int8 is always per output channel, as the kernels expect.
    """
    found = [node for node in model.get_ordered_ops() if node.get_type_name() in {"MatMul", "Gather"}]
    done: dict[str, Any] = {}
    count = 0
    for node in found:
        is_product = node.get_type_name() == "MatMul"
        port = 1 if is_product else 0
        constant = _weight_of(node, port)
        if constant is None:
            count += _compress_experts(node, mode, group_size)
            continue
        count += 1
        name = str(constant.get_friendly_name())
        turned = is_product and not node.get_attributes()["transpose_b"]
        if name not in done:
            values = np.ascontiguousarray(constant.get_data().T) if turned else constant.get_data()
            done[name] = weight_node(_checked(values, name, mode, group_size, pack), name)
        if turned:
            transposed = bool(node.get_attributes()["transpose_a"])
            _hand_over(node, op.matmul(node.input_value(0), done[name].output(0), transposed, True))
        else:
            node.input(port).replace_source_output(done[name].output(0))
    if not count:
        raise CompressionError("A unit holds no weight matrix to compress; this model cannot be exported.")
    model.validate_nodes_and_infer_types()


def read_compression(model: ov.Model, none: bool = False) -> Compression:
    """Tell from a unit's graph how its matrices are really stored; `none` expects no compressed matrix."""
    formats: dict[str, str] = {}
    group_sizes: dict[str, int] = {}
    bits = weights = 0
    for node in model.get_ordered_ops():
        if node.get_type_name() != "Constant":
            continue
        kind, shape, name = (
            node.get_element_type().get_type_name(),
            list(node.get_output_shape(0)),
            str(node.get_friendly_name()),
        )
        size = int(np.prod(shape)) if shape else 1
        matrix, applied, part = name.rsplit("/", 2) if name.endswith(NAMED) else ("", "", "")
        if part == "codes":
            weights, bits = weights + size, bits + size * _BITS[kind]
            group_sizes[matrix] = shape[-1] if len(shape) == 3 else PER_CHANNEL
            formats[matrix] = applied
            if FORMATS.get(applied) != kind:
                raise CompressionError(f"The matrix {matrix} was stored as {kind}, which is not {applied}.")
        elif part:
            bits += size * _BITS[kind]
        elif kind in _BITS and size > 1:
            weights, bits = weights + size, bits + size * _BITS[kind]
    if bool(formats) == none:
        found = mode_of(formats) if formats else "uncompressed"
        raise CompressionError(f"A unit was stored as {found}, which was not asked for.")
    return Compression(
        mode=mode_of(formats),
        bits_per_weight=round(bits / weights, 4) if weights else 0.0,
        group_sizes=dict(sorted(group_sizes.items())),
        formats=dict(sorted(formats.items())),
    )


def mode_of(formats: dict[str, str]) -> str:
    """Name a unit by what its matrices are stored as: one format, `gguf`, several joined by `+`, or `none`."""
    kinds = {"gguf" if applied in GGUF_FORMATS else applied for applied in formats.values()}
    return "+".join(sorted(kinds)) or "none"


def weight_node(packed: Packed, name: str, experts: int = 0) -> Any:
    """Build the float32 matrix [out, in] of stored parts.

    With `experts` the rows are those of all experts, and the node is [experts, out * groups, group]: runtimes pick
    experts out of compressed weights only when no reshape stands between.
    """
    codes, scale, zero = packed.values
    rows, groups, _ = codes.shape
    stem, kind = f"{name}/{packed.format}", _TYPES[FORMATS[packed.format]]
    if experts:
        shape = experts, -1
        codes, scale = codes.reshape(*shape, codes.shape[-1]), scale.reshape(*shape, 1)
        zero = zero.reshape(*shape, 1) if zero is not None else None
    elif groups == 1:
        codes, scale, zero = codes[:, 0], scale[:, 0], zero[:, 0] if zero is not None else None
    node = op.convert(_constant(codes, kind, f"{stem}/codes"), ov.Type.f16)
    if zero is not None:
        if np.issubdtype(zero.dtype, np.floating):
            point = op.constant(zero.astype(np.float16))
            point.set_friendly_name(f"{stem}/zero")
        else:
            point = op.convert(_constant(zero, kind, f"{stem}/zero"), ov.Type.f16)
        node = op.subtract(node, point)
    factor = op.constant(scale.astype(np.float16))
    factor.set_friendly_name(f"{stem}/scale")
    node = op.multiply(node, factor)
    if groups > 1 and not experts:
        node = op.reshape(node, op.constant(np.array([rows, -1], np.int64)), False)
    return op.convert(node, ov.Type.f32)


def pack_plain(weight: Array, name: str, mode: PlainMode, group_size: int | None) -> Packed:
    """Quantize one matrix W[out, in] in a plain mode."""
    size = PER_CHANNEL if mode == "int8_asym" else group_size_for(weight.shape[1], group_size, name)
    return Packed(mode, quantize_matrix(weight, mode, size))


def _checked(values: Array, name: str, mode: PlainMode, group_size: int | None, pack: Pack | None) -> Packed:
    if not np.isfinite(values).all():
        raise CompressionError(f"Tensor {name} holds values that are not finite; the checkpoint is damaged.")
    packed = pack(values) if pack is not None else None
    return packed if packed is not None else pack_plain(values, name, mode, group_size)


def _compress_experts(node: Any, mode: PlainMode, group_size: int | None) -> int:
    """Replace the matrices of all experts [E, out, in] that a Gather picks some of; returns how many were replaced."""
    weight = node.input_value(0).get_node()
    is_picked = node.get_type_name() == "Gather" and node.input_value(1).get_partial_shape().rank.get_length() == 1
    if not is_picked or weight.get_type_name() != "Constant" or len(weight.get_output_shape(0)) != 3:
        return 0
    name = str(weight.get_friendly_name())
    experts, rows, width = weight.get_output_shape(0)
    packed = _checked(weight.get_data().reshape(-1, width), name, mode, group_size, None)
    picked = op.gather(weight_node(packed, name, experts), node.input_value(1), node.input_value(2))
    shaped = op.reshape(picked, op.constant(np.array([-1, rows, width], np.int64)), False)
    _hand_over(node, shaped)
    return 1


def _weight_of(node: Any, port: int) -> Any:
    source = node.input_value(port).get_node()
    is_matrix = source.get_type_name() == "Constant" and len(source.get_output_shape(0)) == 2
    is_matrix = is_matrix and not str(source.get_friendly_name()).endswith(_LEFT)
    return source if is_matrix and source.get_element_type() == ov.Type.f32 else None


def _hand_over(old: Any, new: Any) -> None:
    for target in list(old.output(0).get_target_inputs()):
        target.replace_source_output(new.output(0))


def _constant(codes: Array, kind: ov.Type, name: str) -> Any:
    node = nibble_constant(codes, kind) if kind in {ov.Type.u4, ov.Type.i4} else op.constant(codes)
    node.set_friendly_name(name)
    return node
