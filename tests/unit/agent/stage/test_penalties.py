"""Bias, penalties and log-probabilities against slow references, and the tail's memory of its streams."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax

from agent.stage.errors import BadStep
from agent.stage.penalties import History, Shift
from agent.stage.sampling import log_probabilities, sample
from agent.stage.tail import Tail
from agent.stage.types import Logprobs, Sampling, StreamId
from tests.support.stage import make_row

VOCAB = 40
tokens = st.integers(0, VOCAB - 1)
histories = st.lists(tokens, max_size=60)
biases = st.dictionaries(tokens, st.floats(-99, 99), max_size=5)
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    seed=st.integers(0, 1000),
    repetition_penalty=st.floats(0.5, 2),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    logit_bias=biases,
    answer_start=st.integers(0, 20),
)


def make_logits(rows: int = 1, *, seed: int = 0, scale: float = 3.0) -> Any:
    return np.random.default_rng(seed).normal(0, scale, (rows, VOCAB)).astype(np.float32)


def ids_of(history: list[int]) -> Any:
    return np.array(history, np.int32)


def slow(logits: Any, sampling: Sampling, history: list[int]) -> list[float]:
    """The definition, one token after the other."""
    answer = Counter(history[sampling.answer_start :])
    moved = []
    for token, logit in enumerate(map(float, logits)):
        value = logit + sampling.logit_bias.get(token, 0.0)
        if token in history:
            value = value / sampling.repetition_penalty if value > 0 else value * sampling.repetition_penalty
        value -= answer[token] * sampling.frequency_penalty
        value -= sampling.presence_penalty * (token in answer)
        moved.append(value)
    return moved


def generate(tail: Tail, logits: Any, ids: list[int], sampling: Sampling, *, stream: int = 1, wants: int = 1) -> Any:
    """Send `ids` as one row of a new stream; `logits` are those of its last `wants` positions."""
    row = make_row(stream, 0, len(ids), wants=wants, sampling=sampling, ids=ids if sampling.needs_history else None)
    tail.expect([row])
    tail.extend([row])
    return tail.pick([row], logits)


@given(seed=st.integers(0, 99), sampling=samplings, history=histories)
def test_logits_move_as_the_slow_reference_moves_them(seed: int, sampling: Sampling, history: list[int]) -> None:
    logits = make_logits(seed=seed)[0]
    before = logits.copy()
    moved = Shift(sampling).apply(logits, ids_of(history))
    np.testing.assert_allclose(moved, slow(logits, sampling, history), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(logits, before)


@given(seed=st.integers(0, 99), banned=st.sets(tokens, min_size=1, max_size=VOCAB - 1),
       temperature=st.sampled_from([0.0, 1.0, 2.0]), scale=st.sampled_from([0.1, 3.0, 500.0]))  # fmt: skip
def test_minus_100_bans_whatever_the_logits(seed: int, banned: set[int], temperature: float, scale: float) -> None:
    sampling = Sampling(temperature, seed=seed, logit_bias=dict.fromkeys(banned, -100.0))
    ids, _ = generate(Tail(VOCAB), make_logits(seed=seed, scale=scale), [1, 2], sampling)
    assert ids[0] not in banned


@given(seed=st.integers(0, 99), forced=st.sets(tokens, min_size=1, max_size=5), temperature=st.sampled_from([0.0, 1.0]))
def test_plus_100_leaves_nothing_else_and_keeps_their_order(seed: int, forced: set[int], temperature: float) -> None:
    logits = make_logits(seed=seed, scale=500.0)
    sampling = Sampling(temperature, seed=seed, logit_bias=dict.fromkeys(forced, 100.0))
    ids, _ = generate(Tail(VOCAB), logits, [1, 2], sampling)
    assert ids[0] in forced
    if temperature == 0:
        assert ids[0] == max(forced, key=lambda token: logits[0, token])


def test_banning_every_token_still_gives_one() -> None:
    ids, _ = generate(Tail(VOCAB), make_logits(), [1], Sampling(1.0, logit_bias=dict.fromkeys(range(VOCAB), -100.0)))
    assert 0 <= ids[0] < VOCAB


@given(seed=st.integers(0, 99), history=st.lists(tokens, min_size=1, max_size=20), temperature=st.floats(0, 2))
def test_neutral_parameters_change_nothing(seed: int, history: list[int], temperature: float) -> None:
    logits = make_logits(seed=seed)
    neutral = Sampling(temperature, seed=seed, logit_bias={3: 0.0}, logprobs=0)
    ids, _ = generate(Tail(VOCAB), logits, history, neutral)
    assert ids.tolist() == sample(logits, [(Sampling(temperature, seed=seed), len(history))]).tolist()


@given(st.data())
def test_a_stream_does_not_depend_on_the_streams_beside_it(data: st.DataObject) -> None:
    asked = data.draw(st.lists(samplings, min_size=2, max_size=4))
    prompts = [data.draw(st.lists(tokens, min_size=1, max_size=30)) for _ in asked]
    logits = make_logits(len(asked))
    together, rows = Tail(VOCAB), []
    for stream, (sampling, prompt) in enumerate(zip(asked, prompts, strict=True)):
        rows.append(make_row(stream, 0, len(prompt), sampling=sampling, ids=prompt))
    together.expect(rows)
    together.extend(rows)
    ids, _ = together.pick(rows, logits)
    alone = [
        int(generate(Tail(VOCAB), logits[[at]], prompt, sampling)[0][0])
        for at, (sampling, prompt) in enumerate(zip(asked, prompts, strict=True))
    ]
    assert ids.tolist() == alone


@given(sampling=samplings, ids=st.lists(tokens, min_size=4, max_size=30), wants=st.integers(2, 4))
def test_a_verify_row_gives_each_position_the_history_in_front_of_it(
    sampling: Sampling, ids: list[int], wants: int
) -> None:
    logits = make_logits(wants)
    at_once = generate(Tail(VOCAB), logits, ids, sampling, wants=wants)[0].tolist()
    tail, one_by_one = Tail(VOCAB), []
    first = len(ids) - wants + 1
    one_by_one += generate(tail, logits[:1], ids[:first], sampling)[0].tolist()
    for place in range(1, wants):
        row = make_row(1, first + place - 1, 1, ids=[ids[first + place - 1]] if sampling.needs_history else None)
        tail.expect([row])
        tail.extend([row])
        one_by_one += tail.pick([row], logits[[place]])[0].tolist()
    assert at_once == one_by_one


@given(keep=st.integers(1, 10), sampling=samplings, ids=st.lists(tokens, min_size=10, max_size=20))
def test_truncating_a_stream_cuts_its_history(keep: int, sampling: Sampling, ids: list[int]) -> None:
    logits = make_logits(1, seed=keep)
    tail = Tail(VOCAB)
    generate(tail, logits, ids, sampling)
    row = make_row(1, keep, 1, truncate_to=keep, ids=[7] if sampling.needs_history else None)
    tail.expect([row])
    tail.extend([row])
    expected = generate(Tail(VOCAB), logits, [*ids[:keep], 7], sampling)[0]
    assert tail.pick([row], logits)[0].tolist() == expected.tolist()


def test_a_history_is_written_cut_and_grown() -> None:
    history = History()
    history.write(0, range(300))
    history.write(2, [9, 8])
    assert (len(history), history.before(10).tolist()) == (4, [0, 1, 9, 8])
    assert history.before(3).tolist() == [0, 1, 9]


def test_a_prompt_whose_cache_is_there_already_travels_with_the_first_row() -> None:
    tail, sampling = Tail(VOCAB), Sampling(frequency_penalty=2.0)
    row = make_row(1, 3, 1, sampling=sampling, ids=[5, 6, 5, 6])
    tail.expect([row])
    tail.extend([row])
    expected = generate(Tail(VOCAB), make_logits(), [5, 6, 5, 6], sampling)[0]
    assert tail.pick([row], make_logits())[0].tolist() == expected.tolist()


@pytest.mark.parametrize(
    "ids", [None, [], [1], [1, 2, VOCAB], [-1, 1, 2], [1, 2, 3, 4]], ids=["none", "empty", "few", "big", "low", "many"]
)
def test_a_penalised_row_without_its_ids_is_a_bad_step(ids: list[int] | None) -> None:
    with pytest.raises(BadStep):
        Tail(VOCAB).expect([make_row(1, 0, 3, sampling=Sampling(presence_penalty=1.0), ids=ids)])


@pytest.mark.parametrize(
    "sampling", [Sampling(repetition_penalty=0.0), Sampling(logit_bias={VOCAB: 1.0}), Sampling(logprobs=21)]
)
def test_what_no_tail_can_do_is_a_bad_step(sampling: Sampling) -> None:
    with pytest.raises(BadStep):
        Tail(VOCAB).expect([make_row(sampling=sampling)])


def test_a_released_stream_leaves_nothing_behind() -> None:
    tail = Tail(VOCAB)
    generate(tail, make_logits(), [1, 2], Sampling(presence_penalty=1.0, logit_bias={1: -100.0}, logprobs=2))
    tail.release(StreamId(1))
    ids, logprobs = tail.pick([make_row()], make_logits())
    assert (ids.tolist(), logprobs) == ([make_logits()[0].argmax()], [])


@given(seed=st.integers(0, 99), scale=st.sampled_from([0.01, 3.0, 1000.0]), count=st.integers(0, VOCAB + 5))
def test_log_probabilities_are_the_log_softmax(seed: int, scale: float, count: int) -> None:
    logits = make_logits(seed=seed, scale=scale)[0]
    expected = log_softmax(logits.astype(np.float64))
    scored = log_probabilities(logits, 5, count)
    assert scored.chosen == pytest.approx(expected[5], abs=1e-9)
    best = sorted(range(VOCAB), key=lambda token: (-logits[token], token))[:count]
    assert [token for token, _ in scored.top] == best
    assert [value for _, value in scored.top] == pytest.approx(expected[best].tolist(), abs=1e-9)
    assert np.exp([value for _, value in scored.top]).sum() <= 1 + 1e-9


def test_ties_among_the_best_go_to_the_lowest_ids() -> None:
    assert [token for token, _ in log_probabilities(np.zeros(VOCAB, np.float32), 0, 3).top] == [0, 1, 2]


def test_log_probabilities_travel_only_for_those_who_asked_and_are_the_models_own() -> None:
    tail, logits = Tail(VOCAB), make_logits(3)
    rows = [
        make_row(1, 0, 2, wants=2, sampling=Sampling(logprobs=1, logit_bias={4: 100.0})),
        make_row(2, 0, 1, sampling=Sampling()),
    ]
    tail.expect(rows)
    tail.extend(rows)
    ids, logprobs = tail.pick(rows, logits)
    assert ids.tolist()[:2] == [4, 4]
    assert [isinstance(entry, Logprobs) for entry in logprobs] == [True, True, False]
    assert logprobs[1] is not None
    assert logprobs[1].chosen == pytest.approx(log_softmax(logits[1].astype(np.float64))[4])
    assert logprobs[1].top[0][0] == logits[1].argmax()
