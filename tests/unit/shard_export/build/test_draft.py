"""A draft whose tokens are not its target's is refused before it costs time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from shard_export.build.job import build_library
from shard_export.build.options import BuildOptions
from shard_export.cli import main
from shard_export.library import errors
from tests.support.checkpoints import make_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = BuildOptions(layers="int8_asym", ends="int8_asym")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    build_library(make_checkpoint(folder / "model"), folder / "library", PLAIN)
    return folder / "library"


def draft(folder: Path, *, spoil: bool = False, vocab_size: int = 300) -> Path:
    """Make a smaller model of the target's vocabulary, or almost."""
    source = make_checkpoint(folder / "draft", num_hidden_layers=1, vocab_size=vocab_size)
    if spoil:
        path = source / "tokenizer.json"
        content = json.loads(path.read_text())
        vocabulary = content["model"]["vocab"]
        one, other = list(vocabulary)[:2]
        vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
        path.write_text(json.dumps(content))
    return source


def build(source: Path, target: Path) -> int:
    out = source.parent / "out"
    return main(["build", str(source), str(out), "--role", "draft", "--target", str(target), "--json-events"])


def test_a_draft_of_the_same_vocabulary_is_built_and_marked(target: Path, tmp_path: Path) -> None:
    assert build(draft(tmp_path, vocab_size=320), target) == 0
    assert json.loads((tmp_path / "out" / "manifest.json").read_bytes())["role"] == "draft"


def test_a_draft_whose_tokens_have_other_ids_is_refused(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(draft(tmp_path, spoil=True), target) == errors.CheckpointError.exit_code
    assert "does not fit model: token 0" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_draft_and_its_target_are_named_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", str(tmp_path), str(tmp_path / "out"), "--role", "draft"]) == 1
    assert "--target LIB" in capsys.readouterr().err
