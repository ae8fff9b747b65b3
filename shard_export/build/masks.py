"""Causal and sliding-window masks as the units take them."""

from __future__ import annotations

import torch

MASKED = -65504.0
"""What a unit's mask input holds for a key that must not be seen: the lowest finite float16."""


def visible_keys(tokens: int, window: int) -> torch.Tensor:
    """Return which keys each query sees, [n,n] bool; a window counts the query itself, 0 means no window."""
    position = torch.arange(tokens)
    distance = position[:, None] - position[None, :]
    return (distance >= 0) & (distance < (window or tokens))


def causal_mask(tokens: int, window: int) -> torch.Tensor:
    """Return the additive mask [1,1,n,n] of a layer with that window (0: none)."""
    return torch.where(visible_keys(tokens, window), 0.0, MASKED)[None, None]
