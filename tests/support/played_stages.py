"""Plays a pipeline's stages for the scheduler: a deterministic model whose every token depends on all before it."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Sequence

from agent.stage.types import StreamId
from console.pipeline.plans import Outcome, Step
from console.pipeline.scheduler import Scheduler

VOCAB = 5
"""Few ids, so that guesses are often right and end tokens come."""


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


class PlayedStages:
    """All stages at once: keeps every stream's tokens, refuses what a real stage refuses, answers in order."""

    def __init__(self, scheduler: Scheduler, *, kv_tokens: int = 0, vocab: int = VOCAB) -> None:
        """`kv_tokens` 0 takes the scheduler's own limit."""
        self.scheduler = scheduler
        self.caches: dict[StreamId, list[int]] = {}
        self.flying: deque[tuple[Step, list[int]]] = deque()
        self.answers: dict[StreamId, list[int]] = {}
        self.finished: dict[StreamId, str] = {}
        self.steps: list[Step] = []
        self._kv_tokens = kv_tokens or scheduler.limits.kv_tokens
        self._vocab = vocab

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

    def run(self, *, most: int = 5000) -> None:
        """Go on until nothing is left to do."""
        while not self.scheduler.idle:
            self.send()
            assert self.flying, "the scheduler is stuck"
            self.answer()
            most -= 1
            assert most, "the scheduler never ends"

    def _run(self, step: Step) -> list[int]:
        for stream in step.release:
            del self.caches[stream]
        tokens, ids = list(step.tokens), []
        busy = {row.stream for other, _ in self.flying for row in other.rows if row.wants}
        for row in step.rows:
            assert row.stream not in busy, "a stream is in two steps"
            assert (row.sampling is not None) == (row.stream not in self.caches), "the tail must be told once"
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
        assert sum(map(len, self.caches.values())) <= self._kv_tokens, "the caches are full"
        return ids
