"""What the draft model runs next, for all streams at once: pure bookkeeping, one step at a time.

A draft costs one step of the draft model, so streams that guess at the same time share their steps. Before its first
draft of a round a stream's row brings the cache up to date: it drops what the target rejected (`truncate_to`) and
feeds what the target said instead. When all drafts were right, the last one was never fed itself, and the row feeds it
together with the token the target added. Prompts are fed in chunks as soon as a stream starts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from agent.stage.types import Row, Sampling, StreamId

PREFILL_TOKENS = 256
"""Prompt tokens in one step, over all its rows: drafts of other streams ride along and should not wait long."""
NEAR_TOKENS = 64
"""A stream that the draft model is further behind than this is not worth waiting for: it guesses when it caught up."""


class DraftStep(NamedTuple):
    """One run of the draft model, laid out like a pipeline's step."""

    rows: list[Row]
    tokens: list[int]
    release: list[StreamId]


@dataclass
class _Seat:
    """One stream at the draft model.

    `ids` is what the target said, prompt first, and `drafts` what was guessed behind it. `fed` is what the model's
    cache holds if every step sent so far ran; its first `cached` tokens are still true. `wanted` drafts are asked for;
    `round` tells one request from the next.
    """

    ids: list[int]
    sampling: Sampling
    fed: list[int] = field(default_factory=list)
    cached: int = 0
    told: bool = False
    drafts: list[int] = field(default_factory=list)
    wanted: int = 0
    round: int = 0
    done: bool = True

    @property
    def behind(self) -> int:
        """How many tokens the model must be fed before it can guess the next one; at least the newest."""
        return len(self.ids) + len(self.drafts) - self.cached

    def tokens(self, first: int, end: int) -> list[int]:
        """Return the tokens of these positions, drafts behind what the target said."""
        known = len(self.ids)
        return self.ids[first:end] + self.drafts[max(0, first - known) : max(0, end - known)]


class DraftBoard:
    """Streams and their requests in, steps out. `stops` are token ids behind which nothing needs to be guessed."""

    def __init__(self, *, vocab_size: int, context_tokens: int, stops: Collection[int] = ()) -> None:
        """`vocab_size` is the target's: a draft beyond it means nothing. `context_tokens` is the draft model's."""
        self._vocab_size, self._context_tokens, self._stops = vocab_size, context_tokens, frozenset(stops)
        self._seats: dict[StreamId, _Seat] = {}
        self._release: list[StreamId] = []
        self._sent: list[tuple[Row, _Seat, int]] = []
        self.in_flight = False

    def begin(self, stream: StreamId, ids: Sequence[int], sampling: Sampling) -> None:
        """Start to feed a prompt."""
        bias = {token: value for token, value in sampling.logit_bias.items() if token < self._vocab_size}
        # Drafts follow no grammar: the target rejects those that it forbids, as any that are wrong.
        sampling = msgspec.structs.replace(sampling, logprobs=-1, logit_bias=bias, grammar="")
        self._seats[stream] = _Seat(list(ids), sampling)

    def forget(self, stream: StreamId) -> None:
        """End a stream; the model's cache is freed with the next step."""
        seat = self._seats.pop(stream, None)
        if seat is not None and seat.told:
            self._release.append(stream)

    def restart(self) -> None:
        """The model lost everything: feed all streams anew; guesses under way end with what they have."""
        self._sent, self._release, self.in_flight = [], [], False
        for seat in self._seats.values():
            seat.fed, seat.cached, seat.told, seat.done = [], 0, False, True
            seat.round += 1

    def can_guess(self, stream: StreamId, ids: Sequence[int]) -> bool:
        """Whether a guess for what follows `ids` is near; otherwise the model is brought nearer meanwhile."""
        seat = self._seats.get(stream)
        if seat is None:
            return False
        if seat.done:
            self._follow(seat, ids)
        return seat.behind <= NEAR_TOKENS and len(ids) < self._context_tokens

    def ask(self, stream: StreamId, ids: Sequence[int], count: int) -> None:
        """Want up to `count` guesses of what follows `ids`; ends what was asked for this stream before."""
        seat = self._seats[stream]
        self._follow(seat, ids)
        seat.round += 1
        seat.wanted = min(count, self._context_tokens - len(ids))
        seat.done = seat.wanted < 1

    def asked(self, stream: StreamId) -> bool:
        """Whether a guess is being made."""
        seat = self._seats.get(stream)
        return seat is not None and not seat.done

    def stop(self, stream: StreamId) -> None:
        """End a guess with the drafts that there are."""
        if stream in self._seats:
            self._seats[stream].done = True

    def drafts(self, stream: StreamId) -> list[int]:
        """Return the drafts made since the last `ask`."""
        return list(self._seats[stream].drafts)

    def next_step(self) -> DraftStep | None:
        """Plan the next run, or None when one is under way or nothing is to do."""
        if self.in_flight:
            return None
        rows: list[Row] = []
        tokens: list[int] = []
        budget = PREFILL_TOKENS
        self._sent = []
        # Who waits for a guess goes first; prompts of others fill what is left.
        for stream, seat in sorted(self._seats.items(), key=lambda item: item[1].done):
            wants = not seat.done
            # The newest token is fed with the guess; without one there is no hurry.
            count = min(seat.behind - (not wants), budget, self._context_tokens - seat.cached)
            if count < 1:
                continue
            budget -= count
            row, new = self._row(stream, seat, count)
            rows.append(row)
            tokens += new
            self._sent.append((row, seat, seat.round))
        if not rows and not self._release:
            return None
        step = DraftStep(rows, tokens, self._release)
        self._release, self.in_flight = [], True
        return step

    def took(self, ids: Sequence[int]) -> list[StreamId]:
        """Take the sampled ids of the step; returns the streams whose guess is complete now."""
        self.in_flight = False
        complete: list[StreamId] = []
        at = 0
        for row, seat, round_ in self._sent:
            new, at = ids[at : at + row.wants], at + row.wants
            if not new or seat.done or seat.round != round_ or self._seats.get(row.stream) is not seat:
                continue
            if new[0] < self._vocab_size:
                seat.drafts.append(new[0])
            ended = new[0] >= self._vocab_size or new[0] in self._stops
            seat.done = ended or len(seat.drafts) >= seat.wanted
            if seat.done:
                complete.append(row.stream)
        self._sent = []
        return complete

    def _follow(self, seat: _Seat, ids: Sequence[int]) -> None:
        """Take over what the target said; of the cache stays what begins like it."""
        known = len(seat.ids)
        cached = min(seat.cached, known)
        seat.ids.extend(ids[known:])
        if seat.cached >= known:
            while cached < min(seat.cached, len(seat.ids)) and seat.fed[cached] == seat.ids[cached]:
                cached += 1
        # The newest token is fed again if need be: its logits are where a guess begins.
        seat.cached = min(cached, len(seat.ids) - 1)
        seat.drafts = []

    def _row(self, stream: StreamId, seat: _Seat, count: int) -> tuple[Row, list[int]]:
        first, end = seat.cached, seat.cached + count
        new = seat.tokens(first, end)
        truncate_to = first if len(seat.fed) > first else -1
        wants = 1 if not seat.done and count == seat.behind else 0
        ids = new if seat.sampling.needs_history else None
        row = Row(stream, first, count, truncate_to, wants, None if seat.told else seat.sampling, ids)
        del seat.fed[first:]
        seat.fed += new
        seat.told, seat.cached = True, end
        return row, new
