"""Recipes: what each source and wish is stored as, on tiny random models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shard_export.build.evaluate import evaluate
from shard_export.build.job import build_library
from shard_export.build.options import BuildOptions
from shard_export.build.recipes import CHOICES
from shard_export.cli import MODES, main
from shard_export.library.errors import CheckpointError, CompressionError
from tests.support.checkpoints import make_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("models") / "tiny-llama")


def test_plain_numbers_are_rounded_by_inputs(llama: Path, tmp_path: Path) -> None:
    manifest = build_library(llama, tmp_path / "out")
    compression = manifest.layer(1).compression
    assert compression.mode == "int4_gptq"
    assert len(compression.formats) == 7
    assert compression.group_sizes["mlp.down_proj.weight"] == 32
    assert manifest.unit("head").compression.mode == "int8_asym"


def test_rounding_by_inputs_is_closer_than_plain_rounding(llama: Path, tmp_path: Path) -> None:
    ours = build_library(llama, tmp_path / "ours")
    plain = build_library(llama, tmp_path / "plain", BuildOptions(layers="int4_asym"))
    assert ours.end_to_end is not None
    assert plain.end_to_end is not None
    assert ours.end_to_end.mean_kl < plain.end_to_end.mean_kl


def test_a_share_of_eight_bits_goes_to_the_most_sensitive_matrices(llama: Path, tmp_path: Path) -> None:
    manifest = build_library(llama, tmp_path / "out", BuildOptions(int8_ratio=0.4))
    layers = [manifest.layer(index).compression for index in range(2)]
    assert sum(layer.int8_share for layer in layers) / 2 == pytest.approx(0.4, abs=0.05)
    for layer in layers:
        assert layer.mode == "int4_gptq+int8_asym"
        assert {layer.group_sizes[name] for name, kind in layer.formats.items() if kind == "int8_asym"} == {-1}
    plain = build_library(llama, tmp_path / "plain")
    assert plain.layer(0).compression.int8_share == 0
    assert manifest.end_to_end is not None
    assert plain.end_to_end is not None
    assert manifest.end_to_end.mean_kl < plain.end_to_end.mean_kl


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (BuildOptions(layers="gguf"), "no quantized blocks"),
        (BuildOptions(ends="gguf"), "no quantized blocks"),
        (BuildOptions(ends="int4_gptq"), "int8_asym"),
        (BuildOptions(group_size=7), "does not divide"),
        (BuildOptions(layers="int8_asym", int8_ratio=0.2), "--int8-ratio"),
        (BuildOptions(int8_ratio=1.5), "between 0 and 1"),
    ],
)
def test_what_cannot_be_is_refused(llama: Path, tmp_path: Path, options: BuildOptions, words: str) -> None:
    with pytest.raises(CompressionError, match=words):
        build_library(llama, tmp_path / "out", options)
    assert not (tmp_path / "out").exists()


def test_an_evaluation_is_printed_as_a_table(llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_library(llama, tmp_path / "out", BuildOptions(layers="int8_asym"))
    (tmp_path / "text.txt").write_text("Rain fell on the roofs. " * 20)
    command = ["evaluate", str(tmp_path / "out"), "--against", str(llama), "--text", str(tmp_path / "text.txt")]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "480 positions" in printed
    assert "top-1 agreement" in printed
    found = evaluate(tmp_path / "out", llama)
    assert found.positions > 500
    assert found.top1_agreement > 0.9
    assert 0 <= found.mean_kl < 0.01
    with pytest.raises(CheckpointError, match="too short"):
        evaluate(tmp_path / "out", llama, "a")


def test_the_command_offers_every_recipe() -> None:
    assert set(MODES) == set(CHOICES)
