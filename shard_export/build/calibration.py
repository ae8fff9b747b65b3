"""What the matrices of each layer are fed by real text, collected while the build walks through the layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from shard_export.build.gptq import blocks_of
from shard_export.build.skeleton import causal_mask
from shard_export.build.texts import CALIBRATION, render

if TYPE_CHECKING:
    from shard_export.build.skeleton import Skeleton
    from shard_export.build.trace import LayerCall

ROW_TOKENS, MAX_ROWS = 256, 8

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
        seen: dict[int, tuple[torch.Tensor, Inputs]] = {}
        names = {module: f"{name}.weight" for name, module in call.layer.named_modules()}

        def note(module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
            rows = arguments[0]
            if id(rows) not in seen:
                flat = rows.reshape(-1, rows.shape[-1]).float()
                moments = [flat[:, part].T @ flat[:, part] / len(flat) for part in blocks_of(flat.shape[1])]
                # The tensor is kept, so that no later one can have its id.
                seen[id(rows)] = rows, Inputs([], moments)
            seen[id(rows)][1].names.append(names[module])

        linear = [module for module in call.layer.modules() if isinstance(module, torch.nn.Linear)]
        hooks = [module.register_forward_pre_hook(note) for module in linear]
        try:
            with torch.no_grad():
                mask = causal_mask(tokens, window)
                out: Array = call.run(torch.from_numpy(hidden), mask, cos, sin, None).numpy()
        finally:
            for hook in hooks:
                hook.remove()
        return [inputs for _, inputs in seen.values()], out
