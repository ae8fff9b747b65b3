"""Weights of a traced unit stored in 4 or 8 bits, in the graph form OpenVINO executes without unpacking.

Each matrix W[out, in] becomes `(q - zero) * scale` per group of input columns: q in 4 or 8 bits, scale in float16, zero
in the type of q. The arithmetic is that of NNCF's data-free modes (a test compares them bit for bit); doing it here
costs 0.1 s a layer instead of 1.5 s and gives the same bytes every time.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import openvino as ov
from openvino import opset13 as op

from shard_export.library.errors import CompressionError
from shard_export.library.manifest import Compression

Mode = Literal["int4_asym", "int4_sym", "int8_asym"]
DEFAULT_GROUP_SIZE = 32
PER_CHANNEL = -1
_BITS = {"u4": 4, "i4": 4, "u8": 8, "i8": 8, "f16": 16, "f32": 32, "bf16": 16}

Array = np.ndarray[Any, Any]


class Quantized(NamedTuple):
    """A matrix in groups: `codes` [out, groups, group], `scale` and `zero` [out, groups, 1]; no zero when symmetric."""

    codes: Array
    scale: Array
    zero: Array | None


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


def quantize_matrix(weight: Array, mode: Mode, group_size: int) -> Quantized:
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


def compress_unit(model: ov.Model, mode: Mode, group_size: int | None) -> None:
    """Replace every weight matrix of a float32 unit in place; raises CompressionError.

    `group_size` None chooses per matrix; int8 is always per output channel, as the kernels expect.
    """
    found = [node for node in model.get_ordered_ops() if node.get_type_name() in {"MatMul", "Gather"}]
    done: dict[int, Any] = {}
    count = 0
    for node in found:
        port = 1 if node.get_type_name() == "MatMul" else 0
        constant = _weight_of(node, port)
        if constant is None:
            continue
        count += 1
        if node.get_type_name() == "MatMul" and not node.get_attributes()["transpose_b"]:
            _transpose(node, constant, mode, group_size)
            continue
        key = id(constant) if constant.get_friendly_name() == "" else hash(constant.get_friendly_name())
        if key not in done:
            done[key] = _decompressed(constant.get_data(), constant.get_friendly_name(), mode, group_size)
        node.input(port).replace_source_output(done[key].output(0))
    if not count:
        raise CompressionError("A unit holds no weight matrix to compress; this model cannot be exported.")
    model.validate_nodes_and_infer_types()


def read_compression(model: ov.Model, none: bool = False) -> Compression:
    """Tell from a unit's graph how its matrices are really stored; `none` expects no compressed matrix."""
    modes: set[str] = set()
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
        if name.endswith("/codes"):
            weights, bits = weights + size, bits + size * _BITS[kind]
            matrix = name.removesuffix("/codes")
            group_sizes[matrix] = shape[-1] if len(shape) == 3 else PER_CHANNEL
            modes.add({"u4": "int4_asym", "i4": "int4_sym", "u8": "int8_asym"}[kind])
        elif name.endswith(("/scale", "/zero")):
            bits += size * _BITS[kind]
        elif kind in _BITS and size > 1:
            weights, bits = weights + size, bits + size * _BITS[kind]
    if bool(modes) == none or len(modes) > 1:
        raise CompressionError(f"A unit was stored as {sorted(modes) or 'uncompressed'}, which was not asked for.")
    return Compression(
        mode=modes.pop() if modes else "none",
        bits_per_weight=round(bits / weights, 4) if weights else 0.0,
        group_sizes=dict(sorted(group_sizes.items())),
    )


def _weight_of(node: Any, port: int) -> Any:
    source = node.input_value(port).get_node()
    is_matrix = source.get_type_name() == "Constant" and len(source.get_output_shape(0)) == 2
    return source if is_matrix and source.get_element_type() == ov.Type.f32 else None


def _transpose(node: Any, constant: Any, mode: Mode, group_size: int | None) -> None:
    turned = np.ascontiguousarray(constant.get_data().T)
    weight = _decompressed(turned, constant.get_friendly_name(), mode, group_size)
    flat = op.matmul(node.input_value(0), weight.output(0), bool(node.get_attributes()["transpose_a"]), True)
    for target in list(node.output(0).get_target_inputs()):
        target.replace_source_output(flat.output(0))


def _decompressed(weight: Array, name: str, mode: Mode, group_size: int | None) -> Any:
    if not np.isfinite(weight).all():
        raise CompressionError(f"Tensor {name} holds values that are not finite; the checkpoint is damaged.")
    rows, width = weight.shape
    size = PER_CHANNEL if mode == "int8_asym" else group_size_for(width, group_size, name)
    quantized = quantize_matrix(weight, mode, size)
    if size == PER_CHANNEL:
        quantized = Quantized(*(part[:, 0] if part is not None else None for part in quantized))  # type: ignore[arg-type]
    kind = {"int4_asym": ov.Type.u4, "int4_sym": ov.Type.i4, "int8_asym": ov.Type.u8}[mode]
    node = op.convert(_constant(quantized.codes, kind, f"{name}/codes"), ov.Type.f16)
    if quantized.zero is not None:
        zero = op.convert(_constant(quantized.zero, kind, f"{name}/zero"), ov.Type.f16)
        node = op.subtract(node, zero)
    scale = op.constant(quantized.scale.astype(np.float16))
    scale.set_friendly_name(f"{name}/scale")
    node = op.multiply(node, scale)
    if size != PER_CHANNEL:
        node = op.reshape(node, op.constant(np.array([rows, width], np.int64)), False)
    return op.convert(node, ov.Type.f32)


def _constant(codes: Array, kind: ov.Type, name: str) -> Any:
    if kind in {ov.Type.u4, ov.Type.i4}:
        nibbles = codes.reshape(-1).view(np.uint8) & 15
        if nibbles.size % 2:
            nibbles = np.append(nibbles, np.uint8(0))
        packed = nibbles[::2] | (nibbles[1::2] << 4)  # the low nibble comes first
        node = ov.op.Constant(ov.Tensor(packed, list(codes.shape), kind), shared_memory=False)
    else:
        node = op.constant(codes)
    node.set_friendly_name(name)
    return node
