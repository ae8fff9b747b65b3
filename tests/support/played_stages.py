"""Plays a pipeline's stages for the scheduler: a deterministic model whose every token depends on all before it."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Sequence

from agent.stage.engines.blocks import BlockPool
from agent.stage.types import Sampling, StreamId
from console.pipeline.drafts import NoDrafts
from console.pipeline.ledger import BLOCK_TOKENS
from console.pipeline.plans import Outcome, Step
from console.pipeline.scheduler import Scheduler

VOCAB = 5
"""Few ids, so that guesses are often right and end tokens come."""


WRONG = VOCAB + 1
"""A guess that is never right."""


def next_token(history: Sequence[int], vocab: int = VOCAB) -> int:
    """Return the model's token after `history`: greedy, and so a function of ids and position alone. Ids < 256."""
    return zlib.crc32(bytes(history)) % vocab


def plain_answer(prompt: Sequence[int], limit: int, eos: Iterable[int] = (), vocab: int = VOCAB) -> list[int]:
    """Return what the model says, one token at a time, until an end token or the limit."""
    history, ends = list(prompt), frozenset(eos)
    while len(history) < len(prompt) + limit:
        history.append(next_token(history, vocab))
        if history[-1] in ends:
            break
    return history[len(prompt) :]


class Guesses(NoDrafts):
    """A draft source that knows the model: the first `right` of `count` drafts are what it will say.

    `plan` gives `(count, right)` round by round, over and over; None lets the stream wait once.
    """

    def __init__(self, *plan: tuple[int, int] | None) -> None:
        self.plan = plan
        self.asked = 0
        self.rooms: list[int] = []
        self.judgements: list[tuple[int, int]] = []
        self.known: set[StreamId] = set()
        self.forgotten: list[StreamId] = []

    def begin(self, stream: StreamId, ids: Sequence[int], sampling: Sampling) -> None:
        self.known.add(stream)

    def drafts_for(self, stream: StreamId, ids: Sequence[int], room: int) -> Sequence[int] | None:
        assert stream in self.known
        assert stream not in self.forgotten
        self.rooms.append(room)
        wanted = self.plan[self.asked % len(self.plan)]
        self.asked += 1
        if wanted is None:
            return None
        count, right = wanted
        history = list(ids)
        for place in range(count):
            history.append(next_token(history) if place < right else WRONG)
        return history[len(ids) :]

    def judged(self, stream: StreamId, drafts: int, accepted: int) -> None:
        assert stream not in self.forgotten
        self.judgements.append((drafts, accepted))

    def forget(self, stream: StreamId) -> None:
        self.forgotten.append(stream)


class PlayedStages:
    """All stages at once: keeps every stream's tokens, refuses what a real stage refuses, answers in order.

    The blocks are counted by the paged engine's own pool, which raises KvFull.
    """

    def __init__(self, scheduler: Scheduler, *, vocab: int = VOCAB) -> None:
        self.scheduler = scheduler
        self.pool = BlockPool(scheduler.limits.kv_tokens // BLOCK_TOKENS, BLOCK_TOKENS)
        self.computed = 0
        self.caches: dict[StreamId, list[int]] = {}
        self.flying: deque[tuple[Step, list[int]]] = deque()
        self.answers: dict[StreamId, list[int]] = {}
        self.finished: dict[StreamId, str] = {}
        self.steps: list[Step] = []
        self.shared: set[StreamId] = set()
        self.told: set[StreamId] = set()
        self._vocab = vocab
        self._failed = False

    def send(self) -> None:
        """Run every step that the scheduler lets go."""
        while (step := self.scheduler.schedule()) is not None:
            assert step.rows or step.release
            self.steps.append(step)
            self.flying.append((step, self._run(step)))
            assert len(self.flying) == self.scheduler.in_flight <= self.scheduler.limits.stages

    def answer(self) -> list[Outcome]:
        """Bring the oldest step back."""
        step, ids = self.flying.popleft()
        assert self.scheduler.expects(step.id) == len(ids)
        outcomes = self.scheduler.update(step.id, ids)
        for outcome in outcomes:
            self.answers.setdefault(outcome.stream, []).extend(outcome.ids)
            if outcome.finish:
                assert outcome.stream not in self.finished
                self.finished[outcome.stream] = outcome.finish
        return outcomes

    def fail(self) -> list[StreamId]:
        """Refuse the oldest step after it ran; what it released may come again."""
        self._failed = True
        return self.scheduler.fail_step(self.flying.popleft()[0].id)

    def run(self, *, most: int = 5000) -> None:
        """Go on until nothing is left to do; finished streams may stay cached."""
        while not self.scheduler.idle:
            self.send()
            assert self.flying, "the scheduler is stuck"
            self.answer()
            most -= 1
            assert most, "the scheduler never ends"

    def forget(self) -> None:
        """Have everything that is kept released, and check that nothing stays."""
        self.scheduler.age_kept()
        self.scheduler.age_kept()
        self.run()
        assert not self.caches
        assert self.pool.free_tokens == self.scheduler.limits.kv_tokens // BLOCK_TOKENS * BLOCK_TOKENS

    def _run(self, step: Step) -> list[int]:
        writes = {row.stream: range(row.first, row.first + row.count) for row in step.rows}
        if self.scheduler.limits.shares_blocks:
            assert not self.pool.apply(step.shares, step.release, writes), "a shared block is written"
        for share in step.shares:
            assert share.stream not in self.caches
            assert 0 < share.tokens <= len(self.caches[share.source])
            self.caches[share.stream] = self.caches[share.source][: share.tokens]
            self.shared.add(share.stream)
        for stream in step.release:
            assert self._failed or stream in self.caches, "an unknown stream is released"
            self.caches.pop(stream, None)
            self.told.discard(stream)
        tokens, ids = list(step.tokens), []
        busy = {row.stream for other, _ in self.flying for row in other.rows if row.wants}
        for row in step.rows:
            assert row.stream not in busy, "a stream is in two steps"
            assert (row.sampling is not None) == (row.stream not in self.told), "the tail must be told once"
            self.told.add(row.stream)
            cache = self.caches.setdefault(row.stream, [])
            if row.truncate_to >= 0:
                del cache[row.truncate_to :]
            assert row.first == len(cache), "the row does not continue the cache"
            cache += tokens[: row.count]
            del tokens[: row.count]
            assert len(cache) <= self.scheduler.limits.stream_tokens, "the context is exceeded"
            ends = range(row.first + row.count - row.wants + 1, row.first + row.count + 1)
            ids += [next_token(cache[:end], self._vocab) for end in ends]
        assert not tokens
        self.computed += len(step.tokens)
        limits = self.scheduler.limits
        assert sum(row.count for row in step.rows if row.wants < row.count) <= limits.prefill_tokens
        if not limits.shares_blocks:
            assert sum(map(len, self.caches.values())) <= limits.kv_tokens, "the caches are full"
        assert not limits.places or len(self.caches) <= limits.places, "there are too many streams"
        return ids
