"""A step that contradicts the stage is refused with a sentence that says how."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agent.stage.checks import StageShape, check_step, lengths_after
from agent.stage.errors import BadStep
from agent.stage.types import Row, Share, StreamId
from tests.support.stage import make_row

HEAD = StageShape(takes_ids=True, is_tail=False, hidden_size=8, vocab_size=50, context_tokens=64)
INNER = StageShape(takes_ids=False, is_tail=False, hidden_size=8, vocab_size=50, context_tokens=64)
CACHED = {StreamId(1): 5, StreamId(2): 9}


def check(*rows: Row, tensor: Any = None, shape: StageShape = HEAD) -> None:
    if tensor is None:
        tensor = np.zeros(sum(row.count for row in rows), np.int64)
    check_step(rows, tensor, shape, CACHED)


def test_rows_that_continue_their_streams_pass() -> None:
    check(make_row(1, 5, 2), make_row(2, 7, 3, truncate_to=7), make_row(3, 0, 4, wants=0))


def test_truncating_beyond_the_end_drops_nothing() -> None:
    check(make_row(1, 5, 1, truncate_to=100))


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (make_row(1, 6), "continues at position 6, but this stage holds 5"),
        (make_row(1, 4), "replay the stream"),
        (make_row(3, 1), "holds 0 tokens"),
        (make_row(1, 5, truncate_to=4), "holds 4 tokens"),
        (make_row(1, 5, 0, wants=0), "impossible counts"),
        (make_row(1, 5, 2, wants=3), "impossible counts"),
        (make_row(1, 5, wants=-1), "impossible counts"),
        (make_row(1, -1), "impossible counts"),
        (make_row(1, 5, truncate_to=-2), "impossible counts"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(row: Row, sentence: str) -> None:
    with pytest.raises(BadStep, match=sentence):
        check(row)


def test_two_rows_of_one_stream_are_refused() -> None:
    with pytest.raises(BadStep, match="two rows"):
        check(make_row(1, 5), make_row(1, 6))


@pytest.mark.parametrize(
    "tensor",
    [np.zeros(3, np.int64), np.zeros(2, np.int32), np.zeros((2, 1), np.int64), np.zeros((2, 8), np.float32)],
)
def test_a_tensor_that_is_not_the_rows_ids_is_refused(tensor: Any) -> None:
    with pytest.raises(BadStep, match="its rows need int64"):
        check(make_row(1, 5, 2), tensor=tensor)


@pytest.mark.parametrize("tensor", [np.zeros((2, 7), np.float32), np.zeros((2, 8), np.float16), np.zeros(2, np.int64)])
def test_a_tensor_that_is_not_the_rows_hidden_states_is_refused(tensor: Any) -> None:
    with pytest.raises(BadStep, match="its rows need float32"):
        check(make_row(1, 5, 2), tensor=tensor, shape=INNER)


def test_no_tensor_at_all_is_refused() -> None:
    with pytest.raises(BadStep, match="no tensor"):
        check_step([make_row(1, 5)], None, HEAD, CACHED)


@pytest.mark.parametrize("token", [-1, 50])
def test_an_id_outside_the_vocabulary_is_refused(token: int) -> None:
    with pytest.raises(BadStep, match="outside the vocabulary of 50"):
        check(make_row(1, 5), tensor=np.array([token]))


def shared(*shares: tuple[int, int, int], release: tuple[int, ...] = ()) -> dict[StreamId, int]:
    asked = [Share(StreamId(stream), StreamId(source), tokens) for stream, source, tokens in shares]
    return lengths_after(asked, [StreamId(stream) for stream in release], CACHED)


def test_shares_come_before_releases_and_may_build_on_one_another() -> None:
    assert shared((3, 2, 9), (4, 3, 2), release=(2, 3, 99)) == {1: 5, 4: 2}
    assert CACHED == {1: 5, 2: 9}


@pytest.mark.parametrize(
    ("share", "sentence"),
    [
        ((3, 4, 1), "holds 0 of them"),
        ((3, 1, 6), "would share 6 tokens of stream 1, but this stage holds 5"),
        ((3, 1, 0), "would share 0 tokens"),
        ((2, 1, 3), "Stream 2 exists already"),
    ],
)
def test_a_share_that_cannot_be_is_refused(share: tuple[int, int, int], sentence: str) -> None:
    with pytest.raises(BadStep, match=sentence):
        shared(share)
