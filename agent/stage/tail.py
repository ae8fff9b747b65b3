"""The tail's memory of its streams: how each is sampled, and the token ids of those whose penalties need them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agent.stage.errors import BadStep
from agent.stage.penalties import NO_HISTORY, History, Shift
from agent.stage.sampling import GREEDY, Logits, log_probabilities, sample
from agent.stage.types import Logprobs, Row, Sampling, StreamId

MAX_LOGPROBS = 20


class Tail:
    """Turns the logits of a step into token ids. A stream that asks for nothing special costs nothing special."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._sampling: dict[StreamId, Sampling] = {}
        self._shifts: dict[StreamId, Shift] = {}
        self._histories: dict[StreamId, History] = {}
        self._asking: set[StreamId] = set()

    def release(self, stream: StreamId) -> None:
        """Forget a stream; unknown ones are fine."""
        self._sampling.pop(stream, None)
        self._shifts.pop(stream, None)
        self._histories.pop(stream, None)
        self._asking.discard(stream)

    def expect(self, rows: Sequence[Row]) -> None:
        """Take in what the rows say about sampling, before they run. Raises BadStep for what cannot be done."""
        for row in rows:
            if row.sampling is not None:
                self._remember(row.stream, row.sampling)
        if self._histories:
            for row in rows:
                if row.stream in self._histories:
                    self._check_ids(row, len(self._histories[row.stream]))

    def extend(self, rows: Sequence[Row]) -> None:
        """Write the rows' ids into the histories, once they ran. What a row truncated is cut here as well."""
        if not self._histories:
            return
        for row in rows:
            history = self._histories.get(row.stream)
            if history is not None and row.ids is not None:
                history.write(row.first + row.count - len(row.ids), row.ids)

    def pick(self, rows: Sequence[Row], logits: Logits) -> tuple[npt.NDArray[np.int32], list[Logprobs | None]]:
        """Pick an id for each of the last `wants` positions of each row; `logits` [W,V] are theirs, in order.

        The log-probabilities are empty unless a stream of the step asked for them. Raises EngineFailed.
        """
        choices = []
        for row in rows:
            chosen = self._sampling.get(row.stream, GREEDY)
            end = row.first + row.count
            choices += [(chosen, position + 1) for position in range(end - row.wants, end)]
        moved = self._moved(rows, logits, choices) if self._shifts else logits
        ids = sample(moved, choices)
        return ids, self._logprobs(rows, logits, ids) if self._asking else []

    def _moved(self, rows: Sequence[Row], logits: Logits, choices: Sequence[tuple[Sampling, int]]) -> Logits:
        """Return the logits after bias and penalties, as a copy where there are any."""
        moved, at = logits, 0
        for row in rows:
            shift = self._shifts.get(row.stream)
            if shift is not None and row.wants:
                if moved is logits:
                    moved = logits.copy()
                history = self._histories.get(row.stream, NO_HISTORY)
                for place in range(at, at + row.wants):
                    moved[place] = shift.apply(logits[place], history.before(choices[place][1]))
            at += row.wants
        return moved

    def _logprobs(self, rows: Sequence[Row], logits: Logits, ids: npt.NDArray[np.int32]) -> list[Logprobs | None]:
        if not any(row.stream in self._asking for row in rows):
            return []
        found: list[Logprobs | None] = []
        for row in rows:
            asked = self._sampling[row.stream].logprobs if row.stream in self._asking else -1
            places = range(len(found), len(found) + row.wants)
            found += [log_probabilities(logits[at], int(ids[at]), asked) if asked >= 0 else None for at in places]
        return found

    def _remember(self, stream: StreamId, sampling: Sampling) -> None:
        if not sampling.repetition_penalty > 0:
            raise BadStep(f"Stream {stream} has a repetition penalty that is not positive; send another one.")
        if any(not 0 <= token < self._vocab_size for token in sampling.logit_bias):
            raise BadStep(f"Stream {stream} biases an id outside the vocabulary of {self._vocab_size}; leave it out.")
        if sampling.logprobs > MAX_LOGPROBS or sampling.answer_start < 0:
            raise BadStep(f"Stream {stream} asks for impossible log-probabilities or answers before its prompt.")
        self.release(stream)
        self._sampling[stream] = sampling
        if sampling.needs_history:
            self._histories[stream] = History()
        if sampling.needs_history or sampling.logit_bias:
            self._shifts[stream] = Shift(sampling)
        if sampling.logprobs >= 0:
            self._asking.add(stream)

    def _check_ids(self, row: Row, known: int) -> None:
        """The ids must reach from what is known, or from before the row, to the row's end."""
        ids = row.ids or ()
        start = row.first + row.count - len(ids)
        if not 0 <= start <= min(row.first, known):
            raise BadStep(
                f"Stream {row.stream} has penalties, but its row lacks token ids from position {min(row.first, known)} "
                "on; replay the stream."
            )
        if any(not 0 <= token < self._vocab_size for token in ids):
            raise BadStep(f"A token id of stream {row.stream} lies outside the vocabulary of {self._vocab_size}.")
