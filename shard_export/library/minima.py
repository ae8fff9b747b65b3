"""Fractional zero points of stored matrices turned into integer ones, for runtimes that multiply in eight bits.

A library stores the minimum of a group (of a GGUF block, or as GPTQ fitted it) as a fractional float16 zero point,
which is exact and has no cost where weights are unpacked to floats. Where the runtime quantizes activations instead
(processors with VNNI, many GPUs) it does so for integer zero points only, three times as fast. There a matrix is
split: with z the rounded zero point,
`(q - zero) * scale = (q - z) * scale + rest` and `rest = (z - zero) * scale` is one number per group of columns, so

    y = x @ W.T = x @ integer_part.T + group_sums(x) @ rest.T

which is as exact and one small product more. Matrices that read the same activations share the sums. A zero point far
outside of the codes' 0 to 15 leaves much to `rest`, so the runtime's eight bits see less of such a group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import openvino as ov
from openvino import opset13 as op

from shard_export.library.manifest import Manifest

SPLIT_FORMATS = frozenset({"Q4_1", "Q4_K", "int4_gptq"})
"""Formats with a minimum whose codes are u4. Runtimes do not quantize activations for i8 codes with a zero point."""

_TOP = 15


class _Parts(NamedTuple):
    """The constants of one fractional matrix: `zero` and `scale` f16 [out, groups, 1], and who subtracts the zero."""

    subtract: Any
    zero: np.ndarray[Any, Any]
    scale: np.ndarray[Any, Any]


def has_minima(manifest: Manifest, first: int, last: int) -> bool:
    """Tell whether a stage of layers `first <= i < last` holds matrices that `split_minima` would change."""
    units = [manifest.layer(index) for index in range(first, last)]
    if last == manifest.layer_count:
        units.append(manifest.unit("head"))
    return any(SPLIT_FORMATS.intersection(unit.compression.formats.values()) for unit in units)


def split_minima(model: ov.Model) -> int:
    """Give every u4 matrix with fractional zero points integer ones and a correction, in place; returns how many.

    Matrices that are looked up and not multiplied (embeddings, experts) stay as they are.
    """
    sums: dict[tuple[str, int, int], Any] = {}
    count = 0
    for node in model.get_ordered_ops():
        if node.get_type_name() != "MatMul" or (parts := _fractional(node.input_value(1).get_node())) is None:
            continue
        readers = list(node.output(0).get_target_inputs())
        names = node.output(0).get_names()
        point = np.clip(np.rint(parts.zero.astype(np.float32)), 0, _TOP)
        rest = (point - parts.zero.astype(np.float32)) * parts.scale.astype(np.float32)
        codes = op.convert(nibble_constant(point.astype(np.uint8), ov.Type.u4), ov.Type.f16)
        parts.subtract.input(1).replace_source_output(codes.output(0))
        source = node.input_value(0)
        groups = rest.shape[1]
        key = (str(source.get_node().get_friendly_name()), source.get_index(), groups)
        if key not in sums:
            sums[key] = _group_sums(source, groups)
        weights = op.convert(op.constant(rest[..., 0].astype(np.float16)), ov.Type.f32)
        total = op.add(node, op.matmul(sums[key], weights, transpose_a=False, transpose_b=True))
        node.output(0).set_names(set())
        for reader in readers:
            reader.replace_source_output(total.output(0))
        # Last: the names of a model's outputs live where its Results read, and were cleared with the old ones.
        total.output(0).set_names(names)
        for reader in readers:
            if reader.get_node().get_type_name() == "Result":
                reader.get_node().output(0).set_names(names)
        count += 1
    return count


def quantizes_activations(core: ov.Core, device: str, options: dict[str, Any]) -> bool:
    """Tell whether a device multiplies compressed weights in eight bits under these compile options.

    Found by trying: a small matrix gives other numbers with dynamic quantization forbidden. False for a device that
    does not know the property. Blocking (0.1 s); call it off the event loop.
    """
    key = "DYNAMIC_QUANTIZATION_GROUP_SIZE"
    if options.get(key) == 0:
        return False
    random = np.random.default_rng(0)
    values = random.standard_normal((1, 256)).astype(np.float32)
    model = _sample_matrix(random)
    try:
        found = [core.compile_model(model, device, one)(values)[0] for one in (options, {**options, key: 0})]
    except RuntimeError:
        return False
    return not np.array_equal(*found)


def nibble_constant(values: np.ndarray[Any, Any], kind: ov.Type) -> Any:
    """Pack 8-bit integers of any shape into a constant of type u4 or i4."""
    nibbles = values.reshape(-1).view(np.uint8) & 15
    if nibbles.size % 2:
        nibbles = np.append(nibbles, np.uint8(0))
    packed = nibbles[::2] | (nibbles[1::2] << 4)  # the low nibble comes first
    return ov.op.Constant(ov.Tensor(packed, list(values.shape), kind), shared_memory=False)


def _fractional(weight: Any) -> _Parts | None:
    """Recognise Convert(Reshape(Multiply(Subtract(Convert(u4), f16 zero), f16 scale))); None for anything else."""
    node = weight
    while node.get_type_name() in {"Convert", "Reshape"}:
        node = node.input_value(0).get_node()
    if node.get_type_name() != "Multiply":
        return None
    subtract, scale = (node.input_value(port).get_node() for port in (0, 1))
    if subtract.get_type_name() != "Subtract" or scale.get_type_name() != "Constant":
        return None
    codes, zero = (subtract.input_value(port).get_node() for port in (0, 1))
    if zero.get_type_name() != "Constant" or codes.get_type_name() != "Convert":
        return None
    if codes.input_value(0).get_element_type() != ov.Type.u4 or len(zero.get_output_shape(0)) != 3:
        return None
    return _Parts(subtract, zero.get_data(), scale.get_data())


def _group_sums(source: Any, groups: int) -> Any:
    """Sum activations [..., in] over the groups of columns: [..., groups]."""
    lead = [0] * (source.get_partial_shape().rank.get_length() - 1)
    shape = op.constant(np.array([*lead, groups, -1], np.int64))
    return op.reduce_sum(op.reshape(source, shape, special_zero=True), op.constant(np.int64(-1)), keep_dims=False)


def _sample_matrix(random: np.random.Generator) -> ov.Model:
    rows, groups, group = 64, 8, 32
    source = op.parameter([-1, groups * group], ov.Type.f32)
    codes = nibble_constant(random.integers(0, 16, (rows, groups, group), np.uint8), ov.Type.u4)
    point = nibble_constant(np.full((rows, groups, 1), 8, np.uint8), ov.Type.u4)
    centred = op.subtract(op.convert(codes, ov.Type.f16), op.convert(point, ov.Type.f16))
    scale = op.constant((random.random((rows, groups, 1)) / 100 + 0.01).astype(np.float16))
    flat = op.reshape(op.multiply(centred, scale), op.constant(np.array([rows, -1], np.int64)), special_zero=False)
    product = op.matmul(source, op.convert(flat, ov.Type.f32), transpose_a=False, transpose_b=True)
    return ov.Model([op.result(product)], [source], "sample")
