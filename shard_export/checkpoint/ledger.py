"""The key ledger: every tensor of a checkpoint is used exactly once or ignored for a stated reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shard_export.library.errors import TensorMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch

    from shard_export.checkpoint.source import Checkpoint

# Buffers that transformers computes from the config; old checkpoints still carry them.
_COMPUTED = re.compile(r"(^|\.)(rotary_emb\.inv_freq|masked_bias|attn\.bias)$")


class KeyLedger:
    """Hands out the tensors of a checkpoint and keeps account of them.

    `expected` maps the model's parameter names to shapes; `tied` maps a parameter to the one it shares its values
    with. The constructor raises TensorMismatch for a missing or a left-over tensor, before anything is read.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        expected: Mapping[str, tuple[int, ...]],
        tied: Mapping[str, str],
        ignored_patterns: Iterable[str] = (),
    ) -> None:
        self._checkpoint = checkpoint
        self._expected = dict(expected)
        self._tied = dict(tied)
        self._used: set[str] = set()
        present = checkpoint.names()
        self.ignored: dict[str, str] = {}
        patterns = [re.compile(pattern) for pattern in ignored_patterns]
        for name in sorted(present - set(self._expected) | (present & set(self._tied))):
            if name in self._tied:
                self.ignored[name] = f"shares its values with {self._tied[name]}"
            elif _COMPUTED.search(name):
                self.ignored[name] = "computed from the config"
            elif any(pattern.search(name) for pattern in patterns):
                self.ignored[name] = "the model class itself ignores it"
            else:
                raise TensorMismatch(
                    f"{checkpoint.path} has a tensor {name} that a {len(self._expected)}-tensor model of its config "
                    "has no place for; the config and the weights do not belong together."
                )
        for name in sorted(set(self._expected) - set(self._tied)):
            if name not in present:
                raise TensorMismatch(
                    f"{checkpoint.path} lacks the tensor {name} its config asks for; download the model again."
                )

    def take(self, name: str) -> torch.Tensor:
        """Read a parameter as float32; raises TensorMismatch when its shape is wrong or it was taken before."""
        if name in self._used:
            raise TensorMismatch(f"Tensor {name} was asked for twice; this is a fault of the exporter, report it.")
        tensor = self._checkpoint.tensor(self._tied.get(name, name))
        shape = self._expected[name]
        if tuple(tensor.shape) != shape:
            raise TensorMismatch(
                f"Tensor {name} of {self._checkpoint.path} has the shape {list(tensor.shape)} instead of "
                f"{list(shape)}; the config and the weights do not belong together."
            )
        self._used.add(name)
        return tensor

    def close(self) -> None:
        """Raise TensorMismatch unless every expected tensor was used."""
        if left := sorted(set(self._expected) - self._used):
            raise TensorMismatch(f"Tensor {left[0]} was never used; this is a fault of the exporter, report it.")
