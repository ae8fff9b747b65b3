"""Rows are cut into calls that fit, and a place sees its own stream as far as window and ring let it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agent.stage.engines.columns import SINKS, ColumnPool
from agent.stage.engines.places import Piece, fill_masks, split_rows
from agent.stage.types import Row, Share, StreamId
from tests.support.stage import make_row


def test_a_prompt_is_cut_and_the_next_row_shares_the_last_call() -> None:
    calls = split_rows([make_row(1, 5, 10), make_row(2, 0, 3, wants=0)], places=8, wanted=4)
    assert calls == [
        [Piece(StreamId(1), 5, 8, 0, 0)],
        [Piece(StreamId(1), 13, 2, 8, 1), Piece(StreamId(2), 0, 3, 10, 0)],
    ]


def test_a_call_gives_no_more_logits_than_its_graph() -> None:
    calls = split_rows([make_row(1, 0, 6, wants=5), make_row(2, 3)], places=8, wanted=3)
    assert [[(piece.count, piece.wants) for piece in call] for call in calls] == [[(4, 3)], [(2, 2), (1, 1)]]


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    made = []
    for stream in range(draw(st.integers(1, 5))):
        count = draw(st.integers(1, 30))
        made.append(make_row(stream, draw(st.integers(0, 9)), count, wants=draw(st.integers(0, count))))
    return made


@given(rows(), st.integers(1, 12), st.integers(1, 12))
def test_every_token_lies_in_one_call_in_order(rows: Sequence[Row], places: int, wanted: int) -> None:
    calls = split_rows(rows, places, wanted)
    assert all(0 < sum(piece.count for piece in call) <= places for call in calls)
    assert all(sum(piece.wants for piece in call) <= wanted for call in calls)
    pieces = [piece for call in calls for piece in call]
    at = 0
    for row in rows:
        tokens: list[tuple[int, bool]] = []
        while len(tokens) < row.count:
            piece = pieces.pop(0)
            assert (piece.stream, piece.first, piece.at) == (row.stream, row.first + len(tokens), at)
            tokens += [(piece.first + k, k >= piece.count - piece.wants) for k in range(piece.count)]
            at += piece.count
        assert [wanted for _, wanted in tokens] == [k >= row.count - row.wants for k in range(row.count)]
    assert not pieces


def seen(pool: ColumnPool, pieces: Sequence[Piece], *, window: int = 0, columns: int = 40) -> list[list[int]]:
    """Which columns each place sees; the new ones are numbered from 100."""
    mask: Any = np.empty((6, columns + 6), np.float32)
    fill_masks({window: mask}, pieces, pool)
    return [[at if at < columns else 100 + at - columns for at in np.flatnonzero(row == 0).tolist()] for row in mask]


def pool_of(length: int, **options: int) -> ColumnPool:
    pool = ColumnPool(40, 40, **options)
    pool.apply([], [], {StreamId(1): range(length)})
    pool.extend(StreamId(1), length)
    return pool


def begun(pool: ColumnPool, stream: int, first: int, count: int, at: int = 0) -> Piece:
    pool.apply([], [], {StreamId(stream): range(first, first + count)})
    return Piece(StreamId(stream), first, count, at, 0)


def test_streams_side_by_side_see_only_themselves_and_idle_places_too() -> None:
    pool = pool_of(3)
    places = seen(pool, [begun(pool, 1, 3, 2), begun(pool, 2, 0, 2, at=2)])
    assert places == [[0, 1, 2, 100], [0, 1, 2, 100, 101], [102], [102, 103], [104], [105]]


def test_a_window_counts_the_token_itself() -> None:
    pool = pool_of(5)
    assert seen(pool, [begun(pool, 1, 5, 3)], window=3)[:3] == [[3, 4, 100], [4, 100, 101], [100, 101, 102]]


def test_a_shared_beginning_is_seen_by_both() -> None:
    pool = pool_of(4)
    pool.apply([Share(StreamId(2), StreamId(1), 3)], [], {})
    places = seen(pool, [begun(pool, 1, 4, 1), begun(pool, 2, 3, 1, at=1)])
    assert places[:2] == [[0, 1, 2, 3, 100], [0, 1, 2, 101]]


def test_rejected_tokens_are_not_seen() -> None:
    pool = pool_of(6)
    assert seen(pool, [begun(pool, 1, 4, 1)])[0] == [0, 1, 2, 3, 100]


def test_a_ring_sees_its_sinks_and_its_last_positions() -> None:
    pool = pool_of(20, window_tokens=SINKS + 5, call_tokens=20)
    assert seen(pool, [begun(pool, 1, 20, 2)])[:2] == [
        [*range(SINKS), 16, 17, 18, 19, 100],
        [*range(SINKS), 17, 18, 19, 100, 101],
    ]
