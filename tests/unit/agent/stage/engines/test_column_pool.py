"""Columns are never lost, a stream sees what it wrote, and a ring keeps its sinks and its last positions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent.stage.engines.columns import REWIND_TOKENS, SINKS, ColumnPool, ring_columns
from agent.stage.errors import BadStep, KvFull, StepError
from agent.stage.types import Share, StreamId

CONTEXT, CALL = 40, 8
ONE, TWO, *_ = STREAMS = [StreamId(index) for index in range(4)]


def write(pool: ColumnPool, stream: StreamId, first: int, last: int) -> None:
    """One row, run in calls of at most CALL tokens."""
    pool.apply([], [], {stream: range(first, last)})
    for at in range(first, last, CALL):
        pool.extend(stream, min(CALL, last - at))


def ring(streams: int = 1) -> ColumnPool:
    window = 20
    columns = streams * ring_columns(window, CALL)
    return ColumnPool(columns, 1000, window_tokens=window, call_tokens=CALL)


def test_shared_columns_take_no_room_and_outlive_their_maker() -> None:
    pool = ColumnPool(10, CONTEXT)
    write(pool, ONE, 0, 6)
    pool.apply([Share(TWO, ONE, 5)], [ONE], {})
    assert pool.free_columns == 5
    write(pool, TWO, 5, 10)
    assert pool.seen_by(TWO)[1].tolist() == list(range(10))


def test_going_back_frees_columns_that_nobody_else_lists() -> None:
    pool = ColumnPool(10, CONTEXT)
    write(pool, ONE, 0, 6)
    pool.apply([Share(TWO, ONE, 4)], [], {})
    write(pool, ONE, 2, 3)
    assert pool.free_columns == 10 - 5


def test_a_stream_that_starts_over_finds_its_columns_again() -> None:
    pool = ColumnPool(20, CONTEXT)
    write(pool, ONE, 0, 9)
    before = pool.seen_by(ONE)[0].tolist()
    write(pool, ONE, 0, 9)
    assert pool.seen_by(ONE)[0].tolist() == before


def test_a_long_stream_stays_within_its_ring_and_keeps_its_sinks() -> None:
    pool = ring()
    write(pool, ONE, 0, 1000)
    positions = pool.seen_by(ONE)[1].tolist()
    assert positions[:SINKS] == list(range(SINKS))
    assert positions[SINKS:] == list(range(positions[SINKS], 1000))
    assert len(positions) <= ring_columns(20, CALL)


def test_a_ring_goes_back_as_far_as_drafts_go_and_no_further() -> None:
    pool = ring()
    write(pool, ONE, 0, 500)
    write(pool, ONE, 500 - REWIND_TOKENS, 500)
    seen = pool.seen_by(ONE)[1]
    assert set(range(500 - pool.reach + 1, 500)) <= set(seen.tolist())
    with pytest.raises(BadStep, match="run it from its beginning"):
        pool.apply([], [], {ONE: range(100, 101)})
    assert np.array_equal(pool.seen_by(ONE)[1], seen)


def test_a_beginning_that_a_ring_lost_cannot_be_shared() -> None:
    pool = ring(2)
    write(pool, ONE, 0, 500)
    with pytest.raises(BadStep, match="run it from its beginning"):
        pool.apply([Share(TWO, ONE, 200)], [], {})
    pool.apply([Share(TWO, ONE, 490)], [], {})
    write(pool, TWO, 490, 600)
    write(pool, ONE, 500, 600)


class Columns(RuleBasedStateMachine):
    """The pool against marks: one per written position."""

    window, columns, context = 0, 60, CONTEXT
    refusals: tuple[type[StepError], ...] = (KvFull,)

    def __init__(self) -> None:
        super().__init__()
        self.pool = ColumnPool(self.columns, self.context, window_tokens=self.window, call_tokens=CALL)
        self.cache = [0] * self.columns
        self.said: dict[StreamId, list[int]] = {}
        self.mark = 0

    @rule(data=st.data(), streams=st.sets(st.sampled_from(STREAMS), min_size=1), keep=st.booleans())
    def step(self, data: st.DataObject, streams: set[StreamId], keep: bool) -> None:
        after = {stream: marks.copy() for stream, marks in self.said.items()}
        shares = []
        new = data.draw(st.sampled_from(STREAMS))
        if after and new not in after:
            source = data.draw(st.sampled_from(sorted(after)))
            shares = [Share(new, source, data.draw(st.integers(1, len(after[source]))))]
            after[new] = after[source][: shares[0].tokens]
        release = [] if keep or not after else [data.draw(st.sampled_from(sorted(after)))]
        for stream in release:
            del after[stream]
        writes = {}
        for stream in sorted(streams):
            length = min(self.context - 1, len(after.get(stream, [])))
            first = data.draw(st.integers(0, length) | st.integers(max(0, length - 9), length))
            writes[stream] = range(first, first + data.draw(st.integers(1, self.context - first)))
        before = self.everything()
        try:
            self.pool.apply(shares, release, writes)
        except self.refusals:
            assert self.everything() == before
            return
        self.said = after
        for stream, positions in writes.items():
            self.run_row(stream, positions)

    def run_row(self, stream: StreamId, positions: range) -> None:
        marks = self.said[stream] = self.said.get(stream, [])[: positions.start]
        for at in range(positions.start, positions.stop, CALL):
            for column in self.pool.extend(stream, min(CALL, positions.stop - at)).tolist():
                self.mark += 1
                self.cache[column] = self.mark
                marks.append(self.mark)

    def everything(self) -> object:
        listed = {stream: [part.tolist() for part in self.pool.seen_by(stream)] for stream in self.said}
        return self.pool.free_columns, listed

    @invariant()
    def every_stream_sees_what_it_wrote_and_may_still_see(self) -> None:
        for stream, marks in self.said.items():
            columns, positions = self.pool.seen_by(stream)
            assert [self.cache[column] for column in columns] == [marks[at] for at in positions]
            reach = self.pool.reach or self.context
            visible = {at for at in range(len(marks)) if at < SINKS or len(marks) - at < reach}
            assert visible <= set(positions.tolist())

    @invariant()
    def no_column_is_lost(self) -> None:
        held = {int(column) for stream in self.said for column in self.pool.seen_by(stream)[0]}
        assert len(held) + self.pool.free_columns == self.columns


class Rings(Columns):
    window, columns, context = 16, 240, 250
    refusals = (KvFull, BadStep)


TestColumns = Columns.TestCase
TestColumns.settings = settings(max_examples=20, stateful_step_count=10, deadline=None)
TestRings = Rings.TestCase
TestRings.settings = TestColumns.settings
