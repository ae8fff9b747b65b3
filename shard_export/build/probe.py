"""What a model hands to its decoder layers: found by running it over taps that stand in for them."""

from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any

import torch

from shard_export.build.masks import MASKED, visible_keys
from shard_export.checkpoint.families import unknown_family

if TYPE_CHECKING:
    from collections.abc import Sequence

# Long enough to show a window, short enough to cost nothing.
_PROBE_WINDOW, _PROBE_TOKENS = 5, 12


class Tap(torch.nn.Module):  # type: ignore[misc]  # torch is not followed by mypy
    """Stands in for a decoder layer: remembers its arguments and hands the hidden states on unchanged."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.hidden: torch.Tensor | None = None
        self.arguments: dict[str, Any] = {}
        for name, value in vars(layer).items():
            # Models choose masks and rotary tables by such marks of the layer (attention_type and the like).
            if not name.startswith("_") and isinstance(value, str | int | float | bool):
                setattr(self, name, value)

    def forward(self, hidden_states: torch.Tensor, **arguments: Any) -> torch.Tensor:
        self.hidden, self.arguments = hidden_states, arguments
        return hidden_states

    def tables(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cos and sin [B,n,R] as the layer was last given them."""
        cos, sin = self.arguments["position_embeddings"]
        return cos, sin


def decoder_layers(model: Any, config: Any, family: str) -> tuple[str, torch.nn.ModuleList]:
    """Find the list of decoder layers and its name; raises UnknownFamily."""
    count = getattr(config, "num_hidden_layers", None)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count and _takes_hidden(module[0]):
            return name, module
    raise unknown_family(family, "no list of decoder layers was found")


def cache_argument(layer: torch.nn.Module) -> str:
    """Tell what a decoder layer calls its cache: transformers renamed it in 5.24."""
    parameters = inspect.signature(layer.forward).parameters
    for name in ("cache", "past_key_values", "past_key_value", "layer_past"):
        if name in parameters:
            return name
    raise unknown_family(type(layer).__name__, "its layers take no cache")


def probe_windows(model: Any, decoder: torch.nn.Module, taps: Sequence[Tap], family: str) -> list[int]:
    """Let the model build its masks with a short window and read from them which layers use it.

    Returns the real window of each tapped layer, 0 for full attention; raises UnknownFamily for any other mask.
    """
    real = model.config
    window = int(getattr(real, "sliding_window", None) or 0)
    probe = copy.deepcopy(real)
    probe._attn_implementation = "eager"  # noqa: SLF001 - the only switch that makes the model build full masks
    if window:
        probe.sliding_window = _PROBE_WINDOW
    model.config = decoder.config = probe
    try:
        decoder(inputs_embeds=torch.zeros(1, _PROBE_TOKENS, int(real.hidden_size)), use_cache=False)
    finally:
        model.config = decoder.config = real
    windows = []
    for tap in taps:
        mask, positions = tap.arguments["attention_mask"], tap.arguments.get("position_embeddings")
        if mask is None or not isinstance(positions, tuple):
            raise unknown_family(family, "its layers are not driven by a mask and rotary tables")
        windows.append(window if _is_windowed(mask[0, 0], family) else 0)
    return windows


def group_tables(taps: Sequence[Tap]) -> tuple[list[int], list[int]]:
    """Tell layers with other rotary tables apart: the kind of each layer, and the first layer of each kind."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    kinds: list[int] = []
    for tap in taps:
        tables = tap.tables()
        same = [kind for kind, known in enumerate(seen) if _equal(tables, known)]
        if not same:
            same = [len(seen)]
            seen.append(tables)
        kinds.append(same[0])
    return kinds, [kinds.index(kind) for kind in range(len(seen))]


def _is_windowed(mask: torch.Tensor, family: str) -> bool:
    visible = mask if mask.dtype == torch.bool else mask > MASKED / 2
    if torch.equal(visible, visible_keys(_PROBE_TOKENS, 0)):
        return False
    if torch.equal(visible, visible_keys(_PROBE_TOKENS, _PROBE_WINDOW)):
        return True
    raise unknown_family(family, "its attention mask is neither causal nor a sliding window")


def _equal(ours: tuple[torch.Tensor, ...], theirs: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def _takes_hidden(layer: torch.nn.Module) -> bool:
    return "hidden_states" in inspect.signature(layer.forward).parameters
