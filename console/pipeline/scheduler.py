"""What runs in the next step: `schedule()` returns a plain plan, `update()` takes the sampled ids back. No I/O.

A decoding stream is in at most one step. Parts of a prompt need nothing from each other but their order, so they
follow one another into as many steps as there are stages.

Steps leave in order and stages work first in, first out. So a stream may be released in a step that is sent while an
older step still carries it: every stage sees the older step first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from agent.stage.types import Logprobs, Sampling, StreamId
from console.pipeline.caches import CacheBlocks, Caches
from console.pipeline.drafts import NO_DRAFTS, DraftSource
from console.pipeline.errors import ContextExceeded, KeyQueueFull, PromptError, QueueFull
from console.pipeline.pacing import Pace
from console.pipeline.plans import Limits, Outcome, Step
from console.pipeline.rows import accept, agreed
from console.pipeline.running import Running
from console.pipeline.streams import FairQueue, Stream
from shard_export.library.counts import counted


class Scheduler:
    """Streams in, steps out. At most `limits.stages` steps are in flight.

    `drafts` guesses tokens for verify rows; whatever it guesses, the answers are the same.
    """

    def __init__(self, limits: Limits, drafts: DraftSource = NO_DRAFTS) -> None:
        self.limits = limits
        self._drafts = drafts
        self._streams: dict[StreamId, Stream] = {}
        self._queue = FairQueue()
        self._caches = Caches(limits)
        self._running = Running(limits, self._caches, drafts)
        self._in_flight: dict[int, Step] = {}
        self._next_stream = 1
        self._next_step = 1

    @property
    def running(self) -> int:
        """How many streams have a place in the caches."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many streams wait for one."""
        return len(self._queue)

    @property
    def in_flight(self) -> int:
        """How many steps are on their way."""
        return len(self._in_flight)

    @property
    def kept(self) -> int:
        """How many finished streams are kept in the caches for their beginning."""
        return self._caches.kept

    @property
    def blocks(self) -> CacheBlocks:
        """How full the caches are."""
        return self._caches.blocks

    @property
    def pace(self) -> Pace:
        """How many steps are in flight now, how much of a prompt goes into one, and why."""
        return self._running.pace

    @property
    def draft_s(self) -> float:
        """What one more guess costs a step, over all stages; 0 while nobody knows."""
        return self._running.pacer.token_ms / 1000

    @property
    def idle(self) -> bool:
        """Whether no stream exists, nothing is on its way and nothing is left to release."""
        return not (self._streams or self._in_flight or self._caches.owes)

    @property
    def queue_changes(self) -> int:
        """A number that grows whenever the queue changes."""
        return self._queue.changes

    def queue(self) -> list[StreamId]:
        """List the streams that wait in the order in which they will be admitted, as things are."""
        return [stream.id for stream in self._queue]

    def history(self, stream: StreamId) -> list[int]:
        """Return every token id of a stream, prompt first: what a replay needs. Raises KeyError."""
        return list(self._streams[stream].ids)

    def reused(self, stream: StreamId) -> int:
        """Say how many prompt tokens of a stream were cached when it began; 0 before that and for unknown streams."""
        known = self._streams.get(stream)
        return max(0, known.reused) if known is not None else 0

    def streams(self) -> list[StreamId]:
        """List every stream that runs or waits."""
        return list(self._streams)

    def add(
        self, prompt: list[int], max_tokens: int, *, sampling: Sampling, eos: Collection[int] = (), key: str = ""
    ) -> StreamId:
        """Queue a generation of at most `max_tokens`, ended early by an id of `eos` or by the context.

        Raises PromptError, ContextExceeded, QueueFull.
        """
        if not prompt:
            raise PromptError("The prompt is empty: send at least one message.")
        if max_tokens < 1:
            raise PromptError(f"An answer of {max_tokens} tokens cannot be generated: ask for at least 1.")
        room = self.limits.stream_tokens - len(prompt)
        if room < 1:
            raise ContextExceeded(len(prompt), self.limits.stream_tokens)
        if len(self._queue) >= self.limits.queue:
            raise QueueFull(len(self._queue))
        if (waiting := self._queue.of_key(key)) >= self.limits.key_queue:
            raise KeyQueueFull(waiting)
        if sampling.needs_history:
            sampling = msgspec.structs.replace(sampling, answer_start=len(prompt))
        limit = min(max_tokens, room)
        stream = Stream(StreamId(self._next_stream), list(prompt), len(prompt), limit, sampling, frozenset(eos), key)
        self._next_stream += 1
        self._streams[stream.id] = stream
        self._queue.push(stream)
        return stream.id

    def schedule(self) -> Step | None:
        """Plan the next step, or None when nothing may be sent now. Call again until None: several may be in flight."""
        if len(self._in_flight) >= self.limits.stages:
            return None
        self._admit()
        rows, tokens = self._running.fill(self._in_flight.values())
        # The youngest was preempted first, so it ends up behind the others at the front of the queue.
        for stream in self._running.preempted:
            self._queue.push_front(stream)
        self._running.preempted.clear()
        if not rows and (self._in_flight or not self._caches.owes):
            return None
        shares, release = self._caches.take()
        step = Step(self._next_step, rows, tokens, release, shares)
        self._next_step += 1
        self._in_flight[step.id] = step
        return step

    def probe(self) -> Step:
        """Return a step without rows, beyond all limits: its answer proves that nothing before it is still to come."""
        step = Step(self._next_step, [], [], [])
        self._next_step += 1
        self._in_flight[step.id] = step
        return step

    def expects(self, step_id: int) -> int | None:
        """Say how many ids must answer a step, or None if it is not the oldest in flight."""
        oldest = next(iter(self._in_flight), None)
        return self._in_flight[step_id].wants if oldest == step_id else None

    def update(self, step_id: int, ids: list[int], logprobs: Sequence[Logprobs | None] = ()) -> list[Outcome]:
        """Take the sampled ids of a step, with as many `logprobs` or none.

        Raises KeyError for an unknown step and ValueError for a wrong count.
        """
        step = self._in_flight[step_id]
        if len(ids) != step.wants:
            raise ValueError(f"Step {step_id} asked for {counted(step.wants, 'token')}, {len(ids)} came.")
        del self._in_flight[step_id]
        self._running.returned()
        outcomes, at = [], 0
        for row in step.rows:
            new, scores, at = ids[at : at + row.wants], logprobs[at : at + row.wants], at + row.wants
            stream = self._running.get(row.stream)
            if stream is None:
                continue
            stream.flying -= 1
            if row.wants:
                outcome = self._accept(stream, new)
                outcomes.append(outcome._replace(logprobs=scores[: len(outcome.ids)]) if scores else outcome)
            # The newest token was sampled and not run yet; behind it lie at most rejected drafts.
            stream.settled = min(row.first + row.count, len(stream.ids) - 1)
            if row.wants and outcomes[-1].finish:
                self._end(stream, keep=True)
            elif row.wants:
                self._running.again(stream)
        return outcomes

    def measured(self, step: Step, compute_us: Sequence[int], wait_ms: float) -> None:
        """Learn what each stage spent on a step that came back, and what a trip spends outside of inference."""
        self._running.pacer.measured(step, compute_us, wait_ms)

    def cancel(self, stream: StreamId) -> bool:
        """End a stream now; a step in flight is discarded when it comes back. False if it ended already."""
        known = self._streams.get(stream)
        if known is None:
            return False
        self._end(known, keep=True)
        return True

    def fail_step(self, step_id: int) -> list[StreamId]:
        """Give up a step that a stage could not run: its streams end, all others go on. Unknown steps fail nobody."""
        step = self._in_flight.pop(step_id, None)
        if step is None:
            return []
        carried = dict.fromkeys([*(row.stream for row in step.rows), *(share.stream for share in step.shares)])
        lost = [self._running.get(stream) for stream in carried]
        for stream in lost:
            if stream is not None:
                self._end(stream, keep=False)
        self._caches.distrust(carried, step.release)
        return [stream.id for stream in lost if stream is not None]

    def fail_all(self) -> list[StreamId]:
        """Forget every stream and step: the stages and their caches are gone. Returns who was running or waiting."""
        lost = list(self._streams)
        for stream in lost:
            self._drafts.forget(stream)
        self._streams.clear()
        self._queue = FairQueue()
        self._begin_anew(self.limits)
        self._in_flight.clear()
        return lost

    def suspend(self) -> None:
        """Forget what the stages hold and what is on its way: the running streams wait in front and begin anew."""
        running = list(self._running)
        self._in_flight.clear()
        self._begin_anew(self.limits)
        for stream in reversed(running):
            stream.begin_anew()
            self._queue.push_front(stream)

    def resume(self, limits: Limits) -> list[StreamId]:
        """Go on with other stages, which hold nothing. Returns the streams that do not fit there and have ended."""
        self._begin_anew(limits)
        most = limits.stream_tokens
        too_long = [stream for stream in self._streams.values() if len(stream.ids) >= most]
        for stream in too_long:
            self._end(stream, keep=False)
        for stream in self._streams.values():
            stream.limit = min(stream.limit, most - stream.prompt_tokens)
        return [stream.id for stream in too_long]

    def age_kept(self) -> None:
        """Release the kept streams that nobody used since the last call; a step must carry the releases."""
        self._caches.age()

    def _begin_anew(self, limits: Limits) -> None:
        self.limits = limits
        self._caches = Caches(limits)
        self._running = Running(limits, self._caches, self._drafts)

    def _admit(self) -> None:
        # The head waits until it fits: letting smaller ones pass would starve a long prompt.
        while (stream := self._queue.head()) is not None and len(self._running) < self.limits.streams:
            if not self._caches.admits(stream, list(self._running)):
                return
            self._queue.pop()
            self._running.admit(stream)

    def _accept(self, stream: Stream, sampled: list[int]) -> Outcome:
        accepted = agreed(stream.drafts, sampled)
        outcome = accept(stream, sampled[: accepted + 1])
        self._drafts.judged(stream.id, len(stream.drafts), accepted)
        return outcome._replace(drafted=len(stream.drafts)) if stream.drafts else outcome

    def _end(self, stream: Stream, *, keep: bool) -> None:
        del self._streams[stream.id]
        if stream.id in self._running:
            self._running.leave(stream, keep=keep)
        else:
            self._queue.remove(stream)
        self._drafts.forget(stream.id)
