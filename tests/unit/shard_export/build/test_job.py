"""Whole builds of tiny random models, right and wrong."""

from __future__ import annotations

import errno
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from shard_export.build import making
from shard_export.build.job import build_library
from shard_export.build.making import UnitMaker
from shard_export.build.options import BuildOptions
from shard_export.library import errors, estimates
from shard_export.library.events import BuildEvent, BuildFailed, BuildPublished, BuildStarted, LayerDone
from shard_export.library.store import verify_library, work_folder_of
from tests.support.checkpoints import edit_config, edit_weights, make_checkpoint


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture
def source(llama: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(llama, tmp_path / "tiny-llama"))


def assert_refused(source: Path, error: type[errors.ExportError], *words: str, **options: Any) -> None:
    """Build, expect that error naming those words, and expect that nothing is left."""
    out = source.parent / "out"
    events: list[BuildEvent] = []
    with pytest.raises(error) as caught:
        build_library(source, out, BuildOptions(**options), events.append)
    sentence = str(caught.value)
    assert "\n" not in sentence
    for word in words:
        assert word in sentence
    assert isinstance(events[-1], BuildFailed)
    assert events[-1].message == sentence
    assert not out.exists()
    assert not work_folder_of(out).exists()


def test_a_build_reports_and_records_what_it_did(llama: Path, tmp_path: Path) -> None:
    events: list[BuildEvent] = []
    manifest = build_library(llama, tmp_path / "out", on_event=events.append)
    assert manifest == verify_library(tmp_path / "out")
    assert [type(event) for event in events] == [BuildStarted, LayerDone, LayerDone, BuildPublished]
    layer = manifest.layer(1)
    assert layer.compression.mode == "int4_gptq"
    assert layer.compression.group_sizes["mlp.down_proj.weight"] == 32
    assert 4.5 < layer.compression.bits_per_weight < 5.5
    assert layer.parity is not None
    assert layer.parity.fp32_error < 1e-4 < layer.parity.compressed_error
    assert layer.attention is not None
    assert (layer.attention.kv_heads, layer.attention.k_head_size, layer.attention.rope) == (2, 16, "rope-full")
    assert manifest.unit("embed").compression.mode == "int8_asym"
    assert manifest.unit("rope-full").compression.mode == "none"
    assert manifest.end_to_end is not None
    assert manifest.end_to_end.positions == 192
    assert manifest.tokens.eos_ids == [257]
    assert manifest.tokens.chat_template_path == "tokenizer/chat_template.jinja"
    assert not manifest.tokens.adds_bos


def test_the_same_source_gives_the_same_bytes_sharded_or_not(llama: Path, tmp_path: Path) -> None:
    sharded = make_checkpoint(tmp_path / "sharded" / "tiny-llama", shard_bytes=60_000)
    assert len(list(sharded.glob("*.safetensors"))) > 2
    first = build_library(llama, tmp_path / "one")
    second = build_library(sharded, tmp_path / "two")
    assert first.files() == second.files()


def test_a_model_in_sixteen_bits_is_read_as_it_is(source: Path) -> None:
    weight = torch.randn(64, 64).to(torch.bfloat16)
    edit_weights(source, model__layers__0__self_attn__q_proj__weight=weight)
    build_library(source, source.parent / "out")


def test_all_end_ids_are_kept(source: Path) -> None:
    (source / "generation_config.json").write_text(json.dumps({"eos_token_id": [257, 10]}))
    edit_config(source, eos_token_id=[257, 11])
    assert build_library(source, source.parent / "out").tokens.eos_ids == [10, 11, 257]


def test_the_context_can_be_shortened(llama: Path, tmp_path: Path) -> None:
    manifest = build_library(llama, tmp_path / "out", BuildOptions(context_tokens=128))
    assert manifest.context_tokens == 128
    assert manifest.end_to_end is not None
    assert manifest.end_to_end.highest_position == 127
    for wish in (257, 8):
        with pytest.raises(errors.CheckpointError, match="context of 256 tokens"):
            build_library(llama, tmp_path / "other", BuildOptions(context_tokens=wish))


def test_symmetric_and_eight_bit_layers_are_recorded_as_applied(llama: Path, tmp_path: Path) -> None:
    for mode, bits in (("int4_sym", 4.25), ("int8_asym", 8.0)):
        manifest = build_library(llama, tmp_path / mode, BuildOptions(layers=mode, group_size=None))  # type: ignore[arg-type]
        assert manifest.layer(0).compression.mode == mode
        assert manifest.layer(0).compression.bits_per_weight >= bits


def test_a_missing_tensor_is_named(source: Path) -> None:
    edit_weights(source, model__layers__1__mlp__up_proj__weight=None)
    assert_refused(source, errors.TensorMismatch, "model.layers.1.mlp.up_proj.weight")


def test_a_left_over_tensor_is_named(source: Path) -> None:
    edit_weights(source, model__layers__1__mlp__extra__weight=torch.zeros(3))
    assert_refused(source, errors.TensorMismatch, "model.layers.1.mlp.extra.weight")


