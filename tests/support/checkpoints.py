"""Tiny random checkpoints as Hugging Face folders, one per family, for the exporter's tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

if TYPE_CHECKING:
    from pathlib import Path

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 256,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": 257,
}
# What makes each family differ from a plain llama, so that a test would notice if it were dropped.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-llama3-rope": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        }
    },
    "mistral": {"sliding_window": 16},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 32},
    "phi3": {"partial_rotary_factor": 0.5},
    "gemma": {"head_dim": 32},
    "granite": {
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.3,
        "logits_scaling": 2.0,
        "attention_multiplier": 0.2,
    },
    "olmo2": {},
    "smollm3": {"no_rope_layers": [1, 0]},
    "starcoder2": {"sliding_window": None},
}


def make_checkpoint(folder: Path, family: str = "llama", *, shard_bytes: int = 0, **settings: Any) -> Path:
    """Write a random model with a byte-level tokenizer; `shard_bytes` > 0 splits the weights into shards."""
    config = AutoConfig.for_model(family.split("-", maxsplit=1)[0], **{**SIZES, **FAMILIES.get(family, {}), **settings})
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            # Norms and biases too: an all-ones norm would hide that it is not used.
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(str(folder), max_shard_size=shard_bytes or "5GB")
    make_tokenizer().save_pretrained(str(folder))
    return folder


def make_tokenizer() -> Any:
    """Make a tokenizer whose ids are bytes, with `<s>` 256 and `</s>` 257 and a chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({character: index for index, character in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>", model_max_length=256
    )
    fast.chat_template = "{% for message in messages %}<s>{{ message.content }}</s>{% endfor %}"
    return fast


def edit_weights(folder: Path, **changes: Any) -> None:
    """Change the tensors of an unsharded checkpoint: a value of None removes one. Dots are written as `__`."""
    path = folder / "model.safetensors"
    tensors = load_file(str(path))
    for name, value in changes.items():
        key = name.replace("__", ".")
        if value is None:
            del tensors[key]
        else:
            tensors[key] = value
    save_file(tensors, str(path), metadata={"format": "pt"})


def edit_config(folder: Path, **changes: Any) -> None:
    """Change settings of a checkpoint's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
