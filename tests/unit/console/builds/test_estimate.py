"""The estimate of a build beside the exporter's own, and what is read off checkpoints for it."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from console.api.admin import build_types
from console.api.admin.build_types import BuildRequest
from console.builds import checkpoints, estimate
from console.builds.checkpoints import CheckpointFacts, look_at
from console.builds.exporter import build_arguments
from console.builds.gguf_header import HeaderBad, read_gguf_header
from console.errors import BuildRefused
from shard_export import cli
from shard_export.build import options as their_options
from shard_export.library.estimates import BITS, BITS_IN_EIGHT, estimate_build
from tests.conftest import SampleModel
from tests.support.builds import make_played_checkpoint

REQUEST = BuildRequest(source="/s", out="/o")
FACTS = CheckpointFacts("toy", "llama", 100, [1000, 3000], 3900, 800)


def test_a_build_needs_what_its_largest_unit_all_weights_and_the_recipe_say() -> None:
    needs = estimate.needs_of(FACTS, REQUEST, 2)
    library_bytes = 3900 * BITS["int4_gptq"] / 8 + 100 * 4 + 800 * BITS_IN_EIGHT / 8
    said = estimate_build(weights=4800, largest_unit=3000, library_bytes=library_bytes, cores=2)
    assert (needs.memory_bytes, needs.library_bytes, needs.seconds) == said
    assert needs.evaluate_memory_bytes > needs.library_bytes + 4 * 4800


def test_modes_and_options_are_the_exporters() -> None:
    assert build_types.LayerMode.__args__ == cli.MODES  # type: ignore[attr-defined]  # of a Literal
    assert build_types.EndMode.__args__ == cli.END_MODES  # type: ignore[attr-defined]  # of a Literal
    full = BuildRequest(
        source="/s", out="/o", layers="int8_asym", ends="int4_asym", group_size=64, int8_ratio=0.25, context=512,
        replace=True,
    )  # fmt: skip
    parsed = cli._parser().parse_args(["build", *build_arguments(full, "/target")])
    assert (parsed.layers, parsed.ends, parsed.group_size, parsed.int8_ratio) == ("int8_asym", "int4_asym", 64, 0.25)
    assert (parsed.context, parsed.role, parsed.target, parsed.force) == (512, "draft", Path("/target"), True)
    assert their_options.BuildOptions().layers == REQUEST.layers


def test_eight_bits_and_a_share_of_them_take_more_room() -> None:
    asked = (
        BuildRequest(source="/s", out="/o", layers="int4_sym"),
        BuildRequest(source="/s", out="/o", layers="int4_sym", int8_ratio=0.5),
        BuildRequest(source="/s", out="/o", layers="int8_asym"),
    )
    sizes = [estimate.needs_of(FACTS, one, 1).library_bytes for one in asked]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 3


def test_a_folder_of_safetensors_is_read_by_its_headers(tmp_path: Path) -> None:
    facts = look_at(make_played_checkpoint(tmp_path / "toy", layers=3, width=8))
    assert facts == CheckpointFacts("toy", "llama", facts.size_bytes, [72, 72, 72], 192, 512)
    assert (facts.weights, facts.largest_unit) == (728, 256)


def test_pytorch_files_are_judged_by_their_size(tmp_path: Path) -> None:
    folder = make_played_checkpoint(tmp_path / "toy", layers=2, width=8)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(bytes(2 * (512 + 2 * 72)))
    assert look_at(folder).layers == [72, 72]


def test_a_gguf_file_is_read_by_its_head(smollm2_source: SampleModel) -> None:
    facts = look_at(smollm2_source.folder / smollm2_source.file_name)
    assert (facts.family, len(facts.layers), facts.ends) == ("llama", 30, 2 * 49152 * 576)
    assert 134e6 < facts.weights - facts.ends // 2 < 135.5e6
    assert [round(bits, 1) for bits, _ in facts.block_bits] == [5.0]
    assert sum(weights for _, weights in facts.block_bits) == facts.matrices


def test_torn_and_odd_files_are_refused_in_a_sentence(tmp_path: Path) -> None:
    folder = make_played_checkpoint(tmp_path / "toy")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for data in (b"", b"\xff" * 8, struct.pack("<Q", 50), whole[:40], whole.replace(b"[32,", b'"x",')):
        weights.write_bytes(data)
        with pytest.raises(BuildRefused, match=r"cannot be read \(.*\); download or copy it again"):
            look_at(folder)
    weights.write_bytes(whole)
    (folder / "config.json").write_text("[1]")
    with pytest.raises(BuildRefused, match="no JSON object"):
        look_at(folder)


def test_a_gguf_head_that_lies_about_sizes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    text = struct.pack("<Q", 20) + b"general.architecture"
    huge = struct.pack("<Q", 1 << 60)
    for data in (
        b"PK00",
        b"GGUF",
        b"GGUF" + struct.pack("<IQQ", 3, 1 << 40, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + huge,
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text + struct.pack("<I", 99),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text + struct.pack("<I", 9) + struct.pack("<I", 4) + huge,
        b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text + struct.pack("<I", 1) + struct.pack("<QIQ", 4, 0, 1 << 40),
    ):
        path.write_bytes(data)
        with pytest.raises(HeaderBad):
            read_gguf_header(path)
    assert re.match(r".*\.gguf cannot be read \(it ends before", refused(path))
    assert checkpoints.is_checkpoint(tmp_path) is False


def refused(path: Path) -> str:
    with pytest.raises(BuildRefused) as caught:
        look_at(path)
    return str(caught.value)
