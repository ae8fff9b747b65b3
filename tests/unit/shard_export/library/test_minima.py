"""Fractional zero points split into integer ones and a correction: the same product, another form."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino as ov
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from openvino import opset13 as op

from shard_export.build.gptq import round_by_inputs
from shard_export.build.packed import Packed, Quantized
from shard_export.build.stored import weight_node
from shard_export.library.manifest import Compression, Manifest
from shard_export.library.minima import (
    has_minima,
    nibble_constant,
    quantizes_activations,
    split_minima,
)
from tests.support.toy_library import toy_library

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
Array = np.ndarray[Any, Any]


def packed(form: str = "Q4_1", *, rows: int = 24, groups: int = 3, spread: float = 6.0, seed: int = 1) -> Packed:
    """Make a random matrix in groups of 32 whose zero points are fractional and partly outside of the codes' range."""
    random = np.random.default_rng(seed)
    top = 16 if form.startswith("Q4") else 32
    kind = np.uint8 if form.startswith("Q4") else np.int8
    codes = random.integers(0, top, (rows, groups, 32)).astype(kind)
    scale = random.uniform(0.01, 0.05, (rows, groups, 1)).astype(np.float32)
    return Packed(form, Quantized(codes, scale, random.normal(8, spread, (rows, groups, 1)).astype(np.float32)))


def products(*matrices: Packed) -> ov.Model:
    """Build a model that multiplies one input [n, in] by each matrix."""
    width = matrices[0].values.codes[0].size
    source = op.parameter([-1, width], ov.Type.f32)
    results = []
    for index, matrix in enumerate(matrices):
        product = op.matmul(source, weight_node(matrix, f"m{index}"), transpose_a=False, transpose_b=True)
        product.output(0).set_names({f"y{index}"})
        results.append(op.result(product))
    return ov.Model(results, [source], "products")


def run(model: ov.Model, values: Array) -> list[Array]:
    answers = ov.Core().compile_model(model, "CPU", EXACT)(values)
    return [np.array(answers[index]) for index in range(len(model.outputs))]


def kinds(model: ov.Model) -> list[str]:
    return [node.get_type_name() for node in model.get_ops()]


@settings(max_examples=15, deadline=None)
@given(spread=st.sampled_from([0.1, 6.0, 60.0]), groups=st.integers(2, 4), seed=st.integers(0, 1000))
def test_a_split_matrix_gives_the_same_product(spread: float, groups: int, seed: int) -> None:
    matrix = packed(spread=spread, groups=groups, seed=seed)
    values = np.random.default_rng(seed).standard_normal((3, groups * 32)).astype(np.float32)
    model = products(matrix)
    assert split_minima(model) == 1
    (found,) = run(model, values)
    wanted = values @ matrix.dequantized().T
    assert np.abs(found - wanted).max() < 1e-3 * np.abs(wanted).max()


def test_a_matrix_rounded_by_its_inputs_gives_the_same_product() -> None:
    random = torch.Generator().manual_seed(4)
    weight, inputs = torch.randn(24, 96, generator=random), torch.randn(300, 96, generator=random)
    matrix = round_by_inputs(weight, [inputs.T @ inputs / 300], 32)
    zero = matrix.values.zero
    assert zero is not None
    assert np.any(zero != np.rint(zero))
    model = products(matrix)
    assert split_minima(model) == 1
    (found,) = run(model, inputs[:5].numpy())
    wanted = inputs[:5].numpy() @ matrix.dequantized().T
    assert np.abs(found - wanted).max() < 1e-3 * np.abs(wanted).max()


def test_matrices_that_read_the_same_activations_share_the_sums() -> None:
    matrices = [packed(seed=1), packed("Q4_K", rows=8, seed=2)]
    model = products(*matrices)
    assert split_minima(model) == 2
    assert kinds(model).count("ReduceSum") == 1
    assert [output.get_names() for output in model.outputs] == [{"y0"}, {"y1"}]
    values = np.random.default_rng(3).standard_normal((2, 96)).astype(np.float32)
    for found, matrix in zip(run(model, values), matrices, strict=True):
        wanted = values @ matrix.dequantized().T
        assert np.abs(found - wanted).max() < 1e-3 * np.abs(wanted).max()


