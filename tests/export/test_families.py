"""Every family: a tiny random model, exported without loss, against transformers' own whole model."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from agent.stage.engines import load_selected
from agent.stage.types import StreamId
from shard_export.build.job import build_library
from shard_export.build.judging import relative_error
from shard_export.build.options import BuildOptions
from shard_export.checkpoint.families import (
    CHECKED,
    REFUSED,
    SUPPORTED,
    Family,
    attention_for,
    check_family,
    rope_kinds,
)
from shard_export.library.errors import TensorMismatch, UnknownFamily
from tests.support.checkpoints import FAMILIES, SIZES, edit_weights, make_checkpoint
from tests.support.exact_library import exact_library, run_in_chunks
from tests.support.stage import make_row, make_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from shard_export.library.manifest import Manifest

Array = np.ndarray[Any, Any]

# What transformers says, once a process, of rotary settings that real models have and of our tiny contexts.
ROPE_ADVICE = "original_max_position_embeddings"
pytestmark = pytest.mark.expected_logs("transformers.modeling_rope_utils", ROPE_ADVICE)

# Longer than every window and than what the stretching rotary kinds call the original length.
TOKENS, CUT = 64, 40
EXACT_ERROR = 1e-4


class Exact(NamedTuple):
    """A random checkpoint, its library in float32, and what both were made of."""

    source: Path
    folder: Path
    manifest: Manifest
    config: Any


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exact]:
    """Make the exact library of a variant, once for all tests."""

    @functools.cache
    def make(variant: str) -> Exact:
        folder = tmp_path_factory.mktemp(variant)
        source = make_checkpoint(folder / "model", variant)
        manifest, skeleton = exact_library(source, folder / "out")
        return Exact(source, folder / "out", manifest, skeleton.config)

    return make


def family_of(variant: str) -> Family:
    return next(family for family in CHECKED if family.name == variant.partition("-")[0])


def random_ids(tokens: int = TOKENS) -> Array:
    return np.random.default_rng(0).integers(0, 256, (1, tokens))


def logits_of_transformers(source: Path, ids: Array) -> Array:
    """Run the whole model without cache and with `eager` attention, which spells out all that a model asks for."""
    with torch.no_grad():
        model = AutoModelForCausalLM.from_pretrained(str(source), dtype=torch.float32, attn_implementation="eager")
        logits: Array = model.eval()(torch.from_numpy(ids), use_cache=False).logits.numpy()
    return logits


def logits_of_stages(folder: Path, engine: Any, bounds: Sequence[int], ids: Array, *, stands_in: bool = False) -> Array:
    """Run the ids in two steps through stages of the layers between `bounds`; does `stateful` stand in for `engine`?"""
    stages = []
    try:
        for index in range(len(bounds) - 1):
            spec = make_spec(folder, first=bounds[index], last=bounds[index + 1], engine=engine, stage=index)
            stage, selection = load_selected(spec)
            stages.append(stage)
            assert ("stateful engine" in selection.refused.get(engine, "")) == stands_in
        outputs = []
        for first, last in ((0, CUT), (CUT, ids.shape[1])):
            tensor = ids[0, first:last]
            for stage in stages:
                tensor = stage.step([make_row(1, first, last - first, wants=last - first)], tensor)
            outputs.append(np.array(tensor))
        return np.concatenate(outputs)[None]
    finally:
        for stage in stages:
            stage.close()


def windows_of(manifest: Manifest) -> set[int]:
    return {layer.attention.window_tokens for layer in manifest.units if layer.attention}


@pytest.mark.parametrize("variant", sorted(FAMILIES))
def test_a_family_computes_what_transformers_computes(variant: str, exact: Callable[[str], Exact]) -> None:
    family, ids = family_of(variant), random_ids()
    source, folder, manifest, config = exact(variant)
    wanted = logits_of_transformers(source, ids)
    error = relative_error(run_in_chunks(folder, manifest, ids, [CUT]), wanted)
    assert error < min(EXACT_ERROR, 10 * family.max_error)
    assert family.attention == attention_for(config)
    window = FAMILIES[variant].get("sliding_window") or 0
    mixed = "layer_types" in FAMILIES[variant] or variant == "gemma2"
    assert windows_of(manifest) == ({0, window} if mixed else {window})
    paged = logits_of_stages(folder, "paged", (0, manifest.layer_count), ids, stands_in=not family.paged)
    assert relative_error(paged, wanted) < EXACT_ERROR


@pytest.mark.parametrize("variant", ["gemma3_text", "gpt_oss", "deepseek_v3"])
@pytest.mark.parametrize("engine", ["stateful", "paged", "packed"])
def test_two_stages_compute_what_transformers_computes(
    variant: str, engine: str, exact: Callable[[str], Exact]
) -> None:
    """Two rotary tables, two masks, sinks, and keys and values of unlike sizes survive a cut between stages."""
    source, folder, manifest, _ = exact(variant)
    ids, bounds = random_ids(), (0, manifest.layer_count // 2, manifest.layer_count)
    stands_in = engine == "paged" and not family_of(variant).paged
    found = logits_of_stages(folder, engine, bounds, ids, stands_in=stands_in)
    assert relative_error(found, logits_of_transformers(source, ids)) < EXACT_ERROR


@pytest.mark.parametrize("variant", ["gemma2", "deepseek_v3"])
def test_streams_come_and_go_where_attention_is_in_pieces(variant: str, exact: Callable[[str], Exact]) -> None:
    """The runtime shares memory between the states of such a model, and a reset does not reach all of it."""
    source, folder, manifest, _ = exact(variant)
    ids = random_ids()
    wanted, found = logits_of_transformers(source, ids), []
    stage = load_selected(make_spec(folder, first=0, last=manifest.layer_count, engine="stateful"))[0]
    assert not stage.fused
    for stream, first, count in ((1, 0, 1), (2, 0, 20), (1, 1, 1), (2, 20, 1), (1, 2, 1)):
        stage.step([make_row(stream, first, count)], ids[0, first : first + count])
    for stream in (3, 4):
        stage.release(StreamId(stream - 2))
        found.append(stage.step([make_row(stream, 0, TOKENS, wants=TOKENS)], ids[0]).copy())
    stage.close()
    for logits in found:
        assert relative_error(logits[None], wanted) < EXACT_ERROR


def test_keys_and_values_of_unlike_sizes_are_recorded(exact: Callable[[str], Exact]) -> None:
    attention = exact("deepseek_v3").manifest.layer(0).attention
    assert attention is not None
    assert (attention.kv_heads, attention.k_head_size, attention.v_head_size) == (1, 16, 8)


def test_longrope_keeps_the_frequencies_of_its_context_from_the_first_token_on(
    exact: Callable[[str], Exact],
) -> None:
    source, folder, manifest, _ = exact("phi3-longrope")
    ids = random_ids()
    found = run_in_chunks(folder, manifest, ids[:, :20], [10])
    assert relative_error(found, logits_of_transformers(source, ids)[:, :20]) < EXACT_ERROR
    assert relative_error(found, logits_of_transformers(source, ids[:, :20])) > EXACT_ERROR


def test_longrope_uses_its_short_factors_when_the_context_is_the_original_one(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "model", "phi3-longrope", max_position_embeddings=32)
    manifest, _ = exact_library(source, tmp_path / "out")
    ids = random_ids(32)
    found = run_in_chunks(tmp_path / "out", manifest, ids, [20])
    assert relative_error(found, logits_of_transformers(source, ids)) < EXACT_ERROR


def test_a_context_up_to_the_original_one_gets_the_short_factors_of_longrope(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "model", "phi3-longrope")
    options = BuildOptions(layers="int8_asym", context_tokens=32)
    manifest = build_library(source, tmp_path / "out", options)
    ids = random_ids(32)
    found = run_in_chunks(tmp_path / "out", manifest, ids, [20])
    # The whole model uses the short factors, too, for a text as short as this.
    wanted = logits_of_transformers(source, ids)
    assert np.median(np.abs(found - wanted).max(-1)) < 0.05 * np.abs(wanted).max()
    assert manifest.end_to_end is not None
    assert manifest.end_to_end.fp32_error < EXACT_ERROR


def test_the_table_says_what_was_checked_and_nothing_else() -> None:
    assert [family.name for family in CHECKED] == sorted({variant.partition("-")[0] for variant in FAMILIES})
    for family in CHECKED:
        settings = [value for variant, value in FAMILIES.items() if variant.partition("-")[0] == family.name]
        configs = [AutoConfig.for_model(family.name, **{**SIZES, **one}) for one in settings]
        assert set(family.ropes) == set[str]().union(*map(rope_kinds, configs))
        assert family.sliding == any(one.get("sliding_window") for one in settings)
        assert family.experts == any(key.endswith("_experts") for one in settings for key in one)
        assert family.max_error < EXACT_ERROR


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_a_family_with_another_kind_of_state_is_refused_by_name(kind: str) -> None:
    with pytest.raises(UnknownFamily, match=rf"{kind} cannot be exported yet \(.*state"):
        check_family(AutoConfig.for_model(kind))
    assert kind not in SUPPORTED


def test_a_known_family_with_foreign_layers_is_refused() -> None:
    config = AutoConfig.for_model("qwen3", **SIZES)
    config.layer_types = ["linear_attention", "full_attention"]
    with pytest.raises(UnknownFamily, match="linear_attention"):
        check_family(config)
    # So is an unknown one, with the reason that its config gives away.
    unknown = AutoConfig.for_model("lfm2_moe")
    unknown.layer_types = ["conv", "full_attention"]
    with pytest.raises(UnknownFamily, match=r"lfm2_moe .*its conv layers keep another state"):
        check_family(unknown)


def test_experts_stored_one_by_one_must_be_complete(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "model", "qwen3_moe")
    edit_weights(source, model__layers__0__mlp__experts__1__down_proj__weight=None)
    with pytest.raises(TensorMismatch, match=r"mlp\.experts\.down_proj"):
        exact_library(source, tmp_path / "out")


# A whole build, compressed, of each thing that a plain llama has not; the others take a minute and a half.
QUICK = {"gemma3_text", "gpt_oss", "qwen3_moe"}


@pytest.mark.parametrize(
    "variant", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in sorted(FAMILIES)]
)
def test_a_family_is_built_and_published(variant: str, tmp_path: Path) -> None:
    source, ids = make_checkpoint(tmp_path / "model", variant), random_ids()
    # Eight bits: close enough that a wrong scale, window, norm or rotary table cannot hide behind the compression.
    manifest = build_library(source, tmp_path / "out", BuildOptions(layers="int8_asym"))
    found = run_in_chunks(tmp_path / "out", manifest, ids, [CUT])
    wanted = logits_of_transformers(source, ids)
    # The median token: rounding makes a few tokens of a random router choose other experts.
    assert np.median(np.abs(found - wanted).max(-1)) < 0.05 * np.abs(wanted).max()
    assert manifest.end_to_end is not None
    assert manifest.end_to_end.fp32_error < EXACT_ERROR
    layer = manifest.layer(manifest.layer_count - 1).compression
    assert layer.mode == "int8_asym"
    assert layer.bits_per_weight < 11  # the norms, routers and biases of a tiny model weigh more than a large one's
    assert any("experts" in matrix for matrix in layer.group_sizes) == family_of(variant).experts
    assert not any(matrix.endswith((".gate.weight", ".router.weight")) for matrix in layer.group_sizes)