def test_a_misshapen_tensor_is_named(source: Path) -> None:
    edit_weights(source, model__layers__0__mlp__up_proj__weight=torch.zeros(95, 64))
    assert_refused(source, errors.TensorMismatch, "model.layers.0.mlp.up_proj.weight", "[95, 64]", "[96, 64]")


def test_a_tensor_that_is_computed_anyway_is_ignored_with_the_reason(source: Path) -> None:
    edit_weights(source, model__layers__0__self_attn__rotary_emb__inv_freq=torch.zeros(8))
    events: list[BuildEvent] = []
    build_library(source, source.parent / "out", on_event=events.append)
    assert isinstance(events[0], BuildStarted)
    assert list(events[0].ignored_tensors) == ["model.layers.0.self_attn.rotary_emb.inv_freq"]


def test_weights_that_are_not_finite_are_refused(source: Path) -> None:
    edit_weights(source, model__layers__0__mlp__up_proj__weight=torch.full((96, 64), float("nan")))
    assert_refused(source, errors.CheckpointError, "mlp.up_proj.weight", "not finite")


def test_a_torn_weights_file_is_named(source: Path) -> None:
    path = source / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    assert_refused(source, errors.CheckpointTorn, "model.safetensors")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(source: Path, name: str) -> None:
    (source / name).unlink()
    assert_refused(source, errors.CheckpointTorn, name)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json"])
def test_a_garbled_file_is_reported(source: Path, name: str) -> None:
    (source / name).write_text("{ nothing")
    assert_refused(source, errors.CheckpointTorn)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "sharded", shard_bytes=60_000)
    shard = sorted(source.glob("model-*.safetensors"))[1]
    shard.unlink()
    assert_refused(source, errors.CheckpointTorn, shard.name)


@pytest.mark.parametrize("kind", ["mamba", "no_such_family"])
def test_an_unknown_family_is_named_with_what_is_supported(source: Path, kind: str) -> None:
    edit_config(source, model_type=kind)
    assert_refused(source, errors.UnknownFamily, kind, "qwen3")


def test_a_quantized_checkpoint_is_refused(source: Path) -> None:
    edit_config(source, quantization_config={"quant_method": "awq"})
    assert_refused(source, errors.CheckpointError, "already quantized")


def test_a_group_size_that_does_not_divide_is_refused_before_any_work(source: Path) -> None:
    assert_refused(source, errors.CompressionError, "48", "64 input columns", group_size=48)


def test_a_source_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"x")
    assert_refused(tmp_path / "model.bin", errors.CheckpointError, "model.bin")
    assert_refused(tmp_path / "nothing", errors.CheckpointTorn, "nothing")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF but no more")
    assert_refused(tmp_path / "bad.gguf", errors.CheckpointTorn, "bad.gguf")


def test_a_unit_that_computes_something_else_is_not_published(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = UnitMaker._trace

    def spoiled(self: Any, layer: Any, call: Any, rope: int) -> Any:
        model = original(self, layer, call, rope)
        norm = layer.post_attention_layernorm
        # Replaced, not changed in place: the traced unit reads its constants from the layer's memory.
        norm.weight = torch.nn.Parameter(norm.weight * 1.01, requires_grad=False)
        return model

    monkeypatch.setattr(UnitMaker, "_trace", spoiled)
    assert_refused(source, errors.ParityFailed, "layer-000")


def test_a_disk_that_fills_up_leaves_nothing(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_args: Any, **_options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(making, "write_unit", no_room)
    assert_refused(source, errors.DiskFull, "free some space")


def test_too_small_a_disk_is_refused_at_the_start(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(source)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1000))
    assert_refused(source, errors.DiskFull, "needs about")


def test_too_little_memory_is_refused_at_the_start(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "BASE_MEMORY_BYTES", 1 << 60)
    assert_refused(source, errors.MemoryShort, "GB of memory", "close other programs")


def test_a_build_that_is_cancelled_at_the_start_leaves_nothing(source: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(errors.BuildCancelled, match="nothing of it is kept"):
        build_library(source, source.parent / "out", cancel=cancel)
    assert sorted(path.name for path in source.parent.iterdir()) == ["tiny-llama"]


def test_an_existing_library_is_kept_unless_replacing_is_asked_for(llama: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = build_library(llama, out)
    with pytest.raises(errors.LibraryExists):
        build_library(llama, out)
    assert verify_library(out) == first
    replaced = build_library(llama, out, BuildOptions(layers="int8_asym", replace=True))
    assert verify_library(out) == replaced != first


def test_a_folder_that_is_no_library_is_never_replaced(llama: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letters.txt").write_text("dear")
    with pytest.raises(errors.LibraryExists):
        build_library(llama, tmp_path / "out", BuildOptions(replace=True))
    assert (tmp_path / "out" / "letters.txt").read_text() == "dear"


def test_what_a_killed_build_left_is_cleared_away(llama: Path, tmp_path: Path) -> None:
    left = work_folder_of(tmp_path / "out") / "library" / "units"
    left.mkdir(parents=True)
    (left / "999.bin").write_bytes(b"stale")
    build_library(llama, tmp_path / "out")
    verify_library(tmp_path / "out")
    assert not left.exists()
