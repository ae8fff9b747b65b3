"""What the matrices of each layer are fed by real text, collected while the build walks through the layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from shard_export.build.gptq import blocks_of
from shard_export.build.masks import causal_mask
from shard_export.build.sensitivity import measure_damage
from shard_export.build.texts import CALIBRATION, render

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shard_export.build.skeleton import Skeleton
    from shard_export.build.trace import LayerCall

ROW_TOKENS, MAX_ROWS = 256, 8
DAMAGE_ROWS = 2
BYTES_AT_ONCE = 1 << 28
"""Room for what a layer computes on its way; rows that need more are run one after the other."""

_WIDEST_HELD = 4  # gate, up, the activated gate and their product live at the same time

Array = np.ndarray[Any, Any]


class Inputs(NamedTuple):
    """Matrices of a layer that read the same x (by their names in the layer), and mean(x^T x) per block of columns."""

    names: list[str]
    moments: list[torch.Tensor]


class Calibration:
    """Hidden states [rows,n,H] of conversations, in the source's own precision, carried from layer to layer."""

    def __init__(self, skeleton: Skeleton, tokenizer: Any) -> None:
        self._skeleton = skeleton
        ids = [token for conversation in CALIBRATION for token in render(tokenizer, conversation)]
        tokens = min(ROW_TOKENS, skeleton.context_tokens, len(ids))
        rows = min(MAX_ROWS, len(ids) // tokens)
        self.input_ids = torch.tensor(ids[: rows * tokens]).reshape(rows, tokens)

    def start(self) -> Array:
        """Return the hidden states before the first layer; the embedding must be loaded."""
        hidden: Array = self._skeleton.embed(self.input_ids).numpy()
        return hidden

    def layer(self, call: LayerCall, hidden: Array, kind: tuple[int, int]) -> tuple[list[Inputs], Array]:
        """Run a layer of that (rope, window): what its matrices read, and the hidden states behind it."""
        rope, window = kind
        tokens = self.input_ids.shape[1]
        cos, sin = self._skeleton.rotary(self._skeleton.ropes[rope], torch.arange(tokens)[None])
        seen = _Seen(call.layer)
        parts: list[Array] = []
        try:
            with torch.no_grad():
                mask = causal_mask(tokens, window)
                for rows in _row_parts(call.layer, hidden.shape):
                    parts.append(call.run(torch.from_numpy(hidden[rows]), mask, cos, sin).numpy())
                    seen.next_rows()
        finally:
            seen.close()
        return seen.inputs(), np.concatenate(parts)

    def damage(self, call: LayerCall, hidden: Array, kind: tuple[int, int], group_size: int | None) -> dict[str, float]:
        """Measure what rounding each matrix of the layer to four bits does to the layer's output."""
        rope, window = kind
        tokens = self.input_ids.shape[1]
        cos, sin = self._skeleton.rotary(self._skeleton.ropes[rope], torch.arange(tokens)[None])
        states, mask = torch.from_numpy(hidden[:DAMAGE_ROWS]), causal_mask(tokens, window)
        return measure_damage(call.layer, lambda: call.run(states, mask, cos, sin), group_size)


class _Seen:
    """Watches the matrices of a layer while it runs over a text in one or several calls."""

    def __init__(self, layer: torch.nn.Module) -> None:
        self._sums: dict[str, Inputs] = {}
        self._tokens: dict[str, int] = {}
        self._current: dict[int, tuple[torch.Tensor, str]] = {}
        self._hooks = [
            module.register_forward_pre_hook(
                lambda _module, arguments, name=f"{name}.weight": self._note(name, arguments[0])
            )
            for name, module in layer.named_modules()
            if isinstance(module, torch.nn.Linear)
        ]

    def next_rows(self) -> None:
        """Forget which tensors were read: the next call brings others, perhaps at the same place in memory."""
        self._current.clear()

    def close(self) -> None:
        """Stop watching."""
        for hook in self._hooks:
            hook.remove()

    def inputs(self) -> list[Inputs]:
        """Return what was read, matrices of the same inputs together."""
        return [
            Inputs(found.names, [moment.div_(self._tokens[leader]) for moment in found.moments])
            for leader, found in self._sums.items()
        ]

    def _note(self, name: str, read: torch.Tensor) -> None:
        # The tensor is kept, so that no later one can have its id.
        _, leader = self._current.setdefault(id(read), (read, name))
        found = self._sums.setdefault(leader, Inputs([], []))
        if name not in found.names:
            found.names.append(name)
        if leader != name:
            return
        flat = read.reshape(-1, read.shape[-1]).float()
        self._tokens[name] = self._tokens.get(name, 0) + len(flat)
        for place, part in enumerate(blocks_of(flat.shape[1])):
            moment = flat[:, part].T @ flat[:, part]
            if place == len(found.moments):
                found.moments.append(moment)
            else:
                found.moments[place] += moment


def _row_parts(layer: torch.nn.Module, shape: tuple[int, ...]) -> Iterator[slice]:
    widest = max(side for tensor in layer.state_dict().values() for side in tensor.shape)
    at_once = max(1, BYTES_AT_ONCE // (4 * _WIDEST_HELD * shape[1] * widest))
    yield from (slice(first, first + at_once) for first in range(0, shape[0], at_once))
