"""How a request moves logits before a token is drawn: bias, then penalties, then bans and what is forced.

The order is the customary one. `repetition_penalty` divides the positive logits of every token that prompt or answer
holds and multiplies the negative ones. `frequency_penalty` is taken off once for every time the answer holds a token,
`presence_penalty` once if it does. All of it is computed anew from the history in front of a position, so a verified,
replayed or moved stream gets the same values as one that was never interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agent.stage.types import Sampling

BAN, FORCE = -100.0, 100.0
FAR = 1e6
"""What a ban takes off. Far beyond any logit, yet finite: a request that bans everything still gets a token."""

Logits = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]


class History:
    """The token ids of one stream, prompt first; grows at the end and is cut there."""

    def __init__(self) -> None:
        self._ids = np.zeros(0, np.int32)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def write(self, start: int, ids: Sequence[int]) -> None:
        """Put `ids` at position `start` <= length; what was behind it is gone."""
        end = start + len(ids)
        if end > len(self._ids):
            self._ids = np.pad(self._ids, (0, max(end, 2 * len(self._ids)) - len(self._ids)))
        self._ids[start:end] = ids
        self._length = end

    def before(self, position: int) -> Ids:
        """Return the ids in front of a position, as a view."""
        return self._ids[: min(position, self._length)]


NO_HISTORY = History()
"""For streams that are biased but not penalised; never written."""


class Shift:
    """What one stream's request does to logits, prepared once."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._biased = np.array(list(sampling.logit_bias), np.int64)
        self._bias = np.array(list(sampling.logit_bias.values()), np.float64)
        self._banned = self._biased[self._bias <= BAN]
        self._forced = self._biased[self._bias >= FORCE]

    def apply(self, logits: Logits, history: Ids) -> Logits:
        """Return the moved logits [V] of the token that follows `history`; the input stays as it is."""
        moved = logits.copy()
        if len(self._biased):
            moved[self._biased] = moved[self._biased] + self._bias
        if len(history):
            self._penalise(moved, history)
        if len(self._forced):
            kept = moved[self._forced]
            moved -= FAR
            moved[self._forced] = kept
        if len(self._banned):
            moved[self._banned] -= FAR
        return moved

    def _penalise(self, moved: Logits, history: Ids) -> None:
        sampling = self._sampling
        if sampling.repetition_penalty != 1:
            # A mark per id is several times quicker than sorting the history.
            held = np.zeros(len(moved), np.bool_)
            held[history] = True
            seen = np.flatnonzero(held)
            values = moved[seen].astype(np.float64)
            factor = sampling.repetition_penalty
            moved[seen] = np.where(values > 0, values / factor, values * factor)
        if sampling.presence_penalty or sampling.frequency_penalty:
            counts = np.bincount(history[sampling.answer_start :])
            said = np.flatnonzero(counts)
            moved[said] = moved[said] - (counts[said] * sampling.frequency_penalty + sampling.presence_penalty)
