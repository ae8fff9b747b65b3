"""The parity gates: a unit must compute what transformers computes, on real text, through the cache.

Each layer gets the hidden states that real text has at its depth, in one row at the first positions and one row at
late positions (RoPE errors show only there), cut into two chunks so that the cache is used, and a few tokens scaled
down so far that the epsilon of a norm shows. The float32 unit must agree with transformers' own layer, its keys and
values too; the compressed unit's error is recorded. The logits at the end judge the whole, rotary units included.
Masks and rotary tables are compared with what transformers itself hands to a layer (`reference.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import openvino as ov
import torch

from shard_export.build.exact import ExactRun, LayerRun, experts_bytes
from shard_export.build.judging import check, check_finite, compare_logits, relative_error
from shard_export.build.masks import causal_mask
from shard_export.build.reference import check_masks, fresh_tables, positions_to_check
from shard_export.library.manifest import EndToEnd, Parity

if TYPE_CHECKING:
    from collections.abc import Callable

    from shard_export.build.skeleton import Skeleton
    from shard_export.build.trace import LayerCall

    Store = Callable[[], ov.Model]
    """Compresses and writes a unit once its float32 form has passed, and returns what was written."""

MAX_LATE_POSITION = 8192
ROW_TOKENS = 96
QUIET_TOKENS = 8
QUIET_SIZE = 1e-3
"""Root mean square of the quiet tokens: its square is as small as the epsilons of norms (1e-5, 1e-6)."""

TEXT = """A fallow field is one that is resting. Farmers learned long ago that land which carries a crop every year
grows tired, and that a season without sowing gives it back what it lost. The capital of France is Paris, which lies
on the Seine, and the capital of Italy is Rome, which lies on the Tiber. Water boils at 100 degrees at sea level and
at less than that on a mountain. Question: what is seven times eight? Answer: fifty-six. To make tea, heat the water,
pour it over the leaves, wait three or four minutes and take the leaves out again. def add(first, second): return
first + second. The committee met on Tuesday to discuss the budget for the coming year; it was agreed that the library
should stay open until nine in the evening, that two new machines should be bought, and that the roof would be
repaired before the winter. Dear customer, thank you for your message. We have looked into the matter and found that
the parcel left our house on Monday. If it has not reached you by Friday, please write to us again and we will send
another."""

Array = np.ndarray[Any, Any]


class Chains(NamedTuple):
    """Hidden states [2,n,H] of the text at one depth: by transformers, by the float32 units, by the stored units.

    `calibration` [rows,m,H] is the text roundings are chosen by, by transformers; empty when they are not.
    """

    reference: Array
    plain: Array
    stored: Array
    calibration: Array = np.zeros((0, 0, 0), np.float32)


class _Tables(NamedTuple):
    """Rotary tables [2,n,R] of the gate's positions: by transformers, and by the rope unit."""

    reference: tuple[torch.Tensor, torch.Tensor]
    unit: tuple[torch.Tensor, torch.Tensor]


