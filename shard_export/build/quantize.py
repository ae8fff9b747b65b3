"""Weights of a traced unit stored in 4 or 8 bits, in the graph form OpenVINO executes without unpacking.

Each matrix W[out, in] becomes `(q - zero) * scale` per group of input columns: q in 4 or 8 bits, scale in float16, zero
in the type of q, or in float16 where a group's minimum must be met exactly. The plain formats are the arithmetic of
NNCF's data-free modes (a test compares them bit for bit); doing it here costs 0.1 s a layer instead of 1.5 s and gives
the same bytes every time. Other formats come in through a `Pack`: GGUF blocks (`repack.py`) and rounding by activations
(`gptq.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov
from openvino import opset13 as op

from shard_export.build.packed import PER_CHANNEL, Array, Packed, Quantized, group_size_for, joined, row_blocks
from shard_export.build.stored import weight_node
from shard_export.library.errors import CompressionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from shard_export.build.packed import PlainMode

    Pack = Callable[[Array], Packed | None]
    """Packs a matrix W[out, in], recognised by its values; None leaves it to the plain mode."""

# The biases of experts are looked up like an embedding, but they are no matrix; routers are small, and a rounded one
# sends tokens to other experts.
_LEFT = ("bias", ".gate.weight", ".router.weight")


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
    found = [node for node in reversed(model.get_ordered_ops()) if node.get_type_name() in {"MatMul", "Gather"}]
    done: dict[str, Any] = {}
    count = 0
    while found:
        # Nothing may hold on to a node that is done: the float32 matrix goes with it.
        node = found.pop()
        count += _compress_experts(node, mode, group_size) or _compress_matrix(node, mode, group_size, pack, done)
    if not count:
        raise CompressionError("A unit holds no weight matrix to compress; this model cannot be exported.")
    model.validate_nodes_and_infer_types()


def _compress_matrix(
    node: Any, mode: PlainMode, group_size: int | None, pack: Pack | None, done: dict[str, Any]
) -> int:
    """Replace the matrix a node reads, if it reads one; returns how many were replaced. `done` is by name."""
    is_product = node.get_type_name() == "MatMul"
    port = 1 if is_product else 0
    constant = _weight_of(node, port)
    if constant is None:
        return 0
    name = str(constant.get_friendly_name())
    turned = is_product and not node.get_attributes()["transpose_b"]
    if name not in done:
        values = np.ascontiguousarray(constant.data.T) if turned else constant.data
        done[name] = weight_node(_checked(values, name, mode, group_size, pack), name)
    if turned:
        transposed = bool(node.get_attributes()["transpose_a"])
        _hand_over(node, op.matmul(node.input_value(0), done[name].output(0), transposed, True))
    else:
        node.input(port).replace_source_output(done[name].output(0))
    return 1


def pack_plain(weight: Array, name: str, mode: PlainMode, group_size: int | None) -> Packed:
    """Quantize one matrix W[out, in] in a plain mode."""
    size = PER_CHANNEL if mode == "int8_asym" else group_size_for(weight.shape[1], group_size, name)
    return joined([Packed(mode, quantize_matrix(weight[part], mode, size)) for part in row_blocks(weight.shape)])


def _checked(values: Array, name: str, mode: PlainMode, group_size: int | None, pack: Pack | None) -> Packed:
    if not all(np.isfinite(values[part]).all() for part in row_blocks(values.shape)):
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
    packed = _checked(weight.data.reshape(-1, width), name, mode, group_size, None)
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
