"""Sampling depends on logits, seed and position alone, and follows the softmax."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.stage import sampling
from agent.stage.errors import EngineFailed
from agent.stage.types import Sampling

VOCAB = 1000


def make_logits(*, rows: int = 1, vocab: int = VOCAB, seed: int = 0, scale: float = 3.0) -> Any:
    return (np.random.default_rng(seed).normal(0, scale, (rows, vocab))).astype(np.float32)


def slow_draw(logits: Any, chosen: Sampling, position: int) -> int:
    """The definition, without any short cut: noise on the whole vocabulary, then the largest that is allowed."""
    ids, _ = sampling.candidates(logits, chosen)
    scores = logits.astype(np.float64) / chosen.temperature
    noisy = scores + sampling.gumbel(sampling.uniforms(chosen.seed, position, len(logits)))
    return int(max(ids, key=lambda token: (noisy[token], -token)))


def test_greedy_takes_the_largest_and_on_ties_the_lowest_id() -> None:
    logits = np.zeros((2, 8), np.float32)
    logits[0, [3, 5]] = 2
    assert sampling.sample(logits, [(sampling.GREEDY, 1)] * 2).tolist() == [3, 0]


def test_ids_travel_as_i32() -> None:
    assert sampling.sample(make_logits(), [(Sampling(1.0), 4)]).dtype == np.int32


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_without_a_finite_best_are_an_engine_failure(value: float) -> None:
    with pytest.raises(EngineFailed, match="not finite"):
        sampling.sample(np.full((1, 8), value, np.float32), [(sampling.GREEDY, 1)])


@given(seed=st.integers(0, 2**64 - 1), position=st.integers(0, 100_000), temperature=st.floats(0.05, 5.0),
       top_k=st.integers(0, 1200), top_p=st.floats(0.01, 1.0), min_p=st.floats(0.0, 1.0))  # fmt: skip
def test_short_cuts_never_change_the_token(
    seed: int, position: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    chosen = Sampling(temperature, top_k, top_p, min_p, seed)
    logits = make_logits(seed=position)
    assert sampling.sample(logits, [(chosen, position)])[0] == slow_draw(logits[0], chosen, position)


@given(position=st.integers(1, 10_000), rows=st.integers(1, 5), data=st.data())
def test_a_row_does_not_depend_on_the_rows_beside_it(position: int, rows: int, data: st.DataObject) -> None:
    logits = make_logits(rows=rows)
    choices = [(Sampling(1.0, seed=data.draw(st.integers(0, 2**64 - 1))), position + row) for row in range(rows)]
    together = sampling.sample(logits, choices).tolist()
    alone = [int(sampling.sample(logits[row : row + 1], choices[row : row + 1])[0]) for row in range(rows)]
    assert together == alone


def test_draws_follow_the_softmax() -> None:
    logits = np.log(np.array([[0.5, 0.3, 0.15, 0.05]], np.float32))
    counts = Counter(int(sampling.sample(logits, [(Sampling(1.0, seed=1), at)])[0]) for at in range(4000))
    for token, probability in enumerate((0.5, 0.3, 0.15, 0.05)):
        assert counts[token] / 4000 == pytest.approx(probability, abs=4 * math.sqrt(probability / 4000))


def test_noise_is_the_documented_philox() -> None:
    """Pinned: a console, an agent and a replay on another version must agree."""
    assert sampling.uniforms(11, 5, 3).tolist() == pytest.approx(PINNED, abs=1e-15)


def test_noise_of_an_id_does_not_depend_on_how_many_are_asked_for() -> None:
    np.testing.assert_array_equal(sampling.uniforms(3, 9, 10), sampling.uniforms(3, 9, 1000)[:10])


def test_top_k_keeps_the_k_best() -> None:
    ids, _ = sampling.candidates(make_logits()[0], Sampling(1.0, top_k=7))
    assert set(ids) == set(np.argsort(-make_logits()[0])[:7])


@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("scale", [0.01, 3.0])
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p: float, scale: float) -> None:
    logits = make_logits(scale=scale)[0]
    ids, _ = sampling.candidates(logits, Sampling(1.0, top_p=top_p))
    weights = np.exp(logits.astype(np.float64) - logits.max())
    probabilities = weights / weights.sum()
    assert probabilities[ids].sum() >= top_p - 1e-6
    assert probabilities[ids].sum() - probabilities[ids].min() < top_p + 1e-6
    assert probabilities[ids].min() >= np.delete(probabilities, ids).max(initial=0)


def test_min_p_is_relative_to_the_best() -> None:
    logits = np.log(np.array([0.6, 0.3, 0.06, 0.04], np.float32))
    ids, _ = sampling.candidates(logits, Sampling(1.0, min_p=0.2))
    assert ids.tolist() == [0, 1]


def test_the_coldest_temperature_is_greedy() -> None:
    logits = make_logits()
    assert sampling.sample(logits, [(Sampling(1e-40), 3)])[0] == logits[0].argmax()


def test_a_real_vocabulary_is_quick() -> None:
    logits = make_logits(rows=8, vocab=49152)

    def milliseconds(chosen: Sampling) -> float:
        started = time.thread_time()
        sampling.sample(logits, [(chosen, 1)] * 8)
        return 1e3 * (time.thread_time() - started) / 8

    assert min(milliseconds(sampling.GREEDY) for _ in range(5)) < 0.2
    assert min(milliseconds(Sampling(1.0, top_k=50)) for _ in range(5)) < 4


PINNED = [0.05015716367087497, 0.9974059173186524, 0.8179516467779794]
