"""Answers go where their beginning is cached, as long as nobody waits for it, and never by the order of a list."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from console.pipeline.ledger import BLOCK_TOKENS
from console.routing import AS_FREE, PREFIX_BLOCKS, PipelineLoad, choose, prefix_of

PROMPTS = st.lists(st.integers(0, 50_000), max_size=3 * BLOCK_TOKENS)
LOADS = st.lists(
    st.builds(
        PipelineLoad,
        number=st.integers(0, 20),
        ready=st.booleans(),
        running=st.integers(0, 8),
        waiting=st.integers(0, 20),
        places=st.integers(1, 8),
        room=st.integers(0, 3),
    ),
    max_size=8,
    unique_by=lambda load: load.number,
)


def idle(number: int, **fields: Any) -> PipelineLoad:
    return PipelineLoad(
        **{"number": number, "ready": True, "running": 0, "waiting": 0, "places": 8, "room": 9, **fields}
    )


def conversation(seed: int, tokens: int = 2 * BLOCK_TOKENS) -> list[int]:
    return [seed * 1000 + position for position in range(tokens)]


@given(LOADS, PROMPTS, st.randoms(use_true_random=False))
def test_the_choice_is_open_ready_where_any_is_about_as_free_as_the_freest_and_independent_of_order(
    loads: list[PipelineLoad], prompt: list[int], random: Random
) -> None:
    chosen = choose(loads, "key", prompt)
    shuffled = loads[:]
    random.shuffle(shuffled)
    assert choose(shuffled, "key", prompt) == chosen
    open_ones = [load for load in loads if not load.is_full]
    if chosen is None:
        assert open_ones == []
        return
    assert chosen in open_ones
    able = [load for load in open_ones if load.ready] or open_ones
    assert chosen in able
    assert chosen.share <= min(load.share for load in able) + AS_FREE


def test_the_turns_of_a_conversation_stay_where_they_began() -> None:
    loads = [idle(number) for number in range(4)]
    first = choose(loads, "ann", conversation(7, PREFIX_BLOCKS * BLOCK_TOKENS))
    assert first is not None
    later = conversation(7, PREFIX_BLOCKS * BLOCK_TOKENS) + conversation(9, 500)
    assert choose(loads, "ann", later) == first
    busier = [msgspec.structs.replace(load, running=2) if load == first else load for load in loads]
    again = choose(busier, "ann", later)
    assert again is not None
    assert again.number == first.number
    full = [msgspec.structs.replace(load, running=8) if load == first else load for load in loads]
    moved = choose(full, "ann", later)
    assert moved is not None
    assert moved.number != first.number


def test_a_pipeline_that_comes_or_goes_moves_only_its_own_conversations() -> None:
    four = [idle(number) for number in range(4)]
    for seed in range(200):
        before, after = choose(four, "ann", conversation(seed)), choose(four[:3], "ann", conversation(seed))
        assert before is not None
        assert after is not None
        assert before == after or before.number == 3


def test_conversations_and_keys_are_spread() -> None:
    loads = [idle(number) for number in range(4)]
    spread = Counter(choose(loads, "ann", conversation(seed)) for seed in range(400))
    assert len(spread) == 4
    assert max(spread.values()) < 200
    assert prefix_of("ann", conversation(1)) != prefix_of("eve", conversation(1))


def test_short_prompts_have_nothing_to_share_and_go_to_the_freest() -> None:
    short = conversation(1, BLOCK_TOKENS - 1)
    assert prefix_of("ann", short) == b""
    loads = [idle(0, running=2), idle(1, running=1), idle(2, running=1, places=4), idle(3, running=1)]
    chosen = choose(loads, "ann", short)
    assert chosen is not None
    assert chosen.number == 1


def test_interrupted_and_full_pipelines_are_left_out_until_there_is_no_other() -> None:
    interrupted, full = idle(0, ready=False), idle(1, running=8, room=0)
    assert choose([interrupted, full, idle(2, running=7)], "ann", []) == idle(2, running=7)
    assert choose([interrupted, full], "ann", []) == interrupted
    assert choose([full], "ann", []) is None
    assert choose([], "ann", []) is None
