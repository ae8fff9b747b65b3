"""Prompt lookup: what followed the last time the stream said what it says now? Pure.

Answers repeat their prompt and themselves (edits, code, quotations, lists). Every position is chained to the one before
it that ends in the same pair of tokens, as LZ77 compressors do; a guess walks the chain, keeps the longest match and
copies what came behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MATCH_TOKENS = 2
"""The shortest match that is worth a guess: single tokens recur everywhere."""
LONGEST_MATCH = 16
"""Longer matches than this are all alike: copying."""
CANDIDATES = 32
"""How many earlier places are compared, newest first: bounds the work of a guess in repetitive text."""


class Match(NamedTuple):
    """An earlier place that ends like the stream does now: `start` is the position behind it, `length` its tokens."""

    start: int
    length: int


class LookupIndex:
    """The tokens of one stream, prompt first, and where each pair of them was seen. It only grows."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._newest: dict[tuple[int, int], int] = {}
        self._previous: list[int] = []

    def __len__(self) -> int:
        return len(self._ids)

    def extend(self, ids: Sequence[int]) -> None:
        """Append tokens: constant work for each."""
        for token in ids:
            at = len(self._ids)
            self._ids.append(token)
            if at == 0:
                self._previous.append(-1)
                continue
            pair = (self._ids[at - 1], token)
            self._previous.append(self._newest.get(pair, -1))
            self._newest[pair] = at

    def match(self) -> Match | None:
        """Find the longest earlier match of the stream's end, the newest one among equals."""
        best: Match | None = None
        at = self._previous[-1] if self._previous else -1
        for _ in range(CANDIDATES):
            if at < 0:
                break
            length = self._length(at)
            if best is None or length > best.length:
                best = Match(at + 1, length)
                if length >= LONGEST_MATCH:
                    break
            at = self._previous[at]
        return best

    def copy(self, match: Match, count: int) -> list[int]:
        """Return the `count` tokens behind a match; at the stream's end what was copied already goes on repeating."""
        known = self._ids[match.start : match.start + count]
        period = len(self._ids) - match.start
        return [known[place % period] for place in range(count)]

    def _length(self, at: int) -> int:
        """Count how many tokens up to position `at` equal the last ones; the pair is known to."""
        ids, end = self._ids, len(self._ids) - 1
        length = MATCH_TOKENS
        while length < LONGEST_MATCH and length <= at and ids[at - length] == ids[end - length]:
            length += 1
        return length
