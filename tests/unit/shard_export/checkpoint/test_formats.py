"""Weights in PyTorch files and in 8-bit floating point: the same library as from plain safetensors, or a refusal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGUFWriter, TokenType
from safetensors.torch import load_file, save_file

from shard_export.build.job import build_library
from shard_export.build.options import BuildOptions
from shard_export.checkpoint import safetensors
from shard_export.checkpoint.gguf import GgufCheckpoint
from shard_export.checkpoint.scales import scaled
from shard_export.checkpoint.source import open_checkpoint
from shard_export.library import errors
from shard_export.library.events import BuildEvent, BuildStarted
from tests.support.checkpoints import edit_config, make_checkpoint

PLAIN = BuildOptions(layers="int8_asym", ends="int8_asym")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture
def source(llama: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(llama, tmp_path / "tiny-llama"))


def into_bin(source: Path, **more: Any) -> Path:
    """Move the weights into a PyTorch file."""
    weights = source / "model.safetensors"
    torch.save({**load_file(str(weights)), **more}, source / "pytorch_model.bin")
    weights.unlink()
    return source


def into_fp8(source: Path, suffix: str = "_scale_inv", block: int = 32) -> Path:
    """Store the layers' matrices in 8 bits with a scale per block; the config says so."""
    path = source / "model.safetensors"
    tensors = load_file(str(path))
    for name in [name for name, tensor in tensors.items() if ".layers." in name and tensor.ndim == 2]:
        weight = tensors[name]
        rows, columns = -(-weight.shape[0] // block), -(-weight.shape[1] // block)
        # Powers of two, so that nothing but the 8 bits themselves is lost.
        scale = torch.exp2(torch.arange(rows * columns).reshape(rows, columns) % 3 - 8.0)
        wide = scale.repeat_interleave(block, 0)[: weight.shape[0]].repeat_interleave(block, 1)[:, : weight.shape[1]]
        tensors[name] = (weight / wide).clamp(-440, 440).to(torch.float8_e4m3fn)
        tensors[name + suffix] = scale
    save_file(tensors, str(path), metadata={"format": "pt"})
    edit_config(source, quantization_config={"quant_method": "fp8", "weight_block_size": [block, block]})
    return source


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_large_tensors_are_read_in_parts_and_maps_let_go(
    kind: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("model.layers.0.mlp.up_proj.weight", "model.norm.weight")
    wanted = load_file(str(source / "model.safetensors"))
    checkpoint = open_checkpoint(source if kind == "safetensors" else into_bin(source))
    opened: list[Path] = []
    original = checkpoint._map  # type: ignore[attr-defined]  # both formats have it

    def watched(path: Path) -> Any:
        opened.append(path)
        return original(path)

    monkeypatch.setattr(checkpoint, "_map", watched)
    monkeypatch.setattr(safetensors, "_SLICE_ELEMENTS", 1000)
    monkeypatch.setattr(safetensors, "_MAPPED_BYTES", 8000)
    for name in names:
        assert torch.equal(checkpoint.tensor(name), wanted[name])
    assert len(opened) >= 2
    checkpoint.close()


def test_a_bin_only_checkpoint_gives_the_same_library(llama: Path, source: Path, tmp_path: Path) -> None:
    into_bin(source)
    # Trainers leave such a file beside the weights; it is no weights and may hold code.
    (source / "training_args.bin").write_bytes(b"not to be opened")
    wanted = build_library(llama, tmp_path / "wanted", PLAIN)
    assert build_library(source, tmp_path / "out", PLAIN).files() == wanted.files()


def test_training_arguments_alone_are_not_taken_for_weights(source: Path) -> None:
    (source / "model.safetensors").rename(source / "training_args.bin")
    with pytest.raises(errors.CheckpointTorn, match=r"neither model\.safetensors nor"):
        open_checkpoint(source)


class Spy:
    """Unpickling this would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.write_text, (self.path, "was run")


def test_code_in_a_bin_file_is_never_run(source: Path, tmp_path: Path) -> None:
    into_bin(source, spy=Spy(tmp_path / "ran"))
    with pytest.raises(errors.CheckpointError, match="never run"):
        open_checkpoint(source)
    assert not (tmp_path / "ran").exists()


def test_a_torn_bin_file_is_named(source: Path) -> None:
    path = into_bin(source) / "pytorch_model.bin"
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(errors.CheckpointTorn, match=r"pytorch_model\.bin"):
        open_checkpoint(source)


@pytest.mark.parametrize("suffix", ["_scale_inv", "_scale"])
def test_an_8_bit_source_is_dequantized_with_its_block_scales_and_said_so(suffix: str, source: Path) -> None:
    plain = load_file(str(source / "model.safetensors"))
    into_fp8(source, suffix)
    checkpoint = open_checkpoint(source)
    name = "model.layers.1.mlp.up_proj.weight"
    assert torch.allclose(checkpoint.tensor(name), plain[name], rtol=0.07, atol=1e-3)
    checkpoint.close()
    events: list[BuildEvent] = []
    build_library(source, source.parent / "out", PLAIN, events.append)
    assert isinstance(events[0], BuildStarted)
    assert "8 bits" in " ".join(events[0].notes)


def test_an_8_bit_weight_with_an_unknown_scale_is_refused_before_any_work(source: Path) -> None:
    into_fp8(source, "_magnitude")
    with pytest.raises(errors.CheckpointError, match="_magnitude"):
        build_library(source, source.parent / "out", PLAIN)
    assert not (source.parent / "out").exists()


@pytest.mark.parametrize("method", ["awq", "gptq", "bitsandbytes", "mxfp4"])
def test_an_integer_quantized_source_is_not_quantized_twice(method: str, source: Path) -> None:
    edit_config(source, quantization_config={"quant_method": method})
    with pytest.raises(errors.CheckpointError, match="already quantized"):
        open_checkpoint(source)


def test_scales_come_for_a_matrix_a_row_or_a_block() -> None:
    ones = torch.ones(3, 4).to(torch.float8_e4m3fn)
    assert torch.equal(scaled(ones, torch.tensor(2.0), {}, "w"), torch.full((3, 4), 2.0))
    rows = torch.tensor([[1.0], [2.0], [3.0]])
    assert torch.equal(scaled(ones, rows, {}, "w"), rows.expand(3, 4))
    block = scaled(ones, torch.tensor([[1.0, 2.0], [3.0, 4.0]]), {"weight_block_size": [2, 3]}, "w")
    assert block.tolist() == [[1, 1, 1, 2], [1, 1, 1, 2], [3, 3, 3, 4]]
    with pytest.raises(errors.CheckpointError, match="does not fit"):
        scaled(ones, torch.ones(2, 2), {"weight_block_size": [128, 128]}, "w")


def test_a_sharded_index_that_names_a_foreign_folder_stays_in_its_own(source: Path) -> None:
    (source / "model.safetensors").rename(source.parent / "elsewhere.safetensors")
    index = {"weight_map": {"model.norm.weight": "../elsewhere.safetensors"}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(errors.CheckpointTorn, match="elsewhere"):
        open_checkpoint(source)


def write_tokens(path: Path, tokens: dict[str, TokenType], **fields: int) -> GgufCheckpoint:
    """Write a GGUF file that holds nothing but a vocabulary, and open it."""
    writer = GGUFWriter(path, "llama")
    writer.add_token_list(list(tokens))
    writer.add_token_types(list(tokens.values()))
    for name, token in fields.items():
        writer.add_uint32(f"tokenizer.ggml.{name}", token)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GgufCheckpoint(path)


def test_a_gguf_names_more_tokens_that_end_an_answer(tmp_path: Path) -> None:
    plain, control = TokenType.NORMAL, TokenType.CONTROL
    vocabulary = {"a": plain, "<|im_end|>": plain, "<end_of_turn>": control, "<|end|>": control, "b": plain}
    named = write_tokens(tmp_path / "named.gguf", vocabulary, eos_token_id=0, eot_token_id=4)
    # By its field, and by how it is spelled; what is spelled so but is ordinary text ends nothing.
    assert named.end_ids() == [2, 3, 4]
    parts = write_tokens(tmp_path / "parts.gguf", {"<|end|>": control, "<|return|>": control, "<|call|>": control})
    assert parts.end_ids() == [1, 2]
    assert write_tokens(tmp_path / "none.gguf", {"a": plain}).end_ids() == []
