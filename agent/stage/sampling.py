"""How the tail picks tokens: greedy, or Gumbel-max with noise that depends only on `(seed, position, token id)`.

Adding Gumbel noise to scaled logits and taking the largest draws exactly from their softmax. The noise of a position
comes from Philox-4x64 with key `(seed, 0)` and counter `(0, 0, position, 0)`: the 64-bit word number i belongs to
token id i. No generator is carried from one token to the next, so a stream that is batched, verified, replayed or
moved to another PC draws the same tokens. `position` is the logical position the sampled token will have.

Filters apply in the customary order: temperature, top_k, top_p, min_p. Ties are kept by top_k and go to the lowest
id otherwise. Bias and penalties come before all of them (`penalties.py`); log-probabilities are those of the logits
as the model made them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from agent.stage.errors import EngineFailed
from agent.stage.types import Logprobs, Sampling

GREEDY = Sampling()

NOISE_SPAN = 42.0
"""Gumbel noise from 52-bit uniforms lies in [-3.7, 36.8]: a token further below the best can never win."""

FEW = 256
"""Up to here two logarithms for every candidate cost less than ruling candidates out first."""

BOUND_MARGIN = 1e-4
"""More than the rounding of the bounds, relative; scores down to -42 lose up to 4e-6 in single precision."""

TOP_P_PREFIX = 512
"""Nuclei are nearly always smaller than this; sorting the whole vocabulary is the fallback."""

Logits = npt.NDArray[np.float32]


def sample(logits: Logits, choices: Sequence[tuple[Sampling, int]]) -> npt.NDArray[np.int32]:
    """Pick one id per row of `logits` [W,V]; `choices` gives each row's sampling and its new token's position.

    Raises EngineFailed for a row that holds NaN or no finite number.
    """
    ids = logits.argmax(axis=1) if len(logits) else np.zeros(0, np.int64)
    best = logits[np.arange(len(ids)), ids]
    if not np.isfinite(best).all():
        raise EngineFailed("A stage computed logits that are not finite; load its layers again or in exact numerics.")
    for row, (sampling, position) in enumerate(choices):
        if sampling.temperature > 0:
            ids[row] = _draw(logits[row], sampling, position, int(ids[row]))
    return ids.astype(np.int32)


def _draw(logits: Logits, sampling: Sampling, position: int, best: int) -> int:
    ids, scores = candidates(logits, sampling)
    if len(ids) < 2:
        return int(ids[0]) if len(ids) else best
    uniform = uniforms(sampling.seed, position, int(ids[-1]) + 1)[ids]
    if len(ids) > FEW:
        # exp(score)/uniform bounds exp(score + noise) from above, cheaply: only ids whose bound reaches the real
        # value of the best-bounded one can win.
        bounds = _exp(scores) / uniform
        leader = int(bounds.argmax())
        floor = bounds[leader] * uniform[leader] / -math.log1p(-uniform[leader])
        kept = np.flatnonzero(bounds >= floor * (1 - BOUND_MARGIN))
        ids, scores, uniform = ids[kept], scores[kept], uniform[kept]
    return int(ids[(scores + gumbel(uniform)).argmax()])


def candidates(logits: Logits, sampling: Sampling) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """Return the ids that survive the filters, ascending, with their logits divided by the temperature.

    Ids that no noise could lift to the top are left out too, unless top_p needs the whole distribution.
    """
    top = float(logits.max())
    if 0 < sampling.top_k < len(logits):
        kth = np.partition(logits, -sampling.top_k)[-sampling.top_k]
        ids = np.flatnonzero(logits >= kth)
    elif sampling.top_p < 1:
        ids = np.arange(len(logits))
    else:
        ids = np.flatnonzero(logits >= top - NOISE_SPAN * sampling.temperature)
    # Relative to the best: a temperature near zero then gives -inf for the others, never an overflow.
    with np.errstate(over="ignore"):
        scores = (logits[ids].astype(np.float64) - top) / sampling.temperature
    if sampling.top_p < 1:
        kept = _nucleus(scores, sampling.top_p)
        ids, scores = ids[kept], scores[kept]
    if sampling.min_p > 0:
        kept = np.flatnonzero(scores >= math.log(min(sampling.min_p, 1.0)))
        ids, scores = ids[kept], scores[kept]
    return ids, scores


def log_probabilities(logits: Logits, chosen: int, count: int) -> Logprobs:
    """Return the log-softmax of one position's logits [V] for the chosen id and the `count` best ids."""
    exact = logits.astype(np.float64)
    top = exact.max()
    normaliser = top + math.log(np.exp(exact - top).sum())
    count = min(count, len(logits))
    best: list[tuple[int, float]] = []
    if count > 0:
        ids = np.flatnonzero(logits >= np.partition(logits, -count)[-count])
        order = ids[np.argsort(-exact[ids], kind="stable")][:count]
        best = list(zip(order.tolist(), (exact[order] - normaliser).tolist(), strict=True))
    return Logprobs(float(exact[chosen] - normaliser), best)


def _nucleus(scores: npt.NDArray[np.float64], top_p: float) -> npt.NDArray[Any]:
    """Index the smallest set of best scores whose probability reaches `top_p`; at least one."""
    weights = _exp(scores)
    goal = top_p * weights.sum()
    order: npt.NDArray[Any]
    if len(scores) > TOP_P_PREFIX:
        prefix = np.flatnonzero(scores >= np.partition(scores, -TOP_P_PREFIX)[-TOP_P_PREFIX])
        if weights[prefix].sum() < goal:
            prefix = np.arange(len(scores))
    else:
        prefix = np.arange(len(scores))
    order = prefix[np.argsort(-scores[prefix], kind="stable")]
    count = int(np.searchsorted(np.cumsum(weights[order]), goal)) + 1
    return np.sort(order[:count])


def _exp(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Exponentials good to seven digits, which single precision does quickly over a whole vocabulary."""
    return np.exp(scores.astype(np.float32)).astype(np.float64)


def uniforms(seed: int, position: int, count: int) -> npt.NDArray[np.float64]:
    """Return numbers in (0, 1) for the ids `0 <= id < count` at a position; the same on every machine."""
    key = np.array([seed & 0xFFFF_FFFF_FFFF_FFFF, 0], np.uint64)
    counter = np.array([0, 0, position, 0], np.uint64)
    words = np.random.Philox(key=key, counter=counter).random_raw(count)
    # 52 bits and half a step up: neither 0 nor 1 can come out, so no logarithm is infinite.
    numbers: npt.NDArray[np.float64] = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return numbers


def gumbel(uniform: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Turn uniforms into Gumbel noise; small uniforms, which keep their precision, become the large noise."""
    noise: npt.NDArray[np.float64] = -np.log(-np.log1p(-uniform))
    return noise
