"""Drafts change how many tokens a round gives and never which: the scheduler against a model that it cannot know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agent.stage.types import Logprobs, Sampling, StreamId
from console.pipeline.plans import Limits, Outcome
from console.pipeline.scheduler import Scheduler
from tests.support.played_stages import WRONG, Guesses, PlayedStages, next_token, plain_answer


def make_scheduler(drafts: Guesses, **limits: Any) -> Scheduler:
    values = {"stages": 1, "kv_tokens": 4096, "context_tokens": 512, "streams": 8}
    return Scheduler(Limits(**(values | limits)), drafts)


def play(
    drafts: Guesses, *, prompt: Sequence[int] = (3, 1), tokens: int = 20, eos: Sequence[int] = (), **limits: Any
) -> tuple[PlayedStages, list[int]]:
    scheduler = make_scheduler(drafts, **limits)
    stages = PlayedStages(scheduler)
    stream = scheduler.add(list(prompt), tokens, sampling=Sampling(), eos=eos)
    stages.run()
    return stages, stages.answers[stream]


def ending_at(count: int) -> tuple[list[int], int]:
    """Return a prompt whose answer shows a token for the first time as its `count`th one, and that token."""
    for start in range(1000):
        answer = plain_answer([start], count)
        if answer[-1] not in answer[:-1]:
            return [start], answer[-1]
    raise AssertionError("no such prompt")


@pytest.mark.parametrize(("right", "rounds"), [(4, 4), (2, 7), (1, 10), (0, 19)])
def test_the_rounds_fall_with_what_is_accepted_and_the_answer_stays(right: int, rounds: int) -> None:
    drafts = Guesses((4, right))
    stages, answer = play(drafts)
    assert answer == plain_answer([3, 1], 20)
    assert sum(row.wants > 0 and row.first > 0 for step in stages.steps for row in step.rows) == rounds
    # The last token needs no drafts: there would be no room for them.
    assert all(accepted == min(right, count) for count, accepted in drafts.judgements)


def test_a_verify_row_holds_the_newest_token_and_its_drafts_and_wants_all_their_successors() -> None:
    stages, _ = play(Guesses((3, 3)), tokens=9)
    rows = [(row.first, row.count, row.wants, row.truncate_to) for step in stages.steps for row in step.rows]
    assert rows == [(0, 2, 1, -1), (2, 4, 4, -1), (6, 4, 4, -1)]


def test_rejected_drafts_are_truncated_by_the_next_row() -> None:
    stages, _ = play(Guesses((3, 1)), tokens=6)
    rows = [(row.first, row.count, row.truncate_to) for step in stages.steps for row in step.rows]
    assert rows == [(0, 2, -1), (2, 4, -1), (4, 3, 4), (6, 1, 6)]


def test_one_draft_that_is_right_gives_two_tokens_a_round() -> None:
    stages, answer = play(Guesses((1, 1)), tokens=9)
    assert len(answer) == 9
    assert [len(step.tokens) for step in stages.steps if step.rows] == [2, 2, 2, 2, 2]


def test_an_end_token_among_accepted_drafts_ends_the_answer_there() -> None:
    prompt, end = ending_at(4)
    stages, answer = play(Guesses((8, 8)), prompt=prompt, eos=[end])
    assert (answer, list(stages.finished.values())) == (plain_answer(prompt, 4), ["stop"])
    assert not stages.caches


def test_drafts_keep_to_the_answers_limit_and_to_the_context() -> None:
    for tokens, context, length in ((6, 512, 6), (100, 16, 14)):
        drafts = Guesses((50, 50))
        stages, answer = play(drafts, tokens=tokens, context_tokens=context)
        assert answer == plain_answer([3, 1], length)
        assert list(stages.finished.values()) == ["length"]
        assert drafts.rooms == [length - 2]


def test_the_last_token_is_not_guessed_at() -> None:
    drafts = Guesses((5, 5))
    _, answer = play(drafts, tokens=2)
    assert (len(answer), drafts.asked) == (2, 0)


def test_a_stream_waits_for_its_drafts_while_others_go_on() -> None:
    drafts = Guesses(None)
    scheduler = make_scheduler(drafts, streams=2)
    stages = PlayedStages(scheduler)
    waits = scheduler.add([1], 20, sampling=Sampling())
    stages.send()
    stages.answer()
    stages.send()
    assert not stages.flying
    scheduler.add([2], 1, sampling=Sampling())
    stages.send()
    assert [row.stream for row in stages.flying[0][0].rows] == [2]
    stages.answer()
    drafts.plan = ((3, 3),)
    stages.run()
    assert stages.answers[waits] == plain_answer([1], 20)


def test_every_round_is_judged_and_every_stream_forgotten_once() -> None:
    drafts = Guesses((2, 1))
    stages, _ = play(drafts, tokens=7)
    assert drafts.judgements == [(0, 0), (2, 1), (2, 1), (1, 1)]
    assert drafts.forgotten == [StreamId(1)]
    assert not stages.caches


@pytest.mark.parametrize("how", ["cancel", "fail_step", "fail_all"])
def test_a_round_that_is_cut_off_is_never_judged(how: str) -> None:
    drafts = Guesses((4, 4))
    scheduler = make_scheduler(drafts)
    stages = PlayedStages(scheduler)
    stream = scheduler.add([1], 20, sampling=Sampling())
    stages.send()
    stages.answer()
    stages.send()
    before = list(drafts.judgements)
    if how == "cancel":
        assert scheduler.cancel(stream)
        assert stages.answer() == []
        stages.run()
    elif how == "fail_step":
        assert scheduler.fail_step(stages.flying.popleft()[0].id) == [stream]
        stages.run()
    else:
        assert scheduler.fail_all() == [stream]
    assert (drafts.judgements, drafts.forgotten) == (before, [stream])


def test_each_accepted_token_keeps_its_own_log_probability() -> None:
    scheduler = make_scheduler(Guesses((4, 2)))
    stream = scheduler.add([3, 1], 20, sampling=Sampling(logprobs=0))
    step = scheduler.schedule()
    assert step is not None
    first = next_token([3, 1])
    scheduler.update(step.id, [first], [Logprobs(-1.0, [])])
    step = scheduler.schedule()
    assert step is not None
    assert len(step.tokens) == 5
    sampled = [next_token([3, 1, *step.tokens[: place + 1]]) for place in range(5)]
    scores = [Logprobs(-float(place), []) for place in range(5)]
    expected = plain_answer([3, 1], 4)[1:]
    assert scheduler.update(step.id, sampled, scores) == [Outcome(stream, expected, None, scores[:3], drafted=4)]


def test_rows_of_a_penalised_stream_carry_their_drafts() -> None:
    scheduler = make_scheduler(Guesses((2, 0)))
    scheduler.add([3, 1], 20, sampling=Sampling(presence_penalty=1.0))
    rows = []
    for _ in range(2):
        step = scheduler.schedule()
        assert step is not None
        rows += step.rows
        scheduler.update(step.id, [0] * step.wants)
    assert [row.ids for row in rows] == [[3, 1], [0, WRONG, WRONG]]
