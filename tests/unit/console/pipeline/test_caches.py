"""Kept beginnings, room and preemption: whoever loses a place or finds one warm, the answers stay the model's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.stage.types import Sampling, StreamId
from console.pipeline.ledger import BLOCK_TOKENS, Ledger
from console.pipeline.plans import Limits
from console.pipeline.scheduler import Scheduler
from tests.support.played_stages import VOCAB, Guesses, PlayedStages, plain_answer

CONTEXT = 256


def make_stages(*, blocks: int = 64, drafts: Guesses | None = None, **limits: Any) -> PlayedStages:
    values = {"stages": 1, "kv_tokens": blocks * BLOCK_TOKENS, "context_tokens": CONTEXT, "streams": 8}
    return PlayedStages(Scheduler(Limits(**(values | limits)), *([drafts] if drafts else [])))


def prompt_of(length: int, number: int = 0) -> list[int]:
    """A prompt that differs from others of another number from its first token on."""
    return [number % VOCAB, *[(place * place + number) % VOCAB for place in range(1, length)]]


def ask(stages: PlayedStages, prompt: Sequence[int], tokens: int = 8, key: str = "") -> StreamId:
    return stages.scheduler.add(list(prompt), tokens, sampling=Sampling(), key=key)


def say(stages: PlayedStages, prompt: Sequence[int], tokens: int = 8, key: str = "") -> list[int]:
    """Ask and wait; the answer must be the model's own."""
    stream = ask(stages, prompt, tokens, key)
    stages.run()
    assert stages.answers[stream] == plain_answer(prompt, tokens)
    return stages.answers[stream]


def test_the_next_turn_of_a_conversation_runs_only_what_is_new() -> None:
    stages = make_stages()
    first = prompt_of(100)
    second = [*first, *say(stages, first, 20), 1, 2, 3, 4]
    before = stages.computed
    stream = ask(stages, second)
    stages.send()
    # 119 positions of the first turn are cached, of which 96 fill whole blocks.
    assert [(share.source, share.tokens) for share in stages.steps[-1].shares] == [(StreamId(1), 96)]
    assert stages.scheduler.reused(stream) == 96
    stages.run()
    assert stages.computed - before == len(second) - 96 + 7
    assert stages.answers[stream] == plain_answer(second, 8)


def test_a_prompt_that_is_cached_whole_still_runs_its_last_token() -> None:
    stages = make_stages()
    say(stages, prompt_of(96))
    stream = ask(stages, prompt_of(96))
    stages.send()
    (row,) = stages.steps[-1].rows
    assert (row.first, row.count, row.wants) == (64, 32, 1)
    stages.run()
    assert stages.answers[stream] == plain_answer(prompt_of(96), 8)


def test_a_running_stream_shares_what_came_back_so_far() -> None:
    stages = make_stages(prefill_tokens=64)
    ask(stages, prompt_of(80))
    stages.send()
    stages.answer()
    ask(stages, prompt_of(80))
    stages.send()
    assert [share.tokens for share in stages.steps[-1].shares] == [64]
    stages.run()


def test_other_keys_never_see_what_is_cached() -> None:
    stages = make_stages()
    say(stages, prompt_of(96), key="mine")
    before = stages.computed
    say(stages, prompt_of(96), key="yours")
    assert stages.computed - before == 96 + 7
    assert not stages.shared


def test_a_penalised_stream_tells_the_tail_its_cached_tokens_too() -> None:
    stages = make_stages()
    say(stages, prompt_of(96))
    stages.scheduler.add(prompt_of(96), 2, sampling=Sampling(presence_penalty=1.0))
    stages.send()
    (row,) = stages.steps[-1].rows
    assert (row.first, row.ids) == (64, prompt_of(96))
    assert row.sampling is not None
    assert row.sampling.answer_start == 96


def test_rejected_drafts_are_no_part_of_what_is_kept() -> None:
    stages = make_stages(drafts=Guesses((8, 3)))
    answer = say(stages, prompt_of(60), 40)
    say(stages, [*prompt_of(60), *answer, 1])
    assert [share.tokens for step in stages.steps for share in step.shares] == [96]


