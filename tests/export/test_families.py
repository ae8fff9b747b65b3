"""Every supported family: a tiny random model, exported, against transformers' own whole model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov
import pytest
import torch
from transformers import AutoModelForCausalLM

from shard_export.build.job import BuildOptions, build_library
from shard_export.checkpoint.families import SUPPORTED
from shard_export.library.graph import assemble
from tests.support.checkpoints import FAMILIES, make_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = 48


def logits_of_library(folder: Path, manifest: Any, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Run the assembled library in two chunks through its cache."""
    model = assemble(folder, manifest, 0, manifest.layer_count)
    request = (
        ov.Core()
        .compile_model(
            model,
            "CPU",
            {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0},
        )
        .create_infer_request()
    )
    chunks = []
    for first, last in ((0, 30), (30, TOKENS)):
        inputs = {
            "input_ids": ids[:, first:last],
            "attention_mask": np.ones((1, last), np.int64),
            "position_ids": np.arange(first, last, dtype=np.int64)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        chunks.append(request.infer(inputs)["logits"].copy())
    return np.concatenate(chunks, 1)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_family_computes_what_transformers_computes(family: str, tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "model", family)
    # Eight bits: close enough that a wrong scale, window, norm or rotary table cannot hide behind the compression.
    manifest = build_library(source, tmp_path / "out", BuildOptions(layers="int8_asym"))
    ids = np.random.default_rng(0).integers(0, 256, (1, TOKENS))
    with torch.no_grad():
        model = AutoModelForCausalLM.from_pretrained(str(source), dtype=torch.float32).eval()
        wanted = model(torch.from_numpy(ids), use_cache=False).logits.numpy()
    found = logits_of_library(tmp_path / "out", manifest, ids)
    assert manifest.end_to_end is not None
    assert manifest.end_to_end.fp32_error < 1e-4
    assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()
    window = FAMILIES[family].get("sliding_window") or 0
    assert {layer.attention.window_tokens for layer in manifest.units if layer.attention} == {window}


def test_every_supported_family_is_checked() -> None:
    assert {family.split("-")[0] for family in FAMILIES} == set(SUPPORTED)
