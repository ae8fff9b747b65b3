"""What storing costs on the real model: its GGUF blocks kept, and four bits chosen by inputs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from shard_export.build.evaluate import Evaluation, evaluate
from shard_export.build.job import build_library
from shard_export.build.options import BuildOptions
from shard_export.build.texts import EVALUATION, messages_of
from shard_export.cli import main
from shard_export.library.store import verify_library
from tests.support.permuted import write_permuted_llama

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import SampleModel

# int4_asym with 32 columns a group: codes, float16 scales, zero points of four bits.
PLAIN_BITS = 4 + 20 / 32


def source_of(sample: SampleModel) -> Path:
    return sample.folder / sample.file_name


def test_kept_blocks_answer_like_the_file(smollm2_library: Path, smollm2_source: SampleModel) -> None:
    text = "\n\n".join(message["content"] for message in messages_of(EVALUATION[2]))
    found = evaluate(smollm2_library, source_of(smollm2_source), text)
    assert found.positions >= 150
    assert found.layer_mode == "gguf"
    assert found.layer_bits_per_weight <= 1.15 * PLAIN_BITS
    assert found.top1_agreement >= 0.985
    assert found.mean_kl <= 0.003
    manifest = verify_library(smollm2_library)
    assert set(manifest.layer(0).compression.formats.values()) == {"Q4_1"}
    assert set(manifest.unit("embed").compression.formats.values()) == {"Q8_0"}


@pytest.mark.slow
def test_kept_blocks_answer_like_the_file_over_whole_conversations(
    smollm2_library: Path, smollm2_source: SampleModel, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(smollm2_library), "--against", str(source_of(smollm2_source)), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["positions"] >= 500
    assert found["top1_agreement"] >= 0.985
    assert found["mean_kl"] <= 0.003


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_default_four_bits_cost_less_than_plain_ones(smollm2_source: SampleModel, tmp_path: Path) -> None:
    """On a source of sixteen bits that lies on no grid, see `tests.support.permuted`."""
    source = write_permuted_llama(source_of(smollm2_source), tmp_path / "model")
    found: dict[str, Evaluation] = {}
    for name, options in (("default", BuildOptions()), ("plain", BuildOptions(layers="int4_sym", group_size=32))):
        manifest = build_library(source, tmp_path / name, options)
        found[name] = evaluate(tmp_path / name, source)
        assert set(manifest.layer(0).compression.group_sizes.values()) == {32}
        print(name, msgspec.json.encode(found[name]).decode())
    assert found["default"].layer_mode == "int4_gptq"
    assert found["default"].mean_kl <= 0.7 * found["plain"].mean_kl
    assert found["default"].layer_bits_per_weight <= 5.2