def test_a_cancelled_stream_leaves_its_beginning() -> None:
    stages = make_stages()
    stream = ask(stages, prompt_of(96), 50)
    stages.send()
    stages.answer()
    stages.send()
    assert stages.scheduler.cancel(stream)
    stages.run()
    say(stages, prompt_of(96))
    assert [share.tokens for step in stages.steps for share in step.shares] == [64]


def test_the_least_recently_used_beginning_makes_room_first() -> None:
    stages = make_stages(blocks=12)
    for number in range(3):
        say(stages, prompt_of(96, number))  # each keeps 4 blocks: 96 tokens and an answer
    say(stages, prompt_of(97, 0))  # used again, so the second one is now the oldest
    released = [stream for step in stages.steps for stream in step.release]
    assert released == [StreamId(2)]
    assert stages.scheduler.kept == 3


def test_kept_beginnings_never_keep_anybody_waiting() -> None:
    stages = make_stages(blocks=16, streams=2)
    for number in range(4):
        say(stages, prompt_of(100, number))
    one, two = ask(stages, prompt_of(120, 5), 100), ask(stages, prompt_of(120, 6), 100)
    stages.send()
    assert (stages.scheduler.running, stages.scheduler.waiting) == (2, 0)
    stages.run()
    for stream, number in ((one, 5), (two, 6)):
        assert stages.answers[stream] == plain_answer(prompt_of(120, number), 100)


def test_old_beginnings_are_forgotten_if_nobody_uses_them() -> None:
    stages = make_stages()
    say(stages, prompt_of(96))
    stages.scheduler.age_kept()
    assert stages.scheduler.kept == 1
    stages.scheduler.age_kept()
    assert stages.scheduler.kept == 0
    stages.run()
    assert not stages.caches


def test_a_short_stream_is_not_kept() -> None:
    stages = make_stages()
    say(stages, prompt_of(20), 10)
    assert stages.scheduler.kept == 0
    assert not stages.caches


def test_when_the_caches_are_full_the_youngest_stream_begins_anew_with_the_same_answer() -> None:
    stages = make_stages(blocks=18, streams=3)
    streams = [ask(stages, prompt_of(60, number), 150) for number in range(3)]
    stages.run()
    told = [row.stream for step in stages.steps for row in step.rows if row.sampling is not None]
    assert told[:3] == streams
    assert len(told) > 3, "nobody lost a place"
    assert streams[0] not in told[3:]
    for number, stream in enumerate(streams):
        assert stages.answers[stream] == plain_answer(prompt_of(60, number), 150)


def test_drafts_are_given_up_before_anybody_loses_a_place() -> None:
    stages = make_stages(blocks=12, streams=2, drafts=Guesses((30, 30)))
    streams = [ask(stages, prompt_of(90, number), 100) for number in range(2)]
    stages.run()
    for number, stream in enumerate(streams):
        assert stages.answers[stream] == plain_answer(prompt_of(90, number), 100)


def test_a_stream_that_lost_its_place_waits_in_front() -> None:
    stages = make_stages(blocks=12, streams=2)
    first, second = (ask(stages, prompt_of(60, number), 180, key="a") for number in range(2))
    stages.send()
    third = ask(stages, prompt_of(60, 3), 20, key="b")
    scheduler = stages.scheduler
    while scheduler.running == 2:
        stages.answer()
        stages.send()
    assert scheduler.queue() == [second, third]
    assert first not in stages.finished
    stages.run()


def test_a_failed_step_damages_nothing_that_is_kept_elsewhere() -> None:
    stages = make_stages()
    say(stages, prompt_of(96))
    lost = ask(stages, prompt_of(96))
    stages.send()
    assert stages.fail() == [lost]
    say(stages, prompt_of(96))
    assert len(stages.shared) == 2


def test_where_stages_copy_the_source_gives_its_place_to_the_copy() -> None:
    stages = make_stages(blocks=16, streams=1, shares_blocks=False, places=1)
    for number in range(3):
        say(stages, prompt_of(70, number))
    assert stages.scheduler.kept == 1
    say(stages, prompt_of(80, 2))
    (step,) = [step for step in stages.steps if step.shares]
    assert [share.source for share in step.shares] == step.release


