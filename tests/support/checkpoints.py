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
_ORIGINAL = {"rope_theta": 10000.0, "original_max_position_embeddings": 32}
_EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
# What makes each family differ from a plain llama, so that a test would notice if it were dropped. The rotary kinds
# that stretch a text do so from position 32 on, and the windows are shorter than the tests' texts.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-linear-rope": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    "llama-dynamic-rope": {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}},
    "llama-llama3-rope": {
        "rope_parameters": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            **_ORIGINAL,
        }
    },
    "llama-yarn-rope": {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, **_ORIGINAL}},
    "mistral": {"sliding_window": 16},
    "ministral": {"head_dim": 16, "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 32},
    "phi3": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
    "phi3-longrope": {
        "original_max_position_embeddings": 32,
        "rope_parameters": {
            "rope_type": "longrope",
            "short_factor": [1.0 + 0.1 * index for index in range(8)],
            "long_factor": [1.5 + 0.5 * index for index in range(8)],
            **_ORIGINAL,
        },
    },
    "gemma": {"head_dim": 32},
    "gemma2": {"head_dim": 32, "sliding_window": 16, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 1.5},
    "gemma3_text": {
        "head_dim": 32,
        "num_hidden_layers": 4,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "granite": {
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.3,
        "logits_scaling": 2.0,
        "attention_multiplier": 0.2,
    },
    "olmo2": {},
    "smollm3": {"no_rope_layers": [1, 0]},
    "starcoder2": {"sliding_window": None},
    "cohere": {"logit_scale": 0.3, "use_qk_norm": True},
    "stablelm": {"use_qkv_bias": True, "qk_layernorm": True},
    "glm4": {"head_dim": 16, "attention_bias": True},
    "exaone4": {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]},
    "ernie4_5": {"head_dim": 16, "use_bias": True},
    "helium": {"head_dim": 16},
    "seed_oss": {"head_dim": 32},
    "hunyuan_v1_dense": {"head_dim": 16},
    "nemotron": {},
    "gpt_neox": {"use_parallel_residual": True},
    "qwen3_moe": {"head_dim": 16, **_EXPERTS},
    "mixtral": {"num_local_experts": 4, "sliding_window": 16},
    "olmoe": _EXPERTS,
    "gpt_oss": {
        "head_dim": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "deepseek_v3": {
        "num_key_value_heads": 4,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 32,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 16,
    },
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
