"""The real model: its library, and the folder openvino_genai loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import openvino_genai
import pytest

from agent.stage.engines import load
from agent.stage.engines.options import EXACT
from shard_export.cli import main
from shard_export.library.store import verify_library
from tests.support.stage import make_row, make_spec

if TYPE_CHECKING:
    from pathlib import Path

    from agent.stage.types import EngineName


def test_the_library_is_whole_and_says_what_it_costs(smollm2_library: Path) -> None:
    manifest = verify_library(smollm2_library)
    assert manifest.layer_count == 30
    assert manifest.end_to_end is not None
    assert manifest.end_to_end.fp32_error < 1e-4
    assert manifest.end_to_end.highest_position >= 4000
    assert manifest.tokens.texts_compared > 20
    assert manifest.end_to_end.top1_agreement > 0.6
    assert manifest.end_to_end.mean_kl < 0.5


def test_the_assembled_folder_answers_in_openvino_genai(smollm2_library: Path, tmp_path: Path) -> None:
    assert main(["assemble", str(smollm2_library), str(tmp_path / "whole")]) == 0
    # As exactly as it can: by itself it rounds activations on some processors, and a small model answers worse there.
    pipeline = openvino_genai.LLMPipeline(str(tmp_path / "whole"), "CPU", **EXACT)
    assert "Paris" in str(pipeline.generate("What is the capital of France?", max_new_tokens=24))


@pytest.mark.parametrize("engine", ["paged", "stateful"])
def test_a_stage_with_split_zero_points_is_fused_and_computes_the_same(
    engine: EngineName, smollm2_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = np.random.default_rng(1).standard_normal((6, 576)).astype(np.float32)
    found = []
    for split in (False, True):
        # Whether the processor at hand would want it must not decide what is tested.
        monkeypatch.setattr("agent.stage.engines.library.quantizes_activations", lambda *_, split=split: split)
        stage = load(make_spec(smollm2_library, first=27, last=30, engine=engine))
        assert stage.fused
        found.append(stage.step([make_row(1, 0, 6, wants=6)], hidden).copy())
        stage.close()
    assert not np.array_equal(found[0], found[1])
    assert np.abs(found[0] - found[1]).max() < 1e-3 * np.abs(found[0]).max()
