from __future__ import annotations

from collections import deque

import pytest

from agent.stage.types import Sampling, StreamId
from console.pipeline.errors import ContextExceeded, KeyQueueFull, PromptError, QueueFull
from console.pipeline.plans import KEY_QUEUE_LIMIT, Limits, Outcome, Step
from console.pipeline.scheduler import Scheduler

EOS = 7


def make_scheduler(
    *, stages: int = 2, streams: int = 8, context: int = 512, kv: int = 0, prefill: int = 256, queue: int = 256
) -> Scheduler:
    return Scheduler(Limits(stages, kv or streams * context, context, streams, prefill, queue))


def add(
    scheduler: Scheduler, *, prompt: int = 4, tokens: int = 8, key: str = "", eos: frozenset[int] = frozenset()
) -> StreamId:
    return scheduler.add([100] * prompt, tokens, sampling=Sampling(seed=3), eos=eos, key=key)


def answer(scheduler: Scheduler, step: Step, token: int = 50) -> list[Outcome]:
    return scheduler.update(step.id, [token] * step.wants)


def drain(scheduler: Scheduler) -> list[Step]:
    steps = []
    while (step := scheduler.schedule()) is not None:
        steps.append(step)
    return steps


def sizes(steps: list[Step]) -> list[int]:
    return [len(step.rows) for step in steps]


def test_a_prompt_becomes_one_row_that_carries_the_sampling_and_wants_one_token() -> None:
    scheduler = make_scheduler()
    stream = add(scheduler, prompt=5)
    (step,) = drain(scheduler)
    (row,) = step.rows
    assert (row.stream, row.first, row.count, row.wants) == (stream, 0, 5, 1)
    assert row.sampling == Sampling(seed=3)
    assert step.tokens == [100] * 5


def test_the_next_step_of_a_lone_stream_is_there_right_after_the_update() -> None:
    scheduler = make_scheduler()
    add(scheduler, prompt=5)
    (step,) = drain(scheduler)
    assert answer(scheduler, step, 61) == [Outcome(StreamId(1), [61], None)]
    following = scheduler.schedule()
    assert following is not None
    (row,) = following.rows
    assert (row.first, row.count, row.wants, row.sampling) == (5, 1, 1, None)
    assert following.tokens == [61]


def test_eight_streams_over_two_stages_make_two_steps_of_four_rows() -> None:
    scheduler = make_scheduler()
    for _ in range(8):
        add(scheduler)
    steps = drain(scheduler)
    assert sizes(steps) == [4, 4]
    answer(scheduler, steps[0])
    assert sizes(drain(scheduler)) == [4]


def test_five_streams_over_four_stages_use_all_four_places() -> None:
    scheduler = make_scheduler(stages=4)
    for _ in range(5):
        add(scheduler)
    assert sizes(drain(scheduler)) == [2, 1, 1, 1]


def test_steps_become_equal_again_after_streams_left_one_of_them() -> None:
    scheduler = make_scheduler()
    streams = [add(scheduler, tokens=100) for _ in range(8)]
    flying = deque(drain(scheduler))
    for stream in streams[:3]:
        scheduler.cancel(stream)
    for _ in range(6):
        answer(scheduler, flying.popleft())
        flying.extend(drain(scheduler))
    assert sorted(sizes(list(flying))) == [2, 3]


def test_a_long_prompt_is_cut_small_while_answers_beside_it_go_on() -> None:
    scheduler = make_scheduler(stages=1, context=1024)
    first = add(scheduler, prompt=2, tokens=50)
    (step,) = drain(scheduler)
    answer(scheduler, step)
    second = add(scheduler, prompt=150, tokens=2)
    seen = []
    for _ in range(3):
        (step,) = drain(scheduler)
        assert first in {row.stream for row in step.rows}
        seen += [(row.first, row.count, row.wants) for row in step.rows if row.stream == second]
        answer(scheduler, step)
    assert seen == [(0, 64, 0), (64, 64, 0), (128, 22, 1)]


def test_an_undisturbed_prompt_is_cut_large_and_fills_all_stages_at_once() -> None:
    scheduler = make_scheduler(stages=3, context=1024)
    add(scheduler, prompt=600)
    rows = [(row.first, row.count, row.wants) for step in drain(scheduler) for row in step.rows]
    assert rows == [(0, 256, 0), (256, 256, 0), (512, 88, 1)]


def test_an_answer_goes_on_when_its_prompt_is_in_several_steps() -> None:
    scheduler = make_scheduler(stages=2, context=1024)
    stream = add(scheduler, prompt=300)
    first, second = drain(scheduler)
    assert answer(scheduler, first) == []
    assert drain(scheduler) == []
    assert answer(scheduler, second) == [Outcome(stream, [50], None)]
    (step,) = drain(scheduler)
    assert (step.rows[0].first, step.tokens) == (300, [50])


def test_a_short_prompt_gets_its_turn_before_a_long_one_is_through() -> None:
    scheduler = make_scheduler(stages=1, context=4096)
    add(scheduler, prompt=2000)
    short = add(scheduler, prompt=10)
    (step,) = drain(scheduler)
    answer(scheduler, step)
    (step,) = drain(scheduler)
    assert step.rows[0].stream == short
    assert len(step.tokens) == 256


def test_the_end_token_ends_an_answer_and_the_next_step_releases_it() -> None:
    scheduler = make_scheduler()
    first, second = add(scheduler, eos=frozenset({EOS, 8})), add(scheduler)
    one, two = drain(scheduler)
    assert answer(scheduler, one, 8) == [Outcome(first, [8], "stop")]
    assert scheduler.schedule() is None
    assert answer(scheduler, two) == [Outcome(second, [50], None)]
    (step,) = drain(scheduler)
    assert step.release == [first]
    assert [row.stream for row in step.rows] == [second]


