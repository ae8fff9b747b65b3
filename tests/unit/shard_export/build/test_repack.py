"""GGUF blocks kept code by code: what comes out of a compiled product is what gguf itself dequantizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino as ov
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
from hypothesis import given, settings
from hypothesis import strategies as st
from openvino import opset13 as op

from shard_export.build.packed import GGUF_FORMATS
from shard_export.build.quantize import compress_unit
from shard_export.build.repack import repack
from shard_export.build.stored import read_compression
from shard_export.checkpoint.source import Blocks

ROWS, WIDTH = 6, 1024
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
# What float16 does to minima, and to the scales of the K formats, which are products of two numbers.
SYMMETRIC_ERROR, ERROR = 1e-6, 5e-4
BITS = {"Q4_0": 4.5, "Q4_1": 5.0, "Q4_K": 5.0, "Q5_0": 8.5, "Q5_1": 9.0, "Q5_K": 9.0, "Q6_K": 9.0, "Q8_0": 8.5}

Array = np.ndarray[Any, Any]


def make_blocks(name: str, *, seed: int = 0, scale: float = 0.01, offset: float = 8.0) -> Blocks:
    """Random codes with scales around `scale` and minima around `-offset` scales."""
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    random = np.random.default_rng(seed)
    data = random.integers(0, 256, (ROWS * WIDTH // block, size)).astype(np.uint8)

    def put(at: int, values: Array) -> None:
        data[:, at : at + 2] = values.astype(np.float16).view(np.uint8).reshape(-1, 2)

    scales = scale * random.uniform(0.5, 1.0, len(data))
    put(208 if name == "Q6_K" else 0, scales)
    if name in {"Q4_1", "Q5_1"}:
        put(2, -scales * offset * random.uniform(0.5, 1.5, len(data)))
    if name in {"Q4_K", "Q5_K"}:
        put(2, scales * offset * random.uniform(0.5, 1.0, len(data)))
    return Blocks(name, data.reshape(ROWS, -1), size)


def weights_of(blocks: Blocks) -> Array:
    return np.array(dequantize(blocks.data, GGMLQuantizationType[blocks.format]), np.float32)


def make_unit(weight: Array) -> ov.Model:
    rows = op.parameter([-1, -1, weight.shape[1]], ov.Type.f32)
    constant = op.constant(weight)
    constant.set_friendly_name("w")
    return ov.Model([op.result(op.matmul(rows, constant, False, True))], [rows], "unit")


def compiled_weight(unit: ov.Model) -> tuple[Array, list[str]]:
    """Run a unit on the identity; returns W[out, in] and the kinds of nodes that were executed."""
    compiled = ov.Core().compile_model(unit, "CPU", EXACT)
    product: Array = compiled([np.eye(WIDTH, dtype=np.float32)[None]])[0][0].T
    kinds = [node.get_rt_info()["layerType"].astype(str) for node in compiled.get_runtime_model().get_ops()]
    return product, kinds


@pytest.mark.parametrize("name", sorted(GGUF_FORMATS))
def test_a_compiled_product_has_the_weights_of_the_file(name: str) -> None:
    blocks = make_blocks(name)
    weight = weights_of(blocks)
    unit = make_unit(weight)
    compress_unit(unit, "int8_asym", None, lambda values: repack(blocks, values))
    found, kinds = compiled_weight(unit)
    assert np.abs(found - weight).max() <= (SYMMETRIC_ERROR if name.endswith("_0") else ERROR) * np.abs(weight).max()
    assert "FullyConnected" in kinds
    assert "Convert" not in kinds  # nothing is unpacked before it is multiplied
    compression = read_compression(unit)
    assert (compression.mode, compression.formats) == ("gguf", {"w": name})
    assert compression.bits_per_weight == BITS[name]


@given(
    name=st.sampled_from(sorted(GGUF_FORMATS)),
    seed=st.integers(0, 1000),
    scale=st.sampled_from([1e-3, 0.05, 2.0]),
    offset=st.sampled_from([-4.0, 0.0, 1.0, 15.0, 40.0]),
)
@settings(max_examples=40, deadline=None)
def test_minima_anywhere_are_kept(name: str, seed: int, scale: float, offset: float) -> None:
    blocks = make_blocks(name, seed=seed, scale=scale, offset=offset)
    weight = weights_of(blocks)
    packed = repack(blocks, weight)
    assert packed is not None
    assert np.abs(packed.dequantized() - weight).max() <= 1e-3 * np.abs(weight).max()


def test_a_block_of_zeros_is_zero() -> None:
    blocks = make_blocks("Q4_1")
    blocks.data[:] = 0
    packed = repack(blocks, np.zeros((ROWS, WIDTH), np.float32))
    assert packed is not None
    assert not packed.dequantized().any()


def test_a_group_without_a_scale_is_its_minimum() -> None:
    blocks = make_blocks("Q4_1")
    blocks.data[:, :2] = 0
    weight = weights_of(blocks)
    packed = repack(blocks, weight)
    assert packed is not None
    np.testing.assert_allclose(packed.dequantized()[:, :32], weight[:, :32], rtol=1e-6)


def test_codes_that_do_not_give_the_matrix_back_are_not_kept() -> None:
    blocks = make_blocks("Q4_1")
    weight = weights_of(blocks)
    assert repack(blocks, weight[::-1].copy()) is None  # rows in another order
    assert repack(blocks, weight * 1.01) is None
    assert repack(blocks, weight[:, : WIDTH // 2].copy()) is None


def test_a_format_without_counterpart_is_stored_plainly_and_recorded_so() -> None:
    blocks = make_blocks("Q4_1")._replace(format="IQ4_XS")
    weight = weights_of(make_blocks("Q4_1"))
    unit = make_unit(weight)
    compress_unit(unit, "int8_asym", None, lambda values: repack(blocks, values))
    assert read_compression(unit).formats == {"w": "int8_asym"}


def test_a_table_is_looked_up_in_its_own_form() -> None:
    blocks = make_blocks("Q8_0")
    weight = weights_of(blocks)
    ids = op.parameter([-1, -1], ov.Type.i64)
    constant = op.constant(weight)
    constant.set_friendly_name("table")
    axis = op.constant(np.int64(0))
    unit = ov.Model([op.result(op.gather(constant, ids, axis))], [ids], "embed")
    compress_unit(unit, "int8_asym", None, lambda values: repack(blocks, values))
    assert read_compression(unit).formats == {"table": "Q8_0"}
    rows = ov.Core().compile_model(unit, "CPU", EXACT)([np.arange(ROWS)[None]])[0][0]
    np.testing.assert_allclose(rows, weight, atol=1e-7)
