"""The parity gates: a unit must compute what transformers computes, on real text, through the cache.

Each layer gets the hidden states that real text has at its depth, in one row at the first positions and one row at
late positions (RoPE errors show only there), cut into two chunks so that the cache is used. The float32 unit must
agree with transformers' own layer; the compressed unit's error is recorded. The logits at the end judge the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import openvino as ov
import torch

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
    """Hidden states [2,n,H] of the text at one depth: by transformers, by the float32 units, by the stored units."""

    reference: Array
    plain: Array
    stored: Array


class Gate:
    """Follows one text through a model while it is built, unit by unit. Use from one thread."""

    def __init__(self, skeleton: Skeleton, token_ids: list[int]) -> None:
        self._skeleton = skeleton
        self._core = ov.Core()
        tokens = max(4, min(ROW_TOKENS, skeleton.context_tokens // 2))
        ids = (token_ids or [0]) * (2 * tokens // max(1, len(token_ids)) + 1)
        self.input_ids = torch.tensor(ids[: 2 * tokens], dtype=torch.long).reshape(2, tokens)
        late = min(skeleton.context_tokens, MAX_LATE_POSITION) - tokens
        self.position_ids = torch.arange(tokens)[None] + torch.tensor([[0], [late]])
        self._tables: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def rope(self, unit: ov.Model, rope: int) -> float:
        """Check the rotary tables of one kind at early positions and up to the context limit."""
        limit = self._skeleton.context_tokens
        spread = torch.linspace(0, limit - 1, self.position_ids.shape[1]).long()
        positions = torch.cat([self.position_ids, spread[None]])
        # Some models choose their frequencies by the longest position of a call, so each row is its own call.
        rows = [self._skeleton.rotary(self._skeleton.ropes[rope], row[None]) for row in positions]
        cos, sin = (torch.cat(tables) for tables in zip(*rows, strict=True))
        compiled = self._compile(unit)
        # cos and sin lie in [-1, 1] up to a scale: float32 rounding of large angles is the only difference allowed.
        results = [compiled([row[None].numpy()]) for row in positions]
        found = [np.concatenate([result[port] for result in results]) for port in (0, 1)]
        error = max(relative_error(found[0], cos.numpy()), relative_error(found[1], sin.numpy()))
        check(error, f"rotary tables {rope}")
        self._tables[rope] = (cos[:2], sin[:2])
        return error

    def rotary_size(self, rope: int) -> int:
        """Return R, the width of that kind's tables; call `rope` first."""
        return int(self._tables[rope][0].shape[-1])

    def embed(self, plain: ov.Model, stored: ov.Model) -> tuple[Parity, Chains]:
        """Check the embedding and start the chains."""
        reference = self._skeleton.embed(self.input_ids).numpy()
        ids = self.input_ids.numpy()
        chains = Chains(reference, self._compile(plain)([ids])[0], self._compile(stored)([ids])[0])
        parity = Parity(relative_error(chains.plain, reference), relative_error(chains.stored, reference))
        check(parity.fp32_error, "embed")
        return parity, chains

    def layer(
        self, name: str, call: LayerCall, units: tuple[ov.Model, ov.Model], chains: Chains, kind: tuple[int, int]
    ) -> tuple[Parity, Chains]:
        """Check one layer and take the chains through it; `units` is (plain, stored), `kind` (rope, window)."""
        (plain, stored), (rope, window) = units, kind
        cos, sin = self._tables[rope]
        mask = causal_mask(self.input_ids.shape[1], window)
        with torch.no_grad():
            reference = call.run(torch.from_numpy(chains.reference), mask, cos, sin, None).numpy()
        twice = np.concatenate
        plain_out = self._in_two_chunks(plain, twice([chains.reference, chains.plain]), mask, cos, sin)
        stored_out = self._in_two_chunks(stored, twice([chains.reference, chains.stored]), mask, cos, sin)
        parity = Parity(relative_error(plain_out[:2], reference), relative_error(stored_out[:2], reference))
        check(parity.fp32_error, name)
        return parity, Chains(reference, plain_out[2:], stored_out[2:])

    def head(self, plain: ov.Model, stored: ov.Model, chains: Chains) -> tuple[Parity, EndToEnd]:
        """Check the head, then judge the logits at the end of the three chains."""
        with torch.no_grad():
            reference = self._skeleton.head(torch.from_numpy(chains.reference)).numpy()
        compiled, compressed = self._compile(plain), self._compile(stored)
        parity = Parity(
            relative_error(compiled([chains.reference])[0], reference),
            relative_error(compressed([chains.reference])[0], reference),
        )
        check(parity.fp32_error, "head")
        return parity, compare_logits(reference, compiled([chains.plain])[0], compressed([chains.stored])[0])

    def _in_two_chunks(
        self, model: ov.Model, hidden: Array, mask: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> Array:
        compiled = self._compile(model)
        rows, tokens = hidden.shape[:2]
        full = np.broadcast_to(mask.numpy(), (rows, 1, tokens, tokens))
        tables = [np.tile(table.numpy(), (rows // len(table), 1, 1)) for table in (cos, sin)]
        past = [np.zeros((rows, heads, 0, size), np.float32) for heads, size in cache_shapes(model)]
        outputs = []
        for first, last in ((0, tokens // 2), (tokens // 2, tokens)):
            chunk = [hidden[:, first:last], full[:, :, first:last, :last], *(table[:, first:last] for table in tables)]
            result = compiled([np.ascontiguousarray(part) for part in chunk] + past)
            outputs.append(result[0])
            past = [result[1], result[2]]
        return np.concatenate(outputs, 1)

    def _compile(self, model: ov.Model) -> Any:
        return self._core.compile_model(model, "CPU", _EXACT)


def cache_shapes(unit: ov.Model) -> list[tuple[int, int]]:
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
    if not error <= MAX_RELATIVE_ERROR:
        raise ParityFailed(
            f"The unit {what} differs from transformers by {error:.1e} (allowed {MAX_RELATIVE_ERROR:.0e}), so nothing "
            "was published; this model cannot be exported by this version."
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
