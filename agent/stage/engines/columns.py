"""The packed engine's cache as bookkeeping: one set of columns, any of which any stream may see.

A stream lists the column of each of its positions. Streams that begin alike list the same columns; one that goes back
strikes columns off its list. With a window, a long stream is a ring: its first `SINKS` positions stay for ever,
because a model that loses sight of them loops, and of the others the oldest make room for the newest. Which positions
a token sees follows from its own position alone, so neither chunks nor rejected drafts change what comes out.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from agent.stage.errors import BadStep, KvFull, StepError
from agent.stage.types import Share, StreamId
from shard_export.library.counts import counted

SINKS = 4
"""First positions that stay visible for ever."""
REWIND_TOKENS = 64
"""A ring keeps so many positions that its last token no longer sees, in case its last tokens are rejected."""

Columns = npt.NDArray[np.int32]
GONE = -1


def ring_columns(window_tokens: int, call_tokens: int) -> int:
    """Count the columns a stream with that window takes at most, when a call brings up to `call_tokens` of it."""
    return window_tokens + REWIND_TOKENS + call_tokens


class _Held:
    """The columns of one stream by position; `kept_from` is the first position beyond the sinks that it still has."""

    def __init__(self, context_tokens: int) -> None:
        self.columns = np.full(context_tokens, GONE, np.int32)
        self.length = 0
        self.kept_from = SINKS

    def copied(self, length: int) -> _Held:
        held = copy.copy(self)
        held.columns = self.columns.copy()
        held.columns[length:] = GONE
        held.length = length
        return held

    def present(self) -> Columns:
        held: Columns = self.columns[: self.length]
        found: Columns = held[held != GONE]
        return found


class ColumnPool:
    """`columns` columns for streams of up to `context_tokens`; with `window_tokens` long streams are rings (0: not)."""

    def __init__(self, columns: int, context_tokens: int, *, window_tokens: int = 0, call_tokens: int = 1) -> None:
        self.reach = window_tokens - SINKS if window_tokens else 0
        """How far back a token sees, itself included; 0: everything."""
        self._context = context_tokens
        self._most = ring_columns(window_tokens, call_tokens) if window_tokens else context_tokens
        self._references = np.zeros(columns, np.int32)
        self._free = list(range(columns - 1, -1, -1))
        self._held: dict[StreamId, _Held] = {}

    @property
    def free_columns(self) -> int:
        return len(self._free)

    @property
    def holders(self) -> list[StreamId]:
        """List the streams that have columns, or had some."""
        return list(self._held)

    def seen_by(self, stream: StreamId) -> tuple[Columns, npt.NDArray[np.int64]]:
        """List a stream's columns and the positions in them."""
        held = self._held[stream]
        positions = np.flatnonzero(held.columns[: held.length] != GONE)
        return held.columns[positions], positions

    def apply(self, shares: Sequence[Share], release: Iterable[StreamId], writes: Mapping[StreamId, range]) -> None:
        """Do a step's shares and releases, take each writing stream back to where its range begins, and check the room.

        Raises KvFull, or BadStep for a beginning that a ring no longer has; both with nothing changed.
        """
        before = (
            self._free.copy(),
            self._references.copy(),
            {s: held.copied(held.length) for s, held in self._held.items()},
        )
        try:
            for share in shares:
                self._share(share)
            for stream in release:
                self._release(stream)
            for stream, positions in writes.items():
                held = self._held.setdefault(stream, _Held(self._context))
                self._check_reach(stream, held, positions.start)
                self._drop(held.columns[positions.start : held.length])
                self._held[stream] = held.copied(positions.start)
            self._check_room(writes)
        except StepError:
            self._free, self._references, self._held = before
            raise

    def extend(self, stream: StreamId, count: int) -> Columns:
        """Take columns for the next `count` positions of a stream; a ring gives up its oldest ones for them."""
        held = self._held[stream]
        if self.reach:
            kept_from = max(held.kept_from, held.length + 1 - self.reach - REWIND_TOKENS)
            self._drop(held.columns[held.kept_from : kept_from])
            held.columns[held.kept_from : kept_from] = GONE
            held.kept_from = kept_from
        taken = np.array([self._free.pop() for _ in range(count)], np.int32)
        self._references[taken] = 1
        held.columns[held.length : held.length + count] = taken
        held.length += count
        return taken

    def _share(self, share: Share) -> None:
        source = self._held[share.source]
        self._check_reach(share.source, source, share.tokens)
        # A stream whose first step failed is unknown to the engine but still holds its columns.
        self._release(share.stream)
        self._held[share.stream] = source.copied(share.tokens)
        self._references[self._held[share.stream].present()] += 1

    def _release(self, stream: StreamId) -> None:
        held = self._held.pop(stream, None)
        if held is not None:
            self._drop(held.columns[: held.length])

    def _drop(self, columns: Columns) -> None:
        columns = columns[columns != GONE]
        self._references[columns] -= 1
        # Reversed, so that a stream that starts over finds the columns it had: sums in another order round otherwise.
        self._free += columns[self._references[columns] == 0][::-1].tolist()

    def _check_reach(self, stream: StreamId, held: _Held, length: int) -> None:
        if held.kept_from > max(SINKS, length + 1 - self.reach):
            raise BadStep(
                f"Stream {stream} cannot go back to {counted(length, 'token')}: of what it would see there, "
                "the positions before "
                f"{held.kept_from} are gone; run it from its beginning."
            )

    def _check_room(self, writes: Mapping[StreamId, range]) -> None:
        wanted = 0
        for stream, positions in writes.items():
            # Shared columns that a ring gives up are not free yet: only what the stream holds alone makes room.
            own = int(np.count_nonzero(self._references[self._held[stream].present()] == 1)) if self.reach else 0
            wanted += min(len(positions), max(0, self._most - own))
        if wanted > len(self._free):
            raise KvFull(
                f"The step needs {wanted} more cached tokens and {len(self._free)} are free; release a stream first."
            )
