"""The draft model's rows keep its cache true to what the target said, whatever the target accepted."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.stage.types import Sampling, StreamId
from console.pipeline.speculation.board import NEAR_TOKENS, PREFILL_TOKENS, DraftBoard, DraftStep

VOCABULARY = 50
ONE, TWO = StreamId(1), StreamId(2)


def next_token(ids: list[int]) -> int:
    """The toy model: what it says depends on everything before."""
    return (sum((at + 1) * token for at, token in enumerate(ids)) + len(ids)) % VOCABULARY


class ToyModel:
    """Runs steps as an engine and a tail would, and refuses what they would refuse."""

    def __init__(self) -> None:
        self.caches: dict[StreamId, list[int]] = {}
        self.rows = 0

    def run(self, step: DraftStep) -> list[int]:
        for stream in step.release:
            self.caches.pop(stream, None)
        ids: list[int] = []
        at = 0
        for row in step.rows:
            assert (row.stream not in self.caches) == (row.sampling is not None)
            cache = self.caches.setdefault(row.stream, [])
            if row.truncate_to >= 0:
                del cache[row.truncate_to :]
            assert row.first == len(cache)
            for _ in range(row.count):
                cache.append(step.tokens[at])
                at += 1
            ids += [next_token(cache)] * row.wants
            self.rows += 1
        assert at == len(step.tokens)
        return ids


def make_board(**fields: Any) -> DraftBoard:
    return DraftBoard(**{"vocab_size": VOCABULARY, "context_tokens": 1000, **fields})


def run(board: DraftBoard, model: ToyModel) -> list[StreamId]:
    """Run until nothing is to do; returns who got a guess, in order."""
    complete: list[StreamId] = []
    while (step := board.next_step()) is not None:
        complete += board.took(model.run(step))
    return complete


def continued(ids: list[int], count: int) -> list[int]:
    said = list(ids)
    for _ in range(count):
        said.append(next_token(said))
    return said[len(ids) :]


def test_a_prompt_is_fed_before_anybody_asks() -> None:
    board, model = make_board(), ToyModel()
    board.begin(ONE, list(range(40)), Sampling())
    assert run(board, model) == []
    assert model.caches[ONE] == list(range(39))


def test_a_long_prompt_is_fed_in_chunks_beside_the_drafts_of_others() -> None:
    board, model = make_board(), ToyModel()
    board.begin(ONE, [1, 2, 3], Sampling())
    run(board, model)
    board.begin(TWO, [5] * 3 * PREFILL_TOKENS, Sampling())
    board.ask(ONE, [1, 2, 3], 2)
    step = board.next_step()
    assert step is not None
    assert [(row.stream, row.count, row.wants) for row in step.rows] == [(ONE, 1, 1), (TWO, PREFILL_TOKENS - 1, 0)]
    board.took(model.run(step))
    assert run(board, model) == [ONE]
    assert board.drafts(ONE) == continued([1, 2, 3], 2)


def test_streams_that_guess_at_the_same_time_share_their_steps() -> None:
    board, model = make_board(), ToyModel()
    for stream in (ONE, TWO):
        board.begin(stream, [stream, 2], Sampling())
    run(board, model)
    steps_before = model.rows
    board.ask(ONE, [1, 2], 3)
    board.ask(TWO, [2, 2], 3)
    steps = 0
    while (step := board.next_step()) is not None:
        board.took(model.run(step))
        steps += 1
    assert (steps, model.rows - steps_before) == (3, 6)
    assert [board.drafts(stream) for stream in (ONE, TWO)] == [continued([1, 2], 3), continued([2, 2], 3)]


def test_after_a_round_without_an_error_the_last_draft_is_fed_with_the_targets_token() -> None:
    board, model = make_board(), ToyModel()
    ids = [3, 1, 4]
    board.begin(ONE, ids, Sampling())
    board.ask(ONE, ids, 3)
    run(board, model)
    said = [*ids, *board.drafts(ONE), 7]
    board.ask(ONE, said, 1)
    step = board.next_step()
    assert step is not None
    (row,) = step.rows
    assert (row.first, row.count, row.truncate_to, step.tokens) == (5, 2, -1, said[-2:])


def test_after_a_rejected_draft_the_cache_goes_back_and_is_fed_the_correction() -> None:
    board, model = make_board(), ToyModel()
    ids = [3, 1, 4]
    board.begin(ONE, ids, Sampling())
    board.ask(ONE, ids, 4)
    run(board, model)
    first = board.drafts(ONE)[0]
    said = [*ids, first, (board.drafts(ONE)[1] + 1) % VOCABULARY]
    board.ask(ONE, said, 1)
    step = board.next_step()
    assert step is not None
    (row,) = step.rows
    assert (row.first, row.count, row.truncate_to, step.tokens) == (4, 1, 4, said[-1:])


def test_asking_twice_for_the_same_feeds_the_newest_token_again() -> None:
    board, model = make_board(), ToyModel()
    board.begin(ONE, [3, 1, 4], Sampling())
    board.ask(ONE, [3, 1, 4], 2)
    run(board, model)
    board.ask(ONE, [3, 1, 4], 2)
    assert run(board, model) == [ONE]
    assert board.drafts(ONE) == continued([3, 1, 4], 2)


def test_a_stopped_guess_keeps_its_drafts_and_the_late_one_is_dropped() -> None:
    board, model = make_board(), ToyModel()
    board.begin(ONE, [3, 1, 4], Sampling())
    board.ask(ONE, [3, 1, 4], 5)
    step = board.next_step()
    assert step is not None
    board.took(model.run(step))
    late = board.next_step()
    assert late is not None
    board.stop(ONE)
    drafts = board.drafts(ONE)
    said = [3, 1, 4, *[(token + 1) % VOCABULARY for token in drafts]]
    board.ask(ONE, said, 2)
    assert board.took(model.run(late)) == []
    assert run(board, model) == [ONE]
    assert board.drafts(ONE) == continued(said, 2)


def test_a_stop_token_ends_a_guess() -> None:
    wanted = continued([3, 1, 4], 8)
    board, model = make_board(stops=[wanted[2]]), ToyModel()
    board.begin(ONE, [3, 1, 4], Sampling())
    board.ask(ONE, [3, 1, 4], 8)
    assert run(board, model) == [ONE]
    assert board.drafts(ONE) == wanted[: wanted.index(wanted[2]) + 1]


def test_a_token_that_the_target_does_not_have_is_no_draft() -> None:
    wanted = continued([3, 1, 4], 1)
    board, model = make_board(vocab_size=wanted[0]), ToyModel()
    board.begin(ONE, [3, 1, 4], Sampling())
    board.ask(ONE, [3, 1, 4], 4)
    assert run(board, model) == [ONE]
    assert board.drafts(ONE) == []


def test_guesses_stay_within_the_draft_models_context() -> None:
    board, model = make_board(context_tokens=6), ToyModel()
    board.begin(ONE, [3, 1, 4, 1, 5, 9, 2, 6], Sampling())
    assert not board.can_guess(ONE, [3, 1, 4, 1, 5, 9, 2, 6])
    run(board, model)
    assert len(model.caches[ONE]) == 6
    board.begin(TWO, [3, 1, 4], Sampling())
    board.ask(TWO, [3, 1, 4], 8)
    run(board, model)
    assert len(board.drafts(TWO)) == 3


def test_a_stream_that_is_far_behind_guesses_nothing_until_it_caught_up() -> None:
    board, model = make_board(), ToyModel()
    ids = [1] * (NEAR_TOKENS + 10)
    board.begin(ONE, ids, Sampling())
    assert not board.can_guess(ONE, ids)
    run(board, model)
    assert board.can_guess(ONE, ids)
    assert not board.can_guess(TWO, ids)


def test_a_forgotten_stream_is_released_and_its_guess_goes_nowhere() -> None:
    board, model = make_board(), ToyModel()
    board.begin(ONE, [3, 1, 4], Sampling())
    board.ask(ONE, [3, 1, 4], 5)
    step = board.next_step()
    assert step is not None
    board.forget(ONE)
    assert board.took(model.run(step)) == []
    run(board, model)
    assert model.caches == {}
    board.forget(ONE)


def test_after_a_restart_everything_is_fed_anew() -> None:
    board, model = make_board(), ToyModel()
    board.begin(ONE, [3, 1, 4], Sampling(temperature=0.5, seed=9))
    board.ask(ONE, [3, 1, 4], 2)
    board.next_step()
    board.restart()
    board.ask(ONE, [3, 1, 4], 2)
    assert run(board, model) == [ONE]
    assert board.drafts(ONE) == continued([3, 1, 4], 2)


def test_a_draft_is_sampled_as_the_stream_is_but_without_log_probabilities_and_grammar() -> None:
    board = make_board()
    asked = Sampling(
        temperature=0.5,
        seed=9,
        presence_penalty=1.0,
        logprobs=3,
        grammar="start: /x/",
        logit_bias={4: 1.0, VOCABULARY: 9.0},
    )
    board.begin(ONE, [3, 1, 4], asked)
    board.ask(ONE, [3, 1, 4], 2)
    step = board.next_step()
    assert step is not None
    (row,) = step.rows
    assert row.sampling == Sampling(temperature=0.5, seed=9, presence_penalty=1.0, logit_bias={4: 1.0})
    assert row.ids == [3, 1, 4]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_however_rounds_end_each_guess_is_what_the_model_would_say(seed: int) -> None:
    chance = random.Random(seed)
    board, model = make_board(), ToyModel()
    streams = [StreamId(number) for number in range(3)]
    said = {stream: [chance.randrange(VOCABULARY) for _ in range(chance.randint(1, 9))] for stream in streams}
    for stream in streams:
        board.begin(stream, said[stream], Sampling())
    for _ in range(12):
        asking = [stream for stream in streams if chance.random() < 0.7]
        for stream in asking:
            board.ask(stream, said[stream], chance.randint(1, 5))
        assert sorted(run(board, model)) == asking
        for stream in asking:
            drafts = board.drafts(stream)
            assert drafts == continued(said[stream], len(drafts))
            accepted = chance.randint(0, len(drafts))
            said[stream] += [*drafts[:accepted], chance.randrange(VOCABULARY)]


@pytest.mark.parametrize("count", [0, 5])
def test_nothing_to_do_is_no_step(count: int) -> None:
    board, model = make_board(), ToyModel()
    assert board.next_step() is None
    board.begin(ONE, [1], Sampling())
    if count:
        board.ask(ONE, [1], count)
        assert run(board, model) == [ONE]
    assert board.next_step() is None
