"""The real model: its library, and the folder openvino_genai loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import openvino_genai

from shard_export.cli import main
from shard_export.library.store import verify_library

if TYPE_CHECKING:
    from pathlib import Path


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
    pipeline = openvino_genai.LLMPipeline(str(tmp_path / "whole"), "CPU")
    assert "Paris" in str(pipeline.generate("What is the capital of France?", max_new_tokens=24))
