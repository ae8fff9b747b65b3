"""Planted errors: the traced side is made wrong, transformers' side stays right, and the gate must refuse."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from shard_export.build import making, parity
from shard_export.build.job import build_library
from shard_export.build.judging import check, check_finite, compare_logits, relative_error
from shard_export.build.making import UnitMaker
from shard_export.build.parity import Gate, late_position
from shard_export.build.reference import check_masks, positions_to_check
from shard_export.build.skeleton import Skeleton
from shard_export.checkpoint.source import open_checkpoint
from shard_export.library import graph
from shard_export.library.errors import CompressionError, ExportError, ParityFailed
from tests.support.checkpoints import edit_weights, make_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LLAMA3 = "llama-llama3-rope"
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}


@contextlib.contextmanager
def changed(owner: Any, **values: Any) -> Iterator[None]:
    """Give attributes other values for a while."""
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def plant(monkeypatch: pytest.MonkeyPatch, name: str, error: Callable[[Any], Any]) -> None:
    """Let `making.trace_<name>` run inside the context manager `error(skeleton)`."""
    original = getattr(making, f"trace_{name}")

    def spoiled(skeleton: Any, *arguments: Any) -> Any:
        with error(skeleton):
            return original(skeleton, *arguments)

    monkeypatch.setattr(making, f"trace_{name}", spoiled)


def plant_in_layer(monkeypatch: pytest.MonkeyPatch, error: Callable[[Any], Any]) -> None:
    """Let layers be traced and filled inside the context manager `error(layer)`."""
    for step in ("_prepare", "_trace"):
        original = getattr(UnitMaker, step)

        def spoiled(self: Any, layer: Any, call: Any, rope: int, original: Any = original) -> Any:
            with error(layer):
                return original(self, layer, call, rope)

        monkeypatch.setattr(UnitMaker, step, spoiled)


@contextlib.contextmanager
def changed_weight(module: torch.nn.Module, change: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Change a copy of a module's weight for a while."""
    real = module.weight
    weight = real.detach().clone()
    change(weight)
    module.weight = torch.nn.Parameter(weight, requires_grad=False)
    try:
        yield
    finally:
        module.weight = real


def assert_refused(source: Path, what: str, error: type[ExportError] = ParityFailed) -> None:
    out = source.parent / "out"
    with pytest.raises(error, match=what):
        build_library(source, out)
    assert not out.exists()


def plain_frequencies(rotary: Any, theta: float) -> torch.Tensor:
    count = rotary.inv_freq.shape[0]
    return 1.0 / theta ** (torch.arange(count) / count)


