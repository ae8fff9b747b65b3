"""The key ledger: every tensor of a checkpoint is used exactly once or ignored for a stated reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shard_export.library.errors import CheckpointError, TensorMismatch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    import torch

    from shard_export.checkpoint.source import Blocks, Checkpoint

# Buffers that transformers computes from the config; old checkpoints still carry them.
_COMPUTED = re.compile(r"(^|\.)(rotary_emb\.inv_freq|masked_bias|attn\.bias)$")


class KeyLedger:
    """Hands out the tensors of a checkpoint and keeps account of them.

    `expected` maps the model's parameter names to shapes; `tied` maps a parameter to the one it shares its values
    with, by the config. What the file says wins: a tied tensor that is there with other values is used as its own, one
    that is there alone gives the values to both. The constructor raises TensorMismatch for a missing or a left-over
    tensor; only tied tensors that are there twice are read for it. `ignored` maps tensors that are not used to the
    reason, `notes` are sentences for the user.
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
        self.notes: list[str] = []
        self._settle_tied(present)
        patterns = [re.compile(pattern) for pattern in ignored_patterns]
        for name in sorted(present - set(self._expected) | (present & set(self._tied))):
            if name in self._tied:
                self.ignored[name] = f"holds the same values as {self._tied[name]}"
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
        """Read a parameter as float32.

        Raises TensorMismatch when its shape is wrong or it was taken before, CheckpointError when it holds values that
        are not finite.
        """
        if name in self._used:
            raise TensorMismatch(f"Tensor {name} was asked for twice; this is a fault of the exporter, report it.")
        tensor = self._checkpoint.tensor(self._tied.get(name, name))
        shape = self._expected[name]
        if tuple(tensor.shape) != shape:
            raise TensorMismatch(
                f"Tensor {name} of {self._checkpoint.path} has the shape {list(tensor.shape)} instead of "
                f"{list(shape)}; the config and the weights do not belong together."
            )
        # The sum is no number as soon as one value is none, and takes no memory for a second tensor.
        if not bool(tensor.sum().isfinite()) and not bool(tensor.isfinite().all()):
            raise CheckpointError(
                f"Tensor {name} of {self._checkpoint.path} holds values that are not finite; the checkpoint is "
                "damaged, download it again."
            )
        self._used.add(name)
        return tensor

    def stored_format(self, name: str) -> str:
        """Name the block format of a parameter in a quantized file; empty for plain numbers."""
        return self._checkpoint.stored_format(self._tied.get(name, name))

    def blocks(self, name: str) -> Blocks | None:
        """Return a parameter as a quantized file holds it, beside `take`; None for plain numbers."""
        return self._checkpoint.blocks(self._tied.get(name, name))

    def skip(self, name: str) -> None:
        """Count a parameter as used without reading it: an earlier build did."""
        self._used.add(name)

    def _settle_tied(self, present: Collection[str]) -> None:
        """Make `_tied` say what the file holds rather than what the config promises."""
        for name, source in list(self._tied.items()):
            if name not in present:
                continue
            if source not in present and self._tied.get(source) is None:
                del self._tied[name]
                self._tied |= {other: name for other, its in self._tied.items() if its == source} | {source: name}
            elif source in present and not self._checkpoint.same(name, source):
                del self._tied[name]
                self.notes.append(
                    f"{name} differs from {source} although the config ties them, so it is used as a tensor of its own."
                )

    def close(self) -> None:
        """Raise TensorMismatch unless every expected tensor was used."""
        if left := sorted(set(self._expected) - self._used):
            raise TensorMismatch(f"Tensor {left[0]} was never used; this is a fault of the exporter, report it.")
