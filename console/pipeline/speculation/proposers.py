"""Where guesses come from: one protocol, and the proposer that only reads the stream's own tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent.stage.types import Sampling, StreamId
from console.pipeline.speculation.lookup import LookupIndex

SURE_TOKENS = 4
"""Matches as long as this are mostly copying, shorter ones mostly chance: far more drafts of the former are right."""


class Proposer(Protocol):
    """Guesses for the streams of one pipeline. Called on the service's event loop; must not block or raise."""

    name: str
    kinds: int
    """How many kinds of guesses there are: the share of right ones is measured for each."""

    @property
    def draft_s(self) -> float:
        """Seconds that making one draft takes, as measured; 0 when it is nothing."""
        ...

    @property
    def problem(self) -> str:
        """Why it cannot guess for anybody now, as a sentence; empty when it can."""
        ...

    def begin(self, stream: StreamId, ids: Sequence[int], sampling: Sampling) -> None:
        """A stream with the prompt `ids` starts."""
        ...

    def kind(self, stream: StreamId, ids: Sequence[int]) -> int | None:
        """Say which kind of guess it has for what follows `ids`, or None for no guess."""
        ...

    def propose(self, stream: StreamId, ids: Sequence[int], count: int) -> Sequence[int] | None:
        """Guess up to `count` tokens that follow `ids`. None: ask again later with the same."""
        ...

    def forget(self, stream: StreamId) -> None:
        """The stream ended; unknown ones are fine."""
        ...


class LookupProposer:
    """Prompt lookup: copies what followed the last time. Makes no work for anything but the console."""

    name = "lookup"
    kinds = 2
    draft_s = 0.0
    problem = ""

    def __init__(self) -> None:
        self._indexes: dict[StreamId, LookupIndex] = {}

    def begin(self, stream: StreamId, ids: Sequence[int], sampling: Sampling) -> None:
        """Nothing to prepare: the index is made with the first guess."""

    def kind(self, stream: StreamId, ids: Sequence[int]) -> int | None:
        match = self._index(stream, ids).match()
        return None if match is None else int(match.length >= SURE_TOKENS)

    def propose(self, stream: StreamId, ids: Sequence[int], count: int) -> Sequence[int]:
        index = self._index(stream, ids)
        match = index.match()
        return [] if match is None else index.copy(match, count)

    def forget(self, stream: StreamId) -> None:
        self._indexes.pop(stream, None)

    def _index(self, stream: StreamId, ids: Sequence[int]) -> LookupIndex:
        index = self._indexes.get(stream)
        if index is None:
            index = self._indexes[stream] = LookupIndex()
        if len(index) < len(ids):
            index.extend(ids[len(index) :])
        return index
