"""Cache blocks are never lost, never shared, and a refused request changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.stage.engines.paged import BlockPool
from agent.stage.errors import KvFull
from agent.stage.types import StreamId

BLOCKS, TOKENS = 12, 4
STREAMS = [StreamId(index) for index in range(5)]


def held(pool: BlockPool) -> list[int]:
    return [block for stream in STREAMS for block in pool.blocks(stream)]


def test_a_stream_grows_without_moving_its_blocks() -> None:
    pool = BlockPool(BLOCKS, TOKENS)
    pool.resize({STREAMS[0]: 5})
    before = list(pool.blocks(STREAMS[0]))
    pool.resize({STREAMS[0]: 9, STREAMS[1]: 1})
    assert pool.blocks(STREAMS[0])[:2] == before


def test_one_stream_may_grow_into_what_another_gives_back_in_the_same_step() -> None:
    pool = BlockPool(2, TOKENS)
    pool.resize({STREAMS[0]: 8})
    pool.resize({STREAMS[1]: 4, STREAMS[0]: 4})
    assert sorted(held(pool)) == [0, 1]


def test_a_request_beyond_the_pool_changes_nothing() -> None:
    pool = BlockPool(2, TOKENS)
    pool.resize({STREAMS[0]: 4})
    with pytest.raises(KvFull, match="release a stream first"):
        pool.resize({STREAMS[0]: 8, STREAMS[1]: 4})
    assert len(held(pool)) == 1
    assert pool.free_tokens == TOKENS


requests = st.dictionaries(st.sampled_from(STREAMS), st.integers(0, 30), min_size=1)


@given(st.lists(st.one_of(requests, st.sampled_from(STREAMS)), max_size=30))
def test_blocks_are_neither_lost_nor_shared(actions: list[dict[StreamId, int] | int]) -> None:
    pool = BlockPool(BLOCKS, TOKENS)
    for action in actions:
        if isinstance(action, dict):
            before = {stream: list(pool.blocks(stream)) for stream in STREAMS}
            try:
                pool.resize(action)
            except KvFull:
                assert {stream: pool.blocks(stream) for stream in STREAMS} == before
            else:
                assert all(len(pool.blocks(stream)) == -(-tokens // TOKENS) for stream, tokens in action.items())
        else:
            pool.release(StreamId(action))
        assert len(set(held(pool))) == len(held(pool))
        assert len(held(pool)) * TOKENS + pool.free_tokens == BLOCKS * TOKENS