def test_the_last_release_travels_alone() -> None:
    scheduler = make_scheduler()
    stream = add(scheduler, tokens=1)
    (step,) = drain(scheduler)
    assert answer(scheduler, step) == [Outcome(stream, [50], "length")]
    (step,) = drain(scheduler)
    assert (step.rows, step.tokens, step.release, step.wants) == ([], [], [stream], 0)
    assert scheduler.update(step.id, []) == []
    assert scheduler.idle


def test_the_context_ends_an_answer_as_length() -> None:
    scheduler = make_scheduler(context=32, streams=1)
    add(scheduler, prompt=30, tokens=100)
    finishes = []
    while not scheduler.idle:
        for step in drain(scheduler):
            finishes += [outcome.finish for outcome in answer(scheduler, step)]
    assert finishes == [None, "length"]


def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers() -> None:
    with pytest.raises(ContextExceeded) as caught:
        add(make_scheduler(context=64), prompt=64)
    assert (caught.value.prompt_tokens, caught.value.context_tokens) == (64, 64)
    assert "64" in str(caught.value)


@pytest.mark.parametrize(("prompt", "tokens"), [(0, 5), (5, 0)])
def test_an_empty_prompt_or_answer_is_refused(prompt: int, tokens: int) -> None:
    with pytest.raises(PromptError):
        add(make_scheduler(), prompt=prompt, tokens=tokens)


def test_a_full_queue_refuses() -> None:
    scheduler = make_scheduler(streams=1, queue=2)
    add(scheduler)
    drain(scheduler)
    add(scheduler), add(scheduler)
    with pytest.raises(QueueFull):
        add(scheduler)


def test_a_key_may_not_take_everybodys_place_in_the_queue() -> None:
    scheduler = make_scheduler(streams=1)
    for _ in range(KEY_QUEUE_LIMIT):
        add(scheduler, key="ann")
    with pytest.raises(KeyQueueFull, match="of this key"):
        add(scheduler, key="ann")
    add(scheduler, key="eve")
    drain(scheduler)
    add(scheduler, key="ann")


def test_a_stream_that_would_soon_push_others_out_waits() -> None:
    scheduler = make_scheduler(kv=512, context=512)
    add(scheduler, prompt=400, tokens=100)
    late = add(scheduler, prompt=100, tokens=100)
    drain(scheduler)
    assert (scheduler.running, scheduler.queue()) == (1, [late])


def test_caches_of_exactly_streams_times_context_hold_that_many_full_streams() -> None:
    scheduler = make_scheduler(context=500, streams=3, kv=3 * 512)
    for _ in range(3):
        add(scheduler, prompt=400, tokens=900)
    drain(scheduler)
    assert scheduler.running == 3
    assert scheduler.limits.stream_tokens == 500


def test_keys_take_turns_whoever_came_first() -> None:
    scheduler = make_scheduler(streams=1, stages=1)
    add(scheduler, key="a", tokens=1)
    (running,) = drain(scheduler)
    order = [add(scheduler, key=key, tokens=1) for key in ("a", "a", "a", "b", "b", "c")]
    expected = [order[0], order[3], order[5], order[1], order[4], order[2]]
    assert scheduler.queue() == expected
    answer(scheduler, running)
    admitted: list[StreamId] = []
    while not scheduler.idle:
        for step in drain(scheduler):
            admitted += [row.stream for row in step.rows]
            answer(scheduler, step)
    assert admitted == expected


def test_a_cancelled_stream_is_released_in_the_next_step_and_its_late_token_is_dropped() -> None:
    scheduler = make_scheduler()
    gone, stays = add(scheduler), add(scheduler)
    one, two = drain(scheduler)
    assert scheduler.cancel(gone)
    assert not scheduler.cancel(gone)
    assert answer(scheduler, one) == []
    answer(scheduler, two)
    (step,) = drain(scheduler)
    assert step.release == [gone]
    assert [row.stream for row in step.rows] == [stays]


def test_cancelling_a_waiting_stream_releases_nothing() -> None:
    scheduler = make_scheduler(streams=1)
    add(scheduler)
    drain(scheduler)
    waiting = add(scheduler)
    assert scheduler.cancel(waiting)
    assert scheduler.waiting == 0


def test_a_failed_step_ends_only_its_own_streams() -> None:
    scheduler = make_scheduler()
    lost, stays = add(scheduler), add(scheduler)
    one, two = drain(scheduler)
    assert scheduler.fail_step(one.id) == [lost]
    assert scheduler.fail_step(one.id) == []
    answer(scheduler, two)
    (step,) = drain(scheduler)
    assert step.release == [lost]
    assert [row.stream for row in step.rows] == [stays]


def test_only_the_oldest_step_is_expected() -> None:
    scheduler = make_scheduler()
    add(scheduler), add(scheduler)
    one, two = drain(scheduler)
    assert scheduler.expects(two.id) is None
    assert scheduler.expects(one.id) == 1
    with pytest.raises(ValueError, match="asked for 1 token,"):
        scheduler.update(one.id, [])


def test_fail_all_forgets_everything() -> None:
    scheduler = make_scheduler(streams=1)
    streams = [add(scheduler), add(scheduler)]
    drain(scheduler)
    assert scheduler.fail_all() == streams
    assert scheduler.idle
