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

from shard_export.build.reference import check_masks, fresh_tables, positions_to_check
from shard_export.build.skeleton import causal_mask
from shard_export.library.errors import ParityFailed
from shard_export.library.manifest import EndToEnd, Parity

if TYPE_CHECKING:
    from shard_export.build.skeleton import Skeleton
    from shard_export.build.trace import LayerCall

MAX_RELATIVE_ERROR = 1e-4
"""Largest difference to transformers before compression, relative to the token's largest value."""

MAX_MEAN_KL = 4.0
"""Compressed logits further than this (in nats) from the source's are noise: plain INT4 of a small model costs 0.4."""

MAX_LATE_POSITION = 8192
ROW_TOKENS = 96
QUIET_TOKENS = 8
QUIET_SIZE = 1e-3
"""Root mean square of the quiet tokens: its square is as small as the epsilons of norms (1e-5, 1e-6)."""

_EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}

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
        layer, compiled = self._skeleton.ropes[rope], self._compile(unit)
        wanted = [fresh_tables(self._skeleton, layer, row) for row in rows]
        found = []
        for row in rows:
            result = compiled([row[None].numpy()])
            found.append((torch.from_numpy(result[0]), torch.from_numpy(result[1])))
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

    def embed(self, plain: ov.Model, stored: ov.Model) -> tuple[Parity, Chains]:
        """Check the embedding and start the chains."""
        reference = self._skeleton.embed(self.input_ids).numpy()
        ids = self.input_ids.numpy()
        chains = Chains(reference, self._compile(plain)([ids])[0], self._compile(stored)([ids])[0])
        parity = Parity(relative_error(chains.plain, reference), relative_error(chains.stored, reference))
        check(parity.fp32_error, "embed")
        check_finite(parity.compressed_error, "embed")
        return parity, chains

    def layer(
        self, name: str, call: LayerCall, units: tuple[ov.Model, ov.Model], chains: Chains, kind: tuple[int, int]
    ) -> tuple[Parity, Chains]:
        """Check one layer and take the chains through it; `units` is (plain, stored), `kind` (rope, window)."""
        (plain, stored), (rope, window) = units, kind
        tables = self._tables[rope]
        mask = causal_mask(self.input_ids.shape[1], window)
        with torch.no_grad():
            reference = call.run(torch.from_numpy(chains.reference), mask, *tables.reference, None).numpy()
        compiled = self._compile(plain)
        plain_out = self._in_two_chunks(compiled, chains.reference, chains.plain, mask, tables)
        stored_out = self._in_two_chunks(self._compile(stored), chains.reference, chains.stored, mask, tables)
        quiet_error = self._quiet_error(call, compiled, chains.reference, tables.reference, window)
        parity = Parity(
            max(quiet_error, relative_error(plain_out[:2], reference)), relative_error(stored_out[:2], reference)
        )
        check(parity.fp32_error, name)
        check_finite(parity.compressed_error, name)
        return parity, Chains(reference, plain_out[2:], stored_out[2:])

    def head(self, plain: ov.Model, stored: ov.Model, chains: Chains) -> tuple[Parity, EndToEnd]:
        """Check the head, then judge the logits at the end of the three chains."""
        quiet = _quiet(chains.reference)
        with torch.no_grad():
            reference = self._skeleton.head(torch.from_numpy(chains.reference)).numpy()
            reference_quiet = self._skeleton.head(torch.from_numpy(quiet)).numpy()
        compiled, compressed = self._compile(plain), self._compile(stored)
        errors = [
            relative_error(compiled([hidden])[0], wanted)
            for hidden, wanted in ((chains.reference, reference), (quiet, reference_quiet))
        ]
        parity = Parity(max(errors), relative_error(compressed([chains.reference])[0], reference))
        check(parity.fp32_error, "head")
        check_finite(parity.compressed_error, "head")
        judged = compare_logits(reference, compiled([chains.plain])[0], compressed([chains.stored])[0])
        return parity, msgspec.structs.replace(judged, highest_position=int(self.position_ids.max()))

    def _quiet_error(
        self,
        call: LayerCall,
        compiled: Any,
        hidden: Array,
        tables: tuple[torch.Tensor, torch.Tensor],
        window: int,
    ) -> float:
        """Compare output, keys and values of a few tokens that are as small as the epsilons of norms."""
        quiet = _quiet(hidden)
        count = quiet.shape[1]
        cos, sin = (table[:1, :count] for table in tables)
        past = [np.zeros((1, heads, 0, size), np.float32) for heads, size in cache_shapes(compiled)]
        inputs = [torch.from_numpy(quiet), causal_mask(count, window), cos, sin, *map(torch.from_numpy, past)]
        with torch.no_grad():
            wanted = call(*inputs)
        found = compiled([np.ascontiguousarray(tensor.numpy()) for tensor in inputs])
        return max(
            relative_error(_by_token(found[port]), _by_token(wanted[port].numpy())) for port in range(len(wanted))
        )

    def _in_two_chunks(
        self, compiled: Any, reference: Array, chain: Array, mask: torch.Tensor, tables: _Tables
    ) -> Array:
        """Run the reference's states with the reference's tables and the chain's with those of the rope unit."""
        hidden = np.concatenate([reference, chain])
        cos, sin = (torch.cat(pair).numpy() for pair in zip(tables.reference, tables.unit, strict=True))
        rows, tokens = hidden.shape[:2]
        full = np.broadcast_to(mask.numpy(), (rows, 1, tokens, tokens))
        past = [np.zeros((rows, heads, 0, size), np.float32) for heads, size in cache_shapes(compiled)]
        outputs = []
        for first, last in ((0, tokens // 2), (tokens // 2, tokens)):
            chunk = [hidden[:, first:last], full[:, :, first:last, :last], cos[:, first:last], sin[:, first:last]]
            result = compiled([np.ascontiguousarray(part) for part in chunk] + past)
            outputs.append(result[0])
            past = [result[1], result[2]]
        return np.concatenate(outputs, 1)

    def _compile(self, model: ov.Model) -> Any:
        return self._core.compile_model(model, "CPU", _EXACT)


def late_position(context_tokens: int, tokens: int) -> int:
    """Return where the late row of `tokens` begins: it ends at the context's end, or beyond 4,000 in longer ones."""
    return max(0, min(context_tokens, MAX_LATE_POSITION) - tokens)


def cache_shapes(unit: ov.Model | ov.CompiledModel) -> list[tuple[int, int]]:
    """Read (heads, head size) of keys and values from a layer unit's ports."""
    shapes = [unit.input(name).get_partial_shape() for name in ("past_k", "past_v")]
    return [(shape[1].get_length(), shape[3].get_length()) for shape in shapes]


def relative_error(found: Array, wanted: Array) -> float:
    """Return the worst token's max|found - wanted| / max|wanted| over the last axis; infinite when not comparable.

    Token by token, because a model's first token can be a thousand times larger than the others and would hide them.
    """
    if found.shape != wanted.shape or not (np.isfinite(found).all() and np.isfinite(wanted).all()):
        return float("inf")
    largest = np.maximum(np.abs(wanted).max(-1), np.finfo(np.float32).tiny)
    return float((np.abs(found - wanted).max(-1) / largest).max(initial=0.0))


def check(error: float, what: str) -> None:
    """Raise ParityFailed when a float32 unit differs from transformers."""
    if not 0 <= error <= MAX_RELATIVE_ERROR:
        raise ParityFailed(
            f"The unit {what} differs from transformers by {error:.1e} (allowed {MAX_RELATIVE_ERROR:.0e}), so nothing "
            "was published; this model cannot be exported by this version."
        )


def check_finite(error: float, what: str) -> None:
    """Raise ParityFailed when a compressed unit gave something that is no number."""
    if not np.isfinite(error):
        raise ParityFailed(
            f"The compressed unit {what} computes values that are not finite, so nothing was published; choose "
            "--layers int8_asym or another group size."
        )


def compare_logits(reference: Array, plain: Array, stored: Array) -> EndToEnd:
    """Compare the three chains' logits [2,n,V]; raises ParityFailed for noise."""
    fp32_error = relative_error(plain, reference)
    check(fp32_error, "chain as a whole")
    ours, theirs = (torch.log_softmax(torch.from_numpy(logits), -1) for logits in (stored, reference))
    mean_kl = float((theirs.exp() * (theirs - ours)).sum(-1).double().mean())
    if not mean_kl <= MAX_MEAN_KL:
        raise ParityFailed(
            f"The compressed model's answers have nothing to do with the source's (mean KL {mean_kl:.2f}), so nothing "
            "was published; choose --layers int8_asym or a smaller group size."
        )
    agreement = float((stored.argmax(-1) == reference.argmax(-1)).mean())
    return EndToEnd(
        positions=int(np.prod(reference.shape[:2])), top1_agreement=agreement, mean_kl=mean_kl, fp32_error=fp32_error
    )


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