def test_a_split_matrix_has_integer_zero_points_only() -> None:
    model = products(packed())
    split_minima(model)
    for node in model.get_ops():
        if node.get_type_name() == "Subtract":
            assert node.input_value(1).get_node().get_type_name() == "Convert"
            assert node.input_value(1).get_node().input_value(0).get_element_type() == ov.Type.u4


@pytest.mark.parametrize("form", ["Q5_1", "int4_asym"])
def test_other_forms_stay_as_they_are(form: str) -> None:
    matrix = packed(form)
    if form == "int4_asym":
        codes, scale, _ = packed().values
        matrix = Packed(form, Quantized(codes, scale, np.full(scale.shape, 8, np.uint8)))
    model = products(matrix)
    before = kinds(model)
    assert split_minima(model) == 0
    assert kinds(model) == before


def test_an_embedding_is_looked_up_and_stays_as_it_is() -> None:
    ids = op.parameter([-1], ov.Type.i64)
    model = ov.Model([op.result(op.gather(weight_node(packed(), "e"), ids, op.constant(np.int64(0))))], [ids], "embed")
    assert split_minima(model) == 0


class FakeCore:
    """A runtime whose answers depend on dynamic quantization, or that does not know of it."""

    def __init__(self, error: float, *, knows: bool = True) -> None:
        self.error, self.knows = error, knows

    def compile_model(self, model: ov.Model, device: str, options: dict[str, Any]) -> Any:
        if not self.knows and "DYNAMIC_QUANTIZATION_GROUP_SIZE" in options:
            raise RuntimeError("no such property")
        error = 0.0 if options.get("DYNAMIC_QUANTIZATION_GROUP_SIZE") == 0 else self.error
        return lambda values: [values.sum() + np.float32(error)]


@pytest.mark.parametrize(
    ("core", "options", "expected"),
    [
        (FakeCore(0.5), {}, True),
        (FakeCore(0.0), {}, False),
        (FakeCore(0.5), EXACT, False),
        (FakeCore(0.5, knows=False), {}, False),
    ],
)
def test_a_device_that_quantizes_activations_is_found_by_trying(
    core: Any, options: dict[str, Any], expected: bool
) -> None:
    assert quantizes_activations(core, "GPU", options) is expected


def test_the_real_runtime_answers_and_never_quantizes_in_exact_numerics() -> None:
    core = ov.Core()
    assert quantizes_activations(core, "CPU", {}) in {True, False}
    assert not quantizes_activations(core, "CPU", EXACT)


def with_formats(manifest: Manifest, unit: str, form: str) -> Manifest:
    import msgspec

    compression = Compression("gguf", 5.0, {"w": 32}, {"w": form})
    units = [
        msgspec.structs.replace(one, compression=compression) if one.name == unit else one for one in manifest.units
    ]
    return msgspec.structs.replace(manifest, units=units)


def test_only_stages_with_such_matrices_are_concerned(tmp_path: Any) -> None:
    manifest = toy_library(tmp_path)
    last = manifest.layer_count
    assert not has_minima(manifest, 0, last)
    for form in ("Q4_K", "int4_gptq"):
        second = with_formats(manifest, manifest.layer(1).name, form)
        assert (has_minima(second, 0, 1), has_minima(second, 1, 2)) == (False, True)
    head = with_formats(manifest, "head", "Q4_1")
    assert (has_minima(head, 0, last - 1), has_minima(head, 0, last)) == (False, True)
    assert not has_minima(with_formats(manifest, "head", "Q5_1"), 0, last)


@pytest.mark.parametrize("kind", [ov.Type.u4, ov.Type.i4])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_nibbles_come_back_as_they_went_in(kind: ov.Type, count: int) -> None:
    values = np.arange(count, dtype=np.int8) - (4 if kind == ov.Type.i4 else 0)
    model = ov.Model([op.result(op.convert(nibble_constant(values, kind), ov.Type.f32))], [], "nibbles")
    (found,) = ov.Core().compile_model(model, "CPU")({}).values()
    assert found.tolist() == values.tolist()
