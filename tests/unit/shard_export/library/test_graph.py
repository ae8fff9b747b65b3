"""Units become one graph whose attention fuses, and broken units are refused with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest

from shard_export.library.graph import UnitDamaged, UnitMissing, assemble, fused_layers
from shard_export.library.manifest import Manifest
from tests.support.toy_library import HEADS, HIDDEN, VOCAB, layer_graph, replace_unit, toy_library

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "INFERENCE_NUM_THREADS": 1}


@pytest.fixture
def library(tmp_path: Path) -> tuple[Path, Manifest]:
    return tmp_path, toy_library(tmp_path)


def compiled(model: ov.Model) -> ov.CompiledModel:
    return ov.Core().compile_model(model, "CPU", EXACT)


def run(request: Any, source: Any, *, mask: Any = None, first: int = 0, **more: Any) -> Any:
    count = source.shape[1]
    feed = {
        "input_ids" if source.dtype == np.int64 else "hidden_states": source,
        "attention_mask": np.ones((len(source), first + count), np.int64) if mask is None else mask,
        "position_ids": np.tile(np.arange(first, first + count), (len(source), 1)),
        "beam_idx": np.arange(len(source), dtype=np.int32),
        **more,
    }
    return request.infer(feed)[0].copy()


def ids(count: int, seed: int = 3) -> Any:
    return np.random.default_rng(seed).integers(0, VOCAB, (1, count))


def names(model: ov.Model) -> set[str]:
    return {port.get_any_name() for port in (*model.inputs, *model.outputs)}


def test_a_whole_model_has_the_ports_of_a_monolithic_export(library: tuple[Path, Manifest]) -> None:
    model = assemble(*library, 0, 3)
    assert names(model) == {"input_ids", "attention_mask", "position_ids", "beam_idx", "logits"}


def test_an_inner_stage_takes_and_gives_hidden_states(library: tuple[Path, Manifest]) -> None:
    model = assemble(*library, 1, 2)
    assert names(model) == {"hidden_states", "attention_mask", "position_ids", "beam_idx", "hidden_out"}


def test_every_layer_is_fused(library: tuple[Path, Manifest]) -> None:
    assert fused_layers(compiled(assemble(*library, 0, 3))) == 3


def test_attention_in_pieces_is_not_called_fused() -> None:
    scores = ov.opset13.parameter([1, 2, -1, -1], ov.Type.f32)
    model = ov.Model([ov.opset13.result(ov.opset13.softmax(scores, 3))], [scores], "pieces")
    assert fused_layers(compiled(model)) == 0


def test_tokens_one_by_one_give_what_a_whole_prompt_gives(library: tuple[Path, Manifest]) -> None:
    model = compiled(assemble(*library, 0, 3))
    prompt = ids(9)
    whole = run(model.create_infer_request(), prompt)
    request = model.create_infer_request()
    single = np.concatenate([run(request, prompt[:, at : at + 1], first=at) for at in range(9)], axis=1)
    np.testing.assert_allclose(single, whole, atol=1e-4)


def test_two_stages_compute_what_one_computes(library: tuple[Path, Manifest]) -> None:
    prompt = ids(7)
    whole = run(compiled(assemble(*library, 0, 3)).create_infer_request(), prompt)
    hidden = run(compiled(assemble(*library, 0, 2)).create_infer_request(), prompt)
    np.testing.assert_allclose(run(compiled(assemble(*library, 2, 3)).create_infer_request(), hidden), whole, atol=1e-4)


def test_masked_columns_are_not_seen(library: tuple[Path, Manifest]) -> None:
    model = compiled(assemble(*library, 0, 3))
    prompt, junk = ids(6), ids(2, seed=9)
    clean = run(model.create_infer_request(), prompt)[:, 4:]
    request = model.create_infer_request()
    run(request, prompt[:, :4])
    run(request, junk, first=4)
    mask = np.array([[1, 1, 1, 1, 0, 0, 1, 1]])
    np.testing.assert_allclose(run(request, prompt[:, 4:], mask=mask, first=4), clean, atol=1e-4)


def test_a_sliding_layer_sees_only_its_window(tmp_path: Path) -> None:
    manifest = toy_library(tmp_path, layers=1, windows=[4])
    model = compiled(assemble(tmp_path, manifest, 0, 1))
    prompt, other = ids(8), ids(8)
    other[0, 3] = (other[0, 3] + 1) % VOCAB
    seen, changed = (run(model.create_infer_request(), tokens)[0] for tokens in (prompt, other))
    assert not np.allclose(seen[6], changed[6], atol=1e-6)
    np.testing.assert_array_equal(seen[7], changed[7])


def test_a_window_is_measured_between_positions_not_columns(tmp_path: Path) -> None:
    manifest = toy_library(tmp_path, layers=1, windows=[4])
    model = compiled(assemble(tmp_path, manifest, 0, 1))
    prompt = ids(6)
    clean = run(model.create_infer_request(), prompt)[:, 5:]
    request = model.create_infer_request()
    run(request, prompt[:, :5])
    run(request, ids(3, seed=9), first=5)
    mask = np.array([[1, 1, 1, 1, 1, 0, 0, 0, 1]])
    np.testing.assert_allclose(run(request, prompt[:, 5:], mask=mask, first=5), clean, atol=1e-4)


def test_the_head_can_run_for_wanted_tokens_only(library: tuple[Path, Manifest]) -> None:
    prompt = ids(5)
    whole = run(compiled(assemble(*library, 0, 3)).create_infer_request(), prompt)
    request = compiled(assemble(*library, 0, 3, wanted_rows=True)).create_infer_request()
    some = run(request, prompt, wanted=np.array([1, 4]))
    np.testing.assert_allclose(some, whole[:, [1, 4]], atol=1e-4)


def test_the_beam_index_reorders_the_batch(library: tuple[Path, Manifest]) -> None:
    request = compiled(assemble(*library, 0, 3)).create_infer_request()
    run(request, np.concatenate([ids(4, seed=1), ids(4, seed=2)]))
    token = ids(1)
    swapped = run(request, np.concatenate([token, token]), first=4, beam_idx=np.array([1, 0], np.int32))
    alone = compiled(assemble(*library, 0, 3)).create_infer_request()
    run(alone, ids(4, seed=2))
    np.testing.assert_allclose(swapped[0], run(alone, token, first=4)[0], atol=1e-4)


def test_a_missing_file_is_named(library: tuple[Path, Manifest]) -> None:
    folder, manifest = library
    (folder / "units" / "001.bin").unlink()
    with pytest.raises(UnitMissing, match=r"units/001\.bin"):
        assemble(folder, manifest, 0, 3)


def test_a_stage_needs_only_its_own_units(library: tuple[Path, Manifest]) -> None:
    folder, manifest = library
    (folder / "units" / "000.bin").unlink()
    (folder / "units" / "embed.xml").unlink()
    assemble(folder, manifest, 1, 3)


def test_a_truncated_file_is_damaged(library: tuple[Path, Manifest]) -> None:
    folder, manifest = library
    path = folder / "units" / "002.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UnitDamaged, match=r"units/002\.bin"):
        assemble(folder, manifest, 0, 3)


def test_a_file_that_is_no_graph_is_damaged(library: tuple[Path, Manifest]) -> None:
    folder, manifest = library
    path = folder / "units" / "head.xml"
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(UnitDamaged, match=r"units/head\.xml cannot be read"):
        assemble(folder, manifest, 0, 3)


def test_a_unit_without_its_output_is_damaged(library: tuple[Path, Manifest]) -> None:
    folder, manifest = library
    changed = replace_unit(folder, manifest, "001", layer_graph(np.random.default_rng(0), out="elsewhere"))
    with pytest.raises(UnitDamaged, match=r"no output out"):
        assemble(folder, changed, 0, 3)


def test_a_unit_with_other_heads_than_the_manifest_says_is_damaged(library: tuple[Path, Manifest]) -> None:
    folder, manifest = library
    changed = replace_unit(folder, manifest, "001", layer_graph(np.random.default_rng(0), heads=HEADS + 1))
    with pytest.raises(UnitDamaged, match=r"units/001\.xml: port present_k"):
        assemble(folder, changed, 0, 3)


def test_a_unit_with_an_unknown_input_is_damaged(library: tuple[Path, Manifest]) -> None:
    folder, manifest = library
    stray = ov.opset13.parameter([-1, -1, HIDDEN], ov.Type.f32)
    stray.set_friendly_name("stray")
    output = ov.opset13.relu(stray)
    output.output(0).set_names({"logits"})
    wrong = ov.Model([ov.opset13.result(output)], [stray], "head")
    changed = replace_unit(folder, manifest, "head", wrong)
    with pytest.raises(UnitDamaged, match="head"):
        assemble(folder, changed, 0, 3)


@pytest.mark.parametrize(("first", "last"), [(0, 4), (-1, 2), (2, 2)])
def test_a_range_outside_the_model_is_refused(library: tuple[Path, Manifest], first: int, last: int) -> None:
    with pytest.raises(ValueError, match="not a range"):
        assemble(*library, first, last)
