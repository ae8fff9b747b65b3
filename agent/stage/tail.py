"""The tail's memory of its streams: how each is sampled, its grammar, and the token ids of those that need them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agent.stage.errors import BadStep, GrammarUnusable
from agent.stage.grammar import Constraint, Grammars
from agent.stage.penalties import NO_HISTORY, History, Shift
from agent.stage.sampling import GREEDY, Logits, log_probabilities, sample
from agent.stage.types import Logprobs, Refusal, Row, Sampling, StreamId

MAX_LOGPROBS = 20
MAX_CONSTRAINTS = 64
"""How many grammars are kept open: streams whose beginnings are kept for others would hold theirs for minutes."""


class Tail:
    """Turns the logits of a step into token ids. A stream that asks for nothing special costs nothing special."""

    def __init__(self, vocab_size: int, grammars: Grammars | None = None) -> None:
        """Without `grammars`, streams that have one are refused."""
        self._vocab_size = vocab_size
        self._grammars = grammars
        self._sampling: dict[StreamId, Sampling] = {}
        self._shifts: dict[StreamId, Shift] = {}
        self._histories: dict[StreamId, History] = {}
        self._asking: set[StreamId] = set()
        self._grammar_of: dict[StreamId, str] = {}
        self._constraints: dict[StreamId, Constraint] = {}
        """Those used last, the newest at the end; another one is made again when its stream is back."""
        self._refused: dict[StreamId, str] = {}

    def release(self, stream: StreamId) -> None:
        """Forget a stream; unknown ones are fine."""
        self._sampling.pop(stream, None)
        self._shifts.pop(stream, None)
        self._histories.pop(stream, None)
        self._asking.discard(stream)
        self._grammar_of.pop(stream, None)
        self._constraints.pop(stream, None)
        self._refused.pop(stream, None)

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
        moved = self._moved(rows, logits, choices) if self._shifts or self._grammar_of else logits
        ids = sample(moved, choices)
        return ids, self._logprobs(rows, logits, ids) if self._asking else []

    def refusals(self, rows: Sequence[Row]) -> list[Refusal]:
        """Say which of the rows' streams cannot go on, and why; call it after `pick`."""
        if not self._refused:
            return []
        return [Refusal(row.stream, self._refused[row.stream]) for row in rows if row.stream in self._refused]

    def _moved(self, rows: Sequence[Row], logits: Logits, choices: Sequence[tuple[Sampling, int]]) -> Logits:
        """Return the logits after bias, penalties and grammars, as a copy where there are any."""
        moved, at = logits, 0
        for row in rows:
            shift, grammar = self._shifts.get(row.stream), self._grammar_of.get(row.stream)
            if row.wants and (shift is not None or grammar is not None):
                if moved is logits:
                    moved = logits.copy()
                history = self._histories.get(row.stream, NO_HISTORY)
                if shift is not None:
                    for place in range(at, at + row.wants):
                        moved[place] = shift.apply(logits[place], history.before(choices[place][1]))
                if grammar is not None:
                    self._constrain(row, grammar, history, moved[at : at + row.wants])
            at += row.wants
        return moved

    def _constrain(self, row: Row, grammar: str, history: History, logits: Logits) -> None:
        """Leave in a row's logits [wants,V] what its grammar allows, after each draft by what stands before it.

        What stands behind a draft that is not allowed stays as it is: the draft is rejected, and all of that with it.
        """
        end = row.first + row.count
        ids = history.before(end)[self._sampling[row.stream].answer_start :].tolist()
        drafts = row.wants - 1
        try:
            masks = self._constraint(row.stream, grammar).masks(ids[: len(ids) - drafts], ids[len(ids) - drafts :])
            for place, mask in enumerate(masks):
                np.copyto(logits[place], -np.inf, where=~mask)
        except GrammarUnusable as error:
            del self._grammar_of[row.stream]
            self._constraints.pop(row.stream, None)
            self._refused[row.stream] = str(error)

    def _constraint(self, stream: StreamId, grammar: str) -> Constraint:
        if self._grammars is None:
            raise GrammarUnusable("The PC with the last layers cannot keep answers to a grammar; ask without one.")
        constraint = self._constraints.pop(stream, None) or self._grammars.open(grammar)
        self._constraints[stream] = constraint
        if len(self._constraints) > MAX_CONSTRAINTS:
            del self._constraints[next(iter(self._constraints))]
        return constraint

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
        if sampling.moves_logits:
            self._shifts[stream] = Shift(sampling)
        if sampling.grammar:
            self._grammar_of[stream] = sampling.grammar
        if sampling.logprobs >= 0:
            self._asking.add(stream)

    def _check_ids(self, row: Row, known: int) -> None:
        """The ids must reach from what is known, or from before the row, to the row's end."""
        ids = row.ids or ()
        start = row.first + row.count - len(ids)
        if not 0 <= start <= min(row.first, known):
            raise BadStep(
                f"Stream {row.stream} has penalties or a grammar, but its row lacks token ids from position "
                f"{min(row.first, known)} on; replay the stream."
            )
        if any(not 0 <= token < self._vocab_size for token in ids):
            raise BadStep(f"A token id of stream {row.stream} lies outside the vocabulary of {self._vocab_size}.")