@settings(deadline=None)
@given(
    holds=st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 200), st.integers(0, 6), st.booleans()), min_size=1, max_size=60
    )
)
def test_the_ledger_counts_each_shared_block_once(holds: list[tuple[int, int, int, bool]]) -> None:
    ledger = Ledger(40)
    for number, tokens, source, releases in holds:
        stream, other = StreamId(number), StreamId(source)
        if releases:
            ledger.release(stream)
        elif ledger.held(other) and not ledger.held(stream):
            ledger.share(stream, other, ledger.held(other) * BLOCK_TOKENS)
        elif ledger.lacks(stream, tokens) <= ledger.free:
            ledger.hold(stream, tokens)
        else:
            with pytest.raises(ValueError, match="more blocks"):
                ledger.hold(stream, tokens)
        assert 0 <= ledger.free <= 40
    everybody = [StreamId(number) for number in range(1, 7)]
    assert ledger.freed_by(everybody) == 40 - ledger.free
    for stream in everybody:
        ledger.release(stream)
    assert ledger.free == 40


BASE = prompt_of(200, 3)
PROMPT = st.builds(
    lambda shared, own: [*BASE[:shared], *own],
    st.sampled_from([0, 20, 32, 64, 70, 100]),
    st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=40),
)
REQUEST = st.tuples(
    PROMPT,
    st.integers(1, 60),
    st.sets(st.integers(0, VOCAB - 1), max_size=1),
    st.sampled_from("ab"),
    st.integers(-1, 40),
)
PLAN = st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 12), st.integers(0, 12))), min_size=1, max_size=12)
MIX = {
    "requests": st.lists(REQUEST, min_size=1, max_size=10),
    "plan": PLAN,
    "stages": st.integers(1, 4),
    "streams": st.integers(1, 5),
    "blocks": st.integers(7, 20),
    "prefill": st.sampled_from([3, 16, 256]),
    "copies": st.booleans(),
    "fails": st.sets(st.integers(1, 60), max_size=2),
}


def check_any_mix(
    *,
    requests: list[Any],
    plan: list[Any],
    stages: int,
    streams: int,
    blocks: int,
    prefill: int,
    copies: bool,
    fails: set[int],
) -> None:
    """Whatever is guessed, shared, preempted or fails, whoever comes and leaves: no answer is another one's."""
    # A source that waits must be asked again: here each round asks, so waiting forever is left out.
    drafts = Guesses(*plan, (2, 1))
    limits = {"shares_blocks": not copies, "places": streams if copies else 0, "context_tokens": 200}
    played = make_stages(blocks=blocks, drafts=drafts, stages=stages, streams=streams, prefill_tokens=prefill, **limits)
    scheduler = played.scheduler
    leaving: dict[StreamId, int] = {}
    expected: dict[StreamId, list[int]] = {}
    failed: set[StreamId] = set()
    todo, ticks = list(requests), 0
    while todo or not scheduler.idle:
        if todo:
            prompt, tokens, eos, key, leaves_after = todo.pop()
            stream = scheduler.add(prompt, tokens, sampling=Sampling(), eos=eos, key=key)
            expected[stream] = plain_answer(prompt, min(tokens, 200 - len(prompt)), eos)
            if leaves_after >= 0:
                leaving[stream] = ticks + leaves_after
        for stream in [stream for stream, at in leaving.items() if at == ticks]:
            scheduler.cancel(stream)
        played.send()
        if played.flying and ticks in fails:
            failed |= set(played.fail())
        elif played.flying:
            played.answer()
        ticks += 1
        assert ticks < 5000, "starved"
    played.forget()
    assert sorted(drafts.forgotten) == sorted(expected)
    for stream, answer in expected.items():
        got = played.answers.get(stream, [])
        assert got == answer if stream in played.finished else got == answer[: len(got)]
        assert stream in played.finished or stream in leaving or stream in failed


@settings(max_examples=300, deadline=None)
@given(**MIX)
def test_any_mix_of_streams_gets_the_answers_that_each_would_get_alone(**mix: Any) -> None:
    check_any_mix(**mix)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(**MIX)
def test_five_thousand_mixes_get_the_answers_that_each_stream_would_get_alone(**mix: Any) -> None:
    check_any_mix(**mix)
