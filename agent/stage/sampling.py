"""How the tail picks tokens: greedy, or Gumbel-max with noise that depends only on `(seed, position, token id)`.

Adding Gumbel noise to scaled logits and taking the largest draws exactly from their softmax. The noise of a position
comes from Philox-4x64 with key `(seed, 0)` and counter `(0, 0, position, 0)`: the 64-bit word number i belongs to
token id i. No generator is carried from one token to the next, so a stream that is batched, verified, replayed or
moved to another PC draws the same tokens. `position` is the logical position the sampled token will have.

Filters apply in the customary order: temperature, top_k, top_p, min_p. Ties are kept by top_k and go to the lowest
id otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from agent.stage.errors import EngineFailed
from agent.stage.types import Sampling

GREEDY = Sampling()

NOISE_SPAN = 42.0
"""Gumbel noise from 53-bit uniforms lies in [-3.7, 37.5]: a token further below the best can never win."""

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
    if not len(ids):
        return best
    noise = gumbel(sampling.seed, position, len(logits))[ids] if len(ids) > 1 else 0.0
    return int(ids[(scores + noise).argmax()])


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


def _nucleus(scores: npt.NDArray[np.float64], top_p: float) -> npt.NDArray[Any]:
    """Index the smallest set of best scores whose probability reaches `top_p`; at least one."""
    weights = np.exp(scores)
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


def gumbel(seed: int, position: int, count: int) -> npt.NDArray[np.float64]:
    """Return the noise of the ids `0 <= id < count` at a position; the same numbers on every machine."""
    key = np.array([seed & 0xFFFF_FFFF_FFFF_FFFF, 0], np.uint64)
    counter = np.array([0, 0, position, 0], np.uint64)
    words = np.random.Philox(key=key, counter=counter).random_raw(count)
    # Half a step up, so that no uniform is 0 and no logarithm infinite.
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    noise: npt.NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise
