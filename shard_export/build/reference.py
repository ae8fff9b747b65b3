"""What transformers itself hands to the layers, asked anew: nothing here uses what the skeleton decided.

The skeleton reads windows from a short probe and freezes rotary frequencies; the stage graphs build their masks
themselves. Each of these is compared with the model's own `forward`, at the real window and over the whole context.
"""

from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov
import torch

from shard_export.library.errors import ParityFailed
from shard_export.library.graph import mask_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shard_export.build.skeleton import Skeleton

LATE_POSITION = 4000
_MASK_TOKENS = 8


class _LongPast:
    """A cache that only says how many tokens it has seen: enough for a model to build its masks."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def get_seq_length(self, *_args: Any, **_options: Any) -> int:
        return self._tokens

    def get_query_offset(self, *_args: Any, **_options: Any) -> int:
        return self._tokens

    def get_mask_sizes(self, query_tokens: int, *_args: Any, **_options: Any) -> tuple[int, int]:
        return self._tokens + query_tokens, 0


def check_masks(skeleton: Skeleton) -> None:
    """Compare what each layer may see with the model's own masks, at the start and across each window's edge.

    Both the windows of `skeleton.kinds` and the masks that stage graphs build from them are compared. Raises
    ParityFailed.
    """
    windows = {window for _, window in skeleton.kinds}
    for past in sorted({0, *(max(0, window - _MASK_TOKENS // 2) for window in windows)}):
        ours = {window: _stage_mask(window, past) for window in windows}
        for index, (theirs, (_, window)) in enumerate(zip(_masks(skeleton, past), skeleton.kinds, strict=True)):
            if not np.array_equal(theirs, ours[window]):
                raise ParityFailed(
                    f"Layer {index} would see other tokens than in transformers (window {window}, position {past}), so "
                    "nothing was published; this model cannot be exported by this version."
                )


def positions_to_check(skeleton: Skeleton, count: int) -> torch.Tensor:
    """Choose positions over the whole context, with those where rotary scaling begins or has been seen to go wrong."""
    limit = skeleton.context_tokens
    marks = [0, LATE_POSITION, limit - 1]
    for original in _values_of(skeleton.config.to_dict(), "original_max_position_embeddings"):
        marks += [original - 1, original, original + 1]
    chosen = {mark for mark in marks if 0 <= mark < limit} | set(torch.linspace(0, limit - 1, count).long().tolist())
    return torch.tensor(sorted(chosen))


def fresh_tables(skeleton: Skeleton, layer: int, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos and sin [1,n,R] of `positions` [n] by newly made rotary modules, in a call as long as the context."""
    config = type(skeleton.config).from_dict(skeleton.config.to_dict())
    last = torch.tensor([skeleton.context_tokens - 1])
    found = [
        (name, module)
        for name, module in skeleton.model.named_modules()
        if any(buffer.endswith("inv_freq") for buffer, _ in module.named_buffers(recurse=False))
    ]
    try:
        for name, module in found:
            _replace(skeleton.model, name, _remade(module, config, skeleton.rope_factors))
        cos, sin = skeleton.rotary(layer, torch.cat([positions, last])[None])
    finally:
        for name, module in found:
            _replace(skeleton.model, name, module)
    return cos[:, :-1], sin[:, :-1]


def _remade(module: torch.nn.Module, config: Any, factors: torch.Tensor | None) -> torch.nn.Module:
    known = inspect.signature(type(module).__init__).parameters
    if "config" not in known:
        return module
    made: torch.nn.Module = type(module)(config=config)
    if factors is not None:
        # The one setting that a checkpoint keeps outside its config.
        made.inv_freq = made.inv_freq / factors
    return made


def _replace(model: torch.nn.Module, name: str, module: torch.nn.Module) -> None:
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, module)


def _masks(skeleton: Skeleton, past: int) -> Iterator[Any]:
    """Yield what each layer's queries see, bool [n, past + n], as the model itself says with `past` tokens behind."""
    real = skeleton.model.config
    probe = copy.deepcopy(real)
    probe._attn_implementation = "eager"  # noqa: SLF001 - the only switch that makes the model build full masks
    decoder = next(
        module
        for module in skeleton.model.modules()
        if any(isinstance(child, torch.nn.ModuleList) and child[0] is skeleton.taps[0] for child in module.children())
    )
    parameters = inspect.signature(decoder.forward).parameters
    name = next((name for name in ("cache", "past_key_values") if name in parameters), "cache")
    hidden = torch.zeros(1, _MASK_TOKENS, skeleton.hidden_size)
    skeleton.model.config = decoder.config = probe
    try:
        with torch.no_grad():
            decoder(inputs_embeds=hidden, use_cache=False, **{name: _LongPast(past)})
    finally:
        skeleton.model.config = decoder.config = real
    for tap in skeleton.taps:
        mask = tap.arguments["attention_mask"][0, 0]
        yield (mask if mask.dtype == torch.bool else mask == 0).numpy()


def _stage_mask(window: int, past: int) -> Any:
    compiled = ov.Core().compile_model(mask_model(window), "CPU")
    positions = np.arange(past, past + _MASK_TOKENS, dtype=np.int64)[None]
    return compiled([np.ones((1, past + _MASK_TOKENS), np.int64), positions])[0][0, 0] == 0


def _values_of(settings: Any, name: str) -> Iterator[int]:
    """Find a whole number by name at any depth: rotary settings are nested per layer kind in some configs."""
    if isinstance(settings, dict):
        for key, value in settings.items():
            if key == name and isinstance(value, int):
                yield value
            yield from _values_of(value, name)
