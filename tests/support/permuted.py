"""A sixteen-bit twin of the sample model whose weights lie on no grid: its channels in another order.

The sample's GGUF blocks have one scale for 32 neighbouring columns, and any four-bit rounding of the same columns finds
that grid again. In another order of the channels each group of columns mixes eighteen or more blocks, so that its
weights are as good as continuous, while the model computes the same function from weights of the same sizes: no
outlier is smoothed and nothing is made easier to round, as a rotation would.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

if TYPE_CHECKING:
    from pathlib import Path


def write_permuted_llama(source: Path, folder: Path, *, seed: int = 0) -> Path:
    """Write the Llama of a `.gguf` file as float16 safetensors with its channels permuted."""
    tokenizer = AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name)
    model = AutoModelForCausalLM.from_pretrained(str(source.parent), gguf_file=source.name, dtype=torch.float32)
    with torch.no_grad():
        permute_llama(model, seed)
    folder.mkdir(parents=True)
    # By hand: transformers does not save what it has read from a quantized file.
    state = {name: tensor.to(torch.float16).contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del state["lm_head.weight"]
    save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})
    settings = model.config.to_diff_dict()
    del settings["quantization_config"]
    (folder / "config.json").write_text(json.dumps({**settings, "dtype": "float16"}))
    tokenizer.save_pretrained(str(folder))
    return folder


def permute_llama(model: Any, seed: int) -> None:
    """Reorder the hidden channels, those inside each feed-forward, and each value head's, in place."""
    config, random = model.config, torch.Generator().manual_seed(seed)
    hidden = torch.randperm(config.hidden_size, generator=random)
    model.model.embed_tokens.weight.copy_(model.model.embed_tokens.weight[:, hidden])
    if not config.tie_word_embeddings:
        model.lm_head.weight.copy_(model.lm_head.weight[:, hidden])
    model.model.norm.weight.copy_(model.model.norm.weight[hidden])
    for layer in model.model.layers:
        attention, feed = layer.self_attn, layer.mlp
        for norm in (layer.input_layernorm, layer.post_attention_layernorm):
            norm.weight.copy_(norm.weight[hidden])
        for matrix in (attention.q_proj, attention.k_proj, attention.v_proj, feed.gate_proj, feed.up_proj):
            matrix.weight.copy_(matrix.weight[:, hidden])
        for matrix in (attention.o_proj, feed.down_proj):
            matrix.weight.copy_(matrix.weight[hidden])
        inner = torch.randperm(config.intermediate_size, generator=random)
        feed.gate_proj.weight.copy_(feed.gate_proj.weight[inner])
        feed.up_proj.weight.copy_(feed.up_proj.weight[inner])
        feed.down_proj.weight.copy_(feed.down_proj.weight[:, inner])
        values, outputs = _value_orders(attention, config, random)
        attention.v_proj.weight.copy_(attention.v_proj.weight[values])
        attention.o_proj.weight.copy_(attention.o_proj.weight[:, outputs])


def _value_orders(attention: Any, config: Any, random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an order of the values' rows within each head, and the order of the columns that read them."""
    size, heads = attention.head_dim, config.num_key_value_heads
    inside = [torch.randperm(size, generator=random) for _ in range(heads)]
    values = torch.cat([order + head * size for head, order in enumerate(inside)])
    shared = config.num_attention_heads // heads
    outputs = [inside[head // shared] + head * size for head in range(config.num_attention_heads)]
    return values, torch.cat(outputs)
