"""Prompt lookup finds the longest earlier match, the newest of equals, and copies what came behind it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from console.pipeline.speculation.lookup import CANDIDATES, LONGEST_MATCH, MATCH_TOKENS, LookupIndex, Match

texts = st.lists(st.integers(0, 3), max_size=60)


def index_of(ids: list[int]) -> LookupIndex:
    index = LookupIndex()
    index.extend(ids)
    return index


def guess(ids: list[int], count: int) -> list[int]:
    index = index_of(ids)
    match = index.match()
    return [] if match is None else index.copy(match, count)


def longest_match(ids: list[int]) -> Match | None:
    """Compare every earlier place, newest first."""
    best: Match | None = None
    for start in range(len(ids) - 1, MATCH_TOKENS - 1, -1):
        length = 0
        while length < min(start, LONGEST_MATCH) and ids[start - 1 - length] == ids[-1 - length]:
            length += 1
        if length >= MATCH_TOKENS and (best is None or length > best.length):
            best = Match(start, length)
    return best


def test_what_followed_last_time_is_guessed() -> None:
    assert guess([1, 2, 3, 4, 5, 9, 1, 2, 3], 2) == [4, 5]


def test_one_token_is_no_match() -> None:
    assert guess([1, 2, 3, 4, 3], 2) == []
    assert guess([], 2) == []
    assert guess([7], 2) == []


def test_the_longest_match_wins_over_newer_ones() -> None:
    assert guess([1, 2, 3, 50, 9, 2, 3, 60, 1, 2, 3], 1) == [50]


def test_the_newest_of_equal_matches_wins() -> None:
    assert guess([2, 3, 50, 9, 2, 3, 60, 8, 2, 3], 1) == [60]


def test_a_copy_that_reaches_the_end_goes_on_repeating() -> None:
    assert guess([9, 1, 2, 3, 1, 2], 7) == [3, 1, 2, 3, 1, 2, 3]
    assert guess([4, 4, 4], 3) == [4, 4, 4]


def test_growing_by_parts_is_growing_at_once() -> None:
    ids = [1, 2, 3, 1, 2, 3, 1, 2]
    parts = LookupIndex()
    for token in ids:
        parts.extend([token])
    assert len(parts) == len(ids)
    assert parts.match() == index_of(ids).match() == Match(5, 5)


@given(texts)
def test_every_match_is_the_longest_among_the_newest_places(ids: list[int]) -> None:
    places = sum(ids[at - 1 : at + 1] == ids[-2:] for at in range(1, len(ids) - 1))
    if places <= CANDIDATES:
        assert index_of(ids).match() == longest_match(ids)


@given(texts, st.integers(1, 20))
def test_a_copy_continues_the_stream_as_if_it_had_been_said(ids: list[int], count: int) -> None:
    index = index_of(ids)
    match = index.match()
    if match is not None:
        said = ids + index.copy(match, count)
        assert said[len(ids) :] == [said[place - (len(ids) - match.start)] for place in range(len(ids), len(said))]
