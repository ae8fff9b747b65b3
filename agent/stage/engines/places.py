"""How the rows of a step are laid on the token axes of static graphs, and what each place may see. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from agent.stage.engines.columns import SINKS, ColumnPool
from agent.stage.types import Row, StreamId
from shard_export.library.graph import MASKED

Mask = npt.NDArray[np.float32]


class Piece(msgspec.Struct, frozen=True):
    """`count` tokens of a stream from position `first` on; they lie at `at` on the step's flat axis.

    Logits of the last `wants` of them are wanted.
    """

    stream: StreamId
    first: int
    count: int
    at: int
    wants: int


def split_rows(rows: Sequence[Row], places: int, wanted: int) -> list[list[Piece]]:
    """Cut the rows of a step, in order, into calls of at most `places` tokens and `wanted` logits."""
    calls: list[list[Piece]] = [[]]
    places_left, wanted_left, at = places, wanted, 0
    for row in rows:
        done = 0
        while done < row.count:
            silent = max(0, row.count - row.wants - done)
            count = min(row.count - done, places_left, silent + wanted_left)
            if count == 0:
                calls.append([])
                places_left, wanted_left = places, wanted
                continue
            wants = max(0, count - silent)
            calls[-1].append(Piece(row.stream, row.first + done, count, at, wants))
            places_left, wanted_left = places_left - count, wanted_left - wants
            done, at = done + count, at + count
    return calls


def fill_masks(masks: Mapping[int, Mask], pieces: Sequence[Piece], pool: ColumnPool) -> None:
    """Write the additive masks [N,C+N] of a call, by window (0: full attention), before its columns are taken.

    A token sees its stream's cached columns and, of the call, its own piece up to itself, as far as the window and the
    ring let it. A place without a token sees itself alone: a row that sees nothing would be no number.
    """
    for window, mask in masks.items():
        places = mask.shape[0]
        cached = mask.shape[1] - places
        mask.fill(MASKED)
        np.fill_diagonal(mask[:, cached:], 0)
        start = 0
        for piece in pieces:
            own = slice(start, start + piece.count)
            _fill_cached(mask[own, :cached], piece, window, pool)
            _fill_new(mask[own, cached:][:, own], window)
            start += piece.count


def _fill_cached(mask: Mask, piece: Piece, window: int, pool: ColumnPool) -> None:
    columns, positions = pool.seen_by(piece.stream)
    for offset, row in enumerate(mask):
        own = piece.first + offset
        seen = np.ones(len(positions), np.bool_)
        if pool.reach:
            seen &= (positions < SINKS) | (own - positions < pool.reach)
        if window:
            seen &= own - positions < window
        row[columns[seen]] = 0


def _fill_new(mask: Mask, window: int) -> None:
    for offset, row in enumerate(mask):
        row[max(0, offset + 1 - window) if window else 0 : offset + 1] = 0