class Gate:
    """Follows one text through a model while it is built, unit by unit. Use from one thread."""

    def __init__(self, skeleton: Skeleton, token_ids: list[int]) -> None:
        """Checks the masks at once; raises ParityFailed."""
        self._skeleton = skeleton
        self._core = ov.Core()
        tokens = max(4, min(ROW_TOKENS, skeleton.context_tokens // 2))
        ids = (token_ids or [0]) * (2 * tokens // max(1, len(token_ids)) + 1)
        self.input_ids = torch.tensor(ids[: 2 * tokens], dtype=torch.long).reshape(2, tokens)
        late = late_position(skeleton.context_tokens, tokens)
        self.position_ids = torch.arange(tokens)[None] + torch.tensor([[0], [late]])
        self._tables: dict[int, _Tables] = {}
        check_masks(skeleton)

    def rope(self, unit: ov.Model, rope: int) -> float:
        """Check the rotary tables of one kind over the whole context against newly made rotary modules."""
        rows = [*self.position_ids, positions_to_check(self._skeleton, self.position_ids.shape[1])]
        layer, run = self._skeleton.ropes[rope], ExactRun(self._core, unit)
        wanted = [fresh_tables(self._skeleton, layer, row) for row in rows]
        found = []
        for row in rows:
            cos, sin = run([row[None].numpy()])
            found.append((torch.from_numpy(cos), torch.from_numpy(sin)))
        # cos and sin lie in [-1, 1] up to a scale: float32 rounding of large angles is the only difference allowed.
        error = max(
            relative_error(ours.numpy(), theirs.numpy())
            for pair in zip(found, wanted, strict=True)
            for ours, theirs in zip(*pair, strict=True)
        )
        check(error, f"rotary tables {rope}")
        self._tables[rope] = _Tables(_stacked(wanted[:2]), _stacked(found[:2]))
        return error

    def rotary_size(self, rope: int) -> int:
        """Return R, the width of that kind's tables; call `rope` first."""
        return int(self._tables[rope].reference[0].shape[-1])

    def embed(self, plain: ov.Model, store: Store) -> tuple[Parity, Chains]:
        """Check the embedding and start the chains."""
        reference = self._skeleton.embed(self.input_ids).numpy()
        ids = self.input_ids.numpy()
        (in_float32,) = ExactRun(self._core, plain)([ids])
        error = relative_error(in_float32, reference)
        check(error, "embed")
        (stored,) = ExactRun(self._core, store())([ids])
        parity = Parity(error, relative_error(stored, reference))
        check_finite(parity.compressed_error, "embed")
        return parity, Chains(reference, in_float32, stored)

    def layer(
        self, name: str, call: LayerCall, plain: ov.Model, store: Store, *, chains: Chains, kind: tuple[int, int]
    ) -> tuple[Parity, Chains]:
        """Check one layer and take the chains through it; `kind` is (rope, window).

        The layer itself is run before `store` is called, and not after.
        """
        rope, window = kind
        tables, mask = self._tables[rope], causal_mask(self.input_ids.shape[1], window)
        with torch.no_grad():
            reference = call.run(torch.from_numpy(chains.reference), mask, *tables.reference).numpy()
        token_bytes = experts_bytes(plain) * self._skeleton.experts_per_token
        run = LayerRun(self._core, plain, token_bytes)
        plain_out = _in_two_chunks(run, chains.reference, chains.plain, mask, tables)
        quiet_error = _quiet_error(call, run, chains.reference, tables.reference, window)
        error = max(quiet_error, relative_error(plain_out[:2], reference))
        check(error, name)
        del run
        compressed = LayerRun(self._core, store(), token_bytes)
        stored_out = _in_two_chunks(compressed, chains.reference, chains.stored, mask, tables)
        parity = Parity(error, relative_error(stored_out[:2], reference))
        check_finite(parity.compressed_error, name)
        return parity, Chains(reference, plain_out[2:], stored_out[2:])

    def head(self, plain: ov.Model, store: Store, chains: Chains) -> tuple[Parity, EndToEnd]:
        """Check the head, then judge the logits at the end of the three chains."""
        quiet = _quiet(chains.reference)
        with torch.no_grad():
            reference = self._skeleton.head(torch.from_numpy(chains.reference)).numpy()
            reference_quiet = self._skeleton.head(torch.from_numpy(quiet)).numpy()
        run = ExactRun(self._core, plain)
        error = max(
            relative_error(run([hidden])[0], wanted)
            for hidden, wanted in ((chains.reference, reference), (quiet, reference_quiet))
        )
        check(error, "head")
        (plain_logits,) = run([chains.plain])
        del run
        compressed = ExactRun(self._core, store())
        parity = Parity(error, relative_error(compressed([chains.reference])[0], reference))
        check_finite(parity.compressed_error, "head")
        judged = compare_logits(reference, plain_logits, compressed([chains.stored])[0])
        return parity, msgspec.structs.replace(judged, highest_position=int(self.position_ids.max()))


def _in_two_chunks(run: LayerRun, reference: Array, chain: Array, mask: torch.Tensor, tables: _Tables) -> Array:
    """Run the reference's states with the reference's tables and the chain's with those of the rope unit."""
    hidden = np.concatenate([reference, chain])
    cos, sin = (torch.cat(pair).numpy() for pair in zip(tables.reference, tables.unit, strict=True))
    return run.in_chunks(hidden, mask.numpy(), (cos, sin), 2)[0]


def _quiet_error(
    call: LayerCall, run: LayerRun, hidden: Array, tables: tuple[torch.Tensor, torch.Tensor], window: int
) -> float:
    """Compare output, keys and values of a few tokens that are as small as the epsilons of norms."""
    quiet = _quiet(hidden)
    count = quiet.shape[1]
    cos, sin = (table[:1, :count] for table in tables)
    mask = causal_mask(count, window)
    with torch.no_grad():
        wanted = call.run_with_cache(torch.from_numpy(quiet), mask, cos, sin)
    found = run.in_chunks(quiet, mask.numpy(), (cos.numpy(), sin.numpy()), 1)
    return max(
        relative_error(_by_token(ours), _by_token(theirs.numpy())) for ours, theirs in zip(found, wanted, strict=True)
    )


def late_position(context_tokens: int, tokens: int) -> int:
    """Return where the late row of `tokens` begins: it ends at the context's end, or beyond 4,000 in longer ones."""
    return max(0, min(context_tokens, MAX_LATE_POSITION) - tokens)


def _quiet(hidden: Array) -> Array:
    """Take the first tokens of a text, each scaled down to the size of epsilons: [1,n,H]."""
    few = hidden[:1, :QUIET_TOKENS]
    size = np.sqrt((few.astype(np.float64) ** 2).mean(-1, keepdims=True))
    return np.asarray(few * (QUIET_SIZE / np.maximum(size, np.finfo(np.float32).tiny)), np.float32)


def _by_token(values: Array) -> Array:
    """Put all heads of keys or values [B,heads,T,D] side by side; hidden states are side by side already."""
    return values if values.ndim == 3 else np.concatenate(np.moveaxis(values, 1, 0), -1)


def _stacked(tables: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    cos, sin = zip(*tables, strict=True)
    return torch.cat(cos), torch.cat(sin)
