"""Packed weights: what is stored is what was asked for, and what NNCF would store."""

from __future__ import annotations

from typing import Any

import nncf
import numpy as np
import openvino as ov
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openvino import opset13 as op

from shard_export.build.packed import group_size_for
from shard_export.build.quantize import compress_unit, quantize_matrix
from shard_export.build.stored import read_compression
from shard_export.library.errors import CompressionError

WEIGHT = np.random.default_rng(0).standard_normal((48, 128)).astype(np.float32)


def make_unit(weight: np.ndarray[Any, Any] = WEIGHT) -> ov.Model:
    rows = op.parameter([-1, weight.shape[1]], ov.Type.f32)
    constant = op.constant(weight)
    constant.set_friendly_name("w")
    return ov.Model([op.result(op.matmul(rows, constant, False, True))], [rows], "unit")


def stored_weight(unit: ov.Model) -> np.ndarray[Any, Any]:
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    compiled = ov.Core().compile_model(unit, "CPU", exact)
    result: np.ndarray[Any, Any] = compiled([np.eye(WEIGHT.shape[1], dtype=np.float32)])[0].T
    return result


@pytest.mark.parametrize("mode", ["int4_asym", "int4_sym", "int8_asym"])
def test_the_arithmetic_is_nncfs(mode: Any) -> None:
    ours, theirs = make_unit(), make_unit()
    compress_unit(ours, mode, 32)
    settings = {} if mode == "int8_asym" else {"group_size": 32, "ratio": 1.0, "all_layers": True}
    theirs = nncf.compress_weights(theirs, mode=nncf.CompressWeightsMode(mode), **settings)
    np.testing.assert_array_equal(stored_weight(ours), stored_weight(theirs))


@given(
    st.integers(1, 4), st.integers(1, 5), st.sampled_from([4, 8, 32]), st.floats(1e-3, 1e3), st.integers(0, 2**32 - 1)
)
def test_no_weight_moves_further_than_one_step(rows: int, groups: int, size: int, spread: float, seed: int) -> None:
    weight = (np.random.default_rng(seed).standard_normal((rows, groups * size)) * spread).astype(np.float32)
    quantized = quantize_matrix(weight, "int4_asym", size)
    assert quantized.zero is not None
    values = (quantized.codes.astype(np.float32) - quantized.zero) * quantized.scale
    inside = (quantized.zero > 0) & (quantized.zero < 15)
    error = np.abs(values - weight.reshape(values.shape))
    assert (error <= quantized.scale * 1.01 + 1e-6)[np.broadcast_to(inside, error.shape)].all()


def test_the_group_size_follows_the_width() -> None:
    assert [group_size_for(width, None, "w") for width in (576, 48, 40, 4, 7)] == [32, 16, 8, 4, -1]
    with pytest.raises(CompressionError, match="128 does not divide the 576"):
        group_size_for(576, 128, "w")


def test_what_is_recorded_is_read_from_the_graph() -> None:
    unit = make_unit()
    compress_unit(unit, "int4_asym", 32)
    compression = read_compression(unit)
    assert (compression.mode, compression.group_sizes) == ("int4_asym", {"w": 32})
    assert compression.bits_per_weight == 4 + 20 / 32
    with pytest.raises(CompressionError, match="uncompressed"):
        read_compression(make_unit())
