"""Cache blocks are never lost, nobody writes into what another reads, and a refused request changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent.stage.engines.blocks import BlockPool
from agent.stage.errors import KvFull
from agent.stage.types import Share, StreamId

BLOCKS, TOKENS = 12, 4
ONE, TWO, THREE, *_ = STREAMS = [StreamId(index) for index in range(6)]


def write(pool: BlockPool, **ranges: range) -> list[tuple[int, int]]:
    return pool.apply([], [], {STREAMS["abc".index(name)]: positions for name, positions in ranges.items()})


def test_a_stream_grows_without_moving_its_blocks() -> None:
    pool = BlockPool(BLOCKS, TOKENS)
    write(pool, a=range(5))
    before = list(pool.blocks(ONE))
    assert write(pool, a=range(5, 9), b=range(1)) == []
    assert pool.blocks(ONE)[:2] == before


def test_one_stream_may_grow_into_what_another_gives_back_in_the_same_step() -> None:
    pool = BlockPool(2, TOKENS)
    write(pool, a=range(8))
    write(pool, b=range(4), a=range(3, 4))
    assert sorted(pool.blocks(ONE) + pool.blocks(TWO)) == [0, 1]


def test_shared_blocks_take_no_room_until_somebody_writes_into_them() -> None:
    pool = BlockPool(4, TOKENS)
    write(pool, a=range(6))
    pool.apply([Share(TWO, ONE, 6)], [], {})
    assert pool.free_tokens == 2 * TOKENS
    copies = write(pool, b=range(6, 7))
    assert copies == [(pool.blocks(ONE)[1], pool.blocks(TWO)[1])]
    assert pool.blocks(ONE)[0] == pool.blocks(TWO)[0]
    assert write(pool, a=range(6, 7)) == []


def test_a_shared_block_that_is_overwritten_whole_is_not_copied() -> None:
    pool = BlockPool(4, TOKENS)
    write(pool, a=range(8))
    assert pool.apply([Share(TWO, ONE, 8)], [], {TWO: range(4, 6)}) == []
    assert pool.blocks(ONE)[1] != pool.blocks(TWO)[1]


def test_a_shared_prefix_outlives_the_stream_that_made_it() -> None:
    pool = BlockPool(3, TOKENS)
    write(pool, a=range(12))
    pool.apply([Share(TWO, ONE, 7)], [ONE], {})
    assert (len(pool.blocks(TWO)), pool.free_tokens) == (2, TOKENS)
    assert write(pool, b=range(7, 8)) == []


def test_a_request_beyond_the_pool_changes_nothing() -> None:
    pool = BlockPool(3, TOKENS)
    write(pool, a=range(4), c=range(4))
    with pytest.raises(KvFull, match="release a stream first"):
        pool.apply([Share(TWO, ONE, 2)], [THREE], {TWO: range(2, 3), ONE: range(4, 12)})
    assert [len(pool.blocks(stream)) for stream in (ONE, TWO, THREE)] == [1, 0, 1]
    assert pool.free_tokens == TOKENS
    write(pool, a=range(4, 8))


class Pools(RuleBasedStateMachine):
    """A cache that holds a mark per position, against what every stream should read from it."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS, TOKENS)
        self.cache = [[0] * TOKENS for _ in range(BLOCKS)]
        self.said: dict[StreamId, list[int]] = {}
        self.mark = 0

    def read(self, stream: StreamId, length: int) -> list[int]:
        return [mark for block in self.pool.blocks(stream) for mark in self.cache[block]][:length]

    @rule(data=st.data(), streams=st.sets(st.sampled_from(STREAMS)), keep=st.booleans())
    def step(self, data: st.DataObject, streams: set[StreamId], keep: bool) -> None:
        """Some shares, perhaps a release, and rows for some streams: truncated, then grown."""
        after = {stream: marks.copy() for stream, marks in self.said.items()}
        shares = self.some_shares(data, after)
        release = [] if keep or not after else [data.draw(st.sampled_from(sorted(after)))]
        for stream in release:
            del after[stream]
        writes = {}
        for stream in sorted(streams):
            first = data.draw(st.integers(0, len(after.get(stream, []))))
            writes[stream] = range(first, first + data.draw(st.integers(1, 3 * TOKENS)))
        before = [self.pool.blocks(stream).copy() for stream in STREAMS], self.pool.free_tokens
        try:
            copies = self.pool.apply(shares, release, writes)
        except KvFull:
            assert before == ([self.pool.blocks(stream) for stream in STREAMS], self.pool.free_tokens)
            return
        self.said = after
        self.run(copies, writes)

    def some_shares(self, data: st.DataObject, after: dict[StreamId, list[int]]) -> list[Share]:
        shares = []
        for stream in data.draw(st.sets(st.sampled_from(STREAMS), max_size=2)):
            if after and stream not in after:
                source = data.draw(st.sampled_from(sorted(after)))
                shares.append(Share(stream, source, data.draw(st.integers(1, len(after[source])))))
                after[stream] = after[source][: shares[-1].tokens]
        return shares

    def run(self, copies: list[tuple[int, int]], writes: dict[StreamId, range]) -> None:
        for source, target in copies:
            self.cache[target] = self.cache[source].copy()
        for stream, positions in writes.items():
            blocks = self.pool.blocks(stream)
            assert len(blocks) == -(-positions.stop // TOKENS)
            self.said[stream] = self.said.get(stream, [])[: positions.start]
            for at in positions:
                self.mark += 1
                self.cache[blocks[at // TOKENS]][at % TOKENS] = self.mark
                self.said[stream].append(self.mark)

    @invariant()
    def every_stream_reads_what_it_wrote(self) -> None:
        for stream, marks in self.said.items():
            assert self.read(stream, len(marks)) == marks

    @invariant()
    def no_block_is_lost(self) -> None:
        held = {block for stream in STREAMS for block in self.pool.blocks(stream)}
        assert len(held) * TOKENS + self.pool.free_tokens == BLOCKS * TOKENS

    @precondition(lambda self: self.said)
    @rule()
    def all_blocks_come_back(self) -> None:
        self.pool.apply([], self.said, {})
        self.said = {}
        assert self.pool.free_tokens == BLOCKS * TOKENS


TestPools = Pools.TestCase
TestPools.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
