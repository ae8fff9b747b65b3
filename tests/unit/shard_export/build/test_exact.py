"""Units run without a second copy of their weights, and in as many chunks as memory wants: the same numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as op

from shard_export.build import exact
from shard_export.build.exact import EXACT, ExactRun, LayerRun, cache_shapes, experts_bytes
from tests.support.checkpoints import make_checkpoint
from tests.support.exact_library import exact_library

if TYPE_CHECKING:
    pass

ROWS, TOKENS = 3, 10


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> ov.Model:
    """One decoder layer with four experts, in float32."""
    folder = tmp_path_factory.mktemp("layer")
    exact_library(make_checkpoint(folder / "model", "qwen3_moe"), folder / "out")
    return ov.Core().read_model(str(folder / "out" / "units" / "000.xml"))


def text(seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], tuple[Any, Any]]:
    random = np.random.default_rng(seed)
    hidden = random.standard_normal((ROWS, TOKENS, 64)).astype(np.float32)
    mask = np.triu(np.full((TOKENS, TOKENS), -65504, np.float32), 1)[None, None]
    angles = random.uniform(0, 3, (ROWS, TOKENS, 16)).astype(np.float32)
    return hidden, mask, (np.cos(angles), np.sin(angles))


def test_matrices_that_are_handed_in_give_what_constants_give(layer: ov.Model) -> None:
    hidden, mask, (cos, sin) = text()
    past = [np.zeros((ROWS, heads, 0, size), np.float32) for heads, size in cache_shapes(layer)]
    inputs = [hidden, np.ascontiguousarray(np.broadcast_to(mask, (ROWS, 1, TOKENS, TOKENS))), cos, sin, *past]
    wanted = ov.Core().compile_model(layer, "CPU", EXACT)(inputs)
    found = ExactRun(ov.Core(), layer)(inputs)
    assert len(found) == 3
    for index, part in enumerate(found):
        np.testing.assert_allclose(part, wanted[index], rtol=1e-5, atol=1e-6)
    assert len(layer.inputs) == 6  # the unit itself stays as it was


def test_chunks_follow_the_memory_that_picked_experts_take(layer: ov.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    assert experts_bytes(layer) == 4 * 64 * 64  # gate and up of one expert, the larger of its two matrices
    hidden, mask, tables = text()
    calls: list[tuple[int, ...]] = []
    original = LayerRun.__call__

    def watched(self: LayerRun, inputs: Any) -> Any:
        calls.append(inputs[0].shape)
        return original(self, inputs)

    monkeypatch.setattr(LayerRun, "__call__", watched)
    run = LayerRun(ov.Core(), layer)
    whole = run.in_chunks(hidden, mask, tables, 2)
    assert calls == [(ROWS, 5, 64), (ROWS, 5, 64)]
    calls.clear()
    monkeypatch.setattr(exact, "BYTES_AT_ONCE", 4 * 1000)
    pieces = LayerRun(ov.Core(), layer, token_bytes=1000).in_chunks(hidden, mask, tables, 2)
    assert calls == [(1, 4, 64), (1, 4, 64), (1, 2, 64)] * ROWS
    for ours, theirs in zip(pieces, whole, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_wrong_number_of_inputs_is_refused() -> None:
    place = op.parameter([-1, 4], np.float32)
    unit = ov.Model([op.result(op.relu(place))], [place], "unit")
    with pytest.raises(ValueError, match="1 inputs, not 2"):
        ExactRun(ov.Core(), unit)([np.zeros((1, 4), np.float32)] * 2)
