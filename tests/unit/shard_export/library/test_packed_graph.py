"""The same units become a static graph that keeps nothing between calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest

from shard_export.library.graph import MASKED, UnitDamaged, assemble
from shard_export.library.manifest import Manifest
from shard_export.library.packed_graph import assemble_packed
from tests.support.toy_library import HEADS, HIDDEN, VOCAB, layer_graph, replace_unit, toy_library

PLACES, COLUMNS = 4, 12
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}


@pytest.fixture
def library(tmp_path: Path) -> tuple[Path, Manifest]:
    return tmp_path, toy_library(tmp_path, windows=[0, 6, 0])


def packed(library: tuple[Path, Manifest], first: int, last: int, **options: Any) -> ov.Model:
    return assemble_packed(*library, first, last, places=PLACES, columns=COLUMNS, wanted=2, **options)


def shapes(ports: Any) -> dict[str, list[int]]:
    return {port.get_any_name(): list(port.get_shape()) for port in ports}


def test_every_port_of_a_last_stage_has_a_fixed_shape(library: tuple[Path, Manifest]) -> None:
    model = packed(library, 1, 3)
    cache = [1, HEADS, COLUMNS, 16]
    assert shapes(model.inputs) == {
        "hidden_states": [1, PLACES, HIDDEN],
        "position_ids": [1, PLACES],
        "mask.6": [1, 1, PLACES, COLUMNS + PLACES],
        "mask.0": [1, 1, PLACES, COLUMNS + PLACES],
        "wanted": [2],
        **{f"past_{letter}.{layer}": cache for letter in "kv" for layer in (1, 2)},
    }
    new = [1, HEADS, PLACES, 16]
    assert shapes(model.outputs) == {
        "logits": [1, 2, VOCAB],
        **{f"new_{letter}.{layer}": new for letter in "kv" for layer in (1, 2)},
    }


def test_a_first_stage_takes_ids_and_gives_hidden_states(library: tuple[Path, Manifest]) -> None:
    model = packed(library, 0, 1, cache_type=ov.Type.f16)
    types = {port.get_any_name(): port.get_element_type() for port in (*model.inputs, *model.outputs)}
    assert types["input_ids"] == ov.Type.i64
    assert types["hidden_out"] == ov.Type.f32
    assert {types[f"{name}.0"] for name in ("past_k", "past_v", "new_k", "new_v")} == {ov.Type.f16}


def test_it_computes_what_the_stateful_graph_computes(library: tuple[Path, Manifest]) -> None:
    ids, core = np.array([[5, 9, 2, 7]]), ov.Core()
    stateful = core.compile_model(assemble(*library, 0, 3), "CPU", EXACT)
    wanted = stateful(
        {"input_ids": ids, "attention_mask": np.ones((1, 4), np.int64), "position_ids": np.arange(4)[None],
         "beam_idx": np.zeros(1, np.int32)}
    )[0]  # fmt: skip
    static = core.compile_model(packed(library, 0, 3), "CPU", EXACT)
    feed = {port.get_any_name(): np.zeros(port.shape, port.get_element_type().to_dtype()) for port in static.inputs}
    mask = np.full((PLACES, COLUMNS + PLACES), MASKED, np.float32)
    mask[:, COLUMNS:][np.tril_indices(PLACES)] = 0
    # Hidden columns may hold anything that is a number.
    feed |= {name: np.full_like(array, 7) for name, array in feed.items() if name.startswith("past_")}
    feed |= {"input_ids": ids, "position_ids": np.arange(4)[None], "wanted": np.array([1, 3])}
    feed |= {"mask.0": mask[None, None], "mask.6": mask[None, None]}
    np.testing.assert_allclose(static(feed)["logits"][0], wanted[0, [1, 3]], atol=1e-4)


def test_a_unit_with_other_ports_is_damaged(library: tuple[Path, Manifest]) -> None:
    folder, manifest = library
    changed = replace_unit(folder, manifest, "001", layer_graph(np.random.default_rng(0), out="elsewhere"))
    with pytest.raises(UnitDamaged, match="no output out"):
        packed((folder, changed), 0, 3)


def test_layers_beyond_the_model_are_refused(library: tuple[Path, Manifest]) -> None:
    with pytest.raises(ValueError, match="not a range"):
        packed(library, 1, 4)