def rotary(**changes: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make an error in the rotary module: each change is computed from the module."""

    def error(skeleton: Any) -> Any:
        module = skeleton.model.model.rotary_emb
        return changed(module, **{name: change(module) for name, change in changes.items()})

    return error


ROPE_ERRORS: dict[str, tuple[dict[str, Any], Callable[[Any], Any]]] = {
    "scaling dropped": ({"family": LLAMA3}, rotary(inv_freq=lambda module: plain_frequencies(module, 10000.0))),
    "theta from the wrong place": (
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
        rotary(inv_freq=lambda module: plain_frequencies(module, 10000.0)),
    ),
    "yarn's attention factor dropped": ({"rope_parameters": YARN}, rotary(attention_scaling=lambda _: 1.0)),
    "what shows only late": (
        {"max_position_embeddings": 8192},
        # A thousandth in the slowest frequency: 3e-5 in the first hundred positions.
        rotary(inv_freq=lambda module: module.inv_freq * torch.tensor([1.0] * 7 + [1.001])),
    ),
}


@pytest.mark.parametrize("name", sorted(ROPE_ERRORS))
def test_an_error_in_the_rope_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, error = ROPE_ERRORS[name]
    source = make_checkpoint(tmp_path / "model", **settings)
    plant(monkeypatch, "rope", error)
    assert_refused(source, "rotary tables 0")


def test_rope_errors_of_the_skeleton_itself_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Skeleton._probe_kinds

    def spoiled(self: Any) -> Any:
        self.model.model.rotary_emb.inv_freq = plain_frequencies(self.model.model.rotary_emb, 10000.0)
        return original(self)

    monkeypatch.setattr(Skeleton, "_probe_kinds", spoiled)
    assert_refused(make_checkpoint(tmp_path / "model", LLAMA3), "rotary tables 0")


def loud(source: Path) -> Path:
    """Make the hidden states of a checkpoint so large that an epsilon is nothing beside them."""
    tensors = load_file(str(source / "model.safetensors"))
    edit_weights(source, model__embed_tokens__weight=tensors["model.embed_tokens.weight"] * 200)
    return source


def test_an_epsilon_ten_times_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = loud(make_checkpoint(tmp_path / "model", rms_norm_eps=1e-6))
    plant_in_layer(monkeypatch, lambda layer: changed(layer.input_layernorm, variance_epsilon=1e-5))
    assert_refused(source, "layer-000")
    # It takes the quiet tokens to see it.
    monkeypatch.setattr(parity, "QUIET_SIZE", 10.0)
    build_library(source, tmp_path / "out")


def test_an_epsilon_ten_times_too_large_in_the_head_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = loud(make_checkpoint(tmp_path / "model", rms_norm_eps=1e-6))
    plant(monkeypatch, "head", lambda skeleton: changed(skeleton.model.model.norm, variance_epsilon=1e-5))
    assert_refused(source, "head")


def test_one_head_whose_keys_are_permuted_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def permute(weight: torch.Tensor) -> None:
        weight[:16] = weight[:16].flip(0)

    plant_in_layer(monkeypatch, lambda layer: changed_weight(layer.self_attn.k_proj, permute))
    assert_refused(make_checkpoint(tmp_path / "model"), "layer-000")


def test_a_scale_of_the_embedding_that_is_dropped_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "embed", lambda skeleton: changed(skeleton.model.model, embedding_multiplier=1.0))
    assert_refused(make_checkpoint(tmp_path / "model", "granite"), "embed")


def test_a_softcap_of_the_logits_that_is_dropped_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Random logits are small, so the cap is, too; real ones reach it by themselves.
    source = make_checkpoint(tmp_path / "model", "gemma2", final_logit_softcapping=2.0)
    plant(monkeypatch, "head", lambda skeleton: changed(skeleton.model.config, final_logit_softcapping=None))
    assert_refused(source, "head")


def test_a_softcap_of_the_attention_that_is_dropped_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_checkpoint(tmp_path / "model", "gemma2", attn_logit_softcapping=0.05)
    plant_in_layer(monkeypatch, lambda layer: changed(layer.self_attn, attn_logit_softcapping=None))
    assert_refused(source, "layer-000")


@pytest.mark.parametrize("window", [16, 128])
def test_a_window_off_by_one_is_refused(window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_checkpoint(tmp_path / "model", "mistral", sliding_window=window)
    original = Skeleton._probe_kinds
    for step in (-1, 1):
        with monkeypatch.context() as patch:
            patch.setattr(
                Skeleton, "_probe_kinds", lambda self, step=step: [(rope, w + step) for rope, w in original(self)]
            )
            assert_refused(source, f"Layer 0 would see other tokens .*window {window + step}")


def test_a_stage_mask_off_by_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = graph._mask_4d
    monkeypatch.setattr(graph, "_mask_4d", lambda mask, positions, window: original(mask, positions, window + 1))
    assert_refused(make_checkpoint(tmp_path / "model", "mistral"), "Layer 0 would see other tokens")


@pytest.mark.parametrize(
    ("module", "error"), [("input_layernorm", ParityFailed), ("mlp.up_proj", CompressionError | ParityFailed)]
)
def test_a_weight_that_becomes_no_number_is_refused(
    module: str, error: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(weight: torch.Tensor) -> None:
        weight.view(-1)[3] = float("nan")

    plant_in_layer(monkeypatch, lambda layer: changed_weight(layer.get_submodule(module), spoil))
    with pytest.raises(ExportError) as caught:
        build_library(make_checkpoint(tmp_path / "model"), tmp_path / "out")
    assert isinstance(caught.value, error)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_never_passes(value: float) -> None:
    good = np.ones((2, 3, 4), np.float32)
    bad = good.copy()
    bad[1, 2, 3] = value
    for found, wanted in ((bad, good), (good, bad), (bad, bad), (good, good[:1])):
        assert relative_error(found, wanted) == float("inf")
    for refuse in (check, check_finite):
        with pytest.raises(ParityFailed):
            refuse(value, "unit")
    with pytest.raises(ParityFailed):
        compare_logits(good, good, bad)
    with pytest.raises(ParityFailed):
        compare_logits(good, bad, good)


@pytest.mark.parametrize(("context", "first", "last"), [(256, 160, 255), (4096, 4000, 4095), (131072, 8096, 8191)])
def test_late_positions_pass_four_thousand_where_the_context_allows(context: int, first: int, last: int) -> None:
    assert late_position(context, 96) == first
    assert first + 96 - 1 == last


def test_rope_positions_cover_the_context_and_the_edges_of_scaling(tmp_path: Path) -> None:
    original = 2048
    yarn = {**YARN, "original_max_position_embeddings": original}
    source = make_checkpoint(tmp_path / "model", rope_parameters=yarn, max_position_embeddings=8192)
    skeleton = Skeleton(open_checkpoint(source))
    positions = positions_to_check(skeleton, 96).tolist()
    assert {0, original - 1, original, original + 1, 4000, 8191} <= set(positions)
    assert positions == sorted(set(positions))
    gate = Gate(skeleton, [1, 2, 3])
    assert int(gate.position_ids.max()) == 8191
    assert int(gate.position_ids[1].min()) >= 4000


def test_a_window_of_thousands_is_compared_at_its_real_edge(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "model", "mistral", sliding_window=4096, max_position_embeddings=32768)
    skeleton = Skeleton(open_checkpoint(source))
    check_masks(skeleton)
    skeleton.kinds = [(rope, window - 1) for rope, window in skeleton.kinds]
    with pytest.raises(ParityFailed, match="window 4095"):
        check_masks(skeleton)
