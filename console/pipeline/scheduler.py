"""What runs in the next step: `schedule()` returns a plain plan, `update()` takes the sampled ids back. No I/O.

A decoding stream is in at most one step. Parts of a prompt need nothing from each other but their order, so they
follow one another into as many steps as there are stages.

Steps leave in order and stages work first in, first out. So a stream may be released in a step that is sent while an
older step still carries it: every stage sees the older step first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

import msgspec

from agent.stage.types import Logprobs, Row, Sampling, StreamId
from console.pipeline.drafts import NO_DRAFTS, DraftSource
from console.pipeline.errors import ContextExceeded, PromptError, QueueFull
from console.pipeline.pacing import Pace, Pacer
from console.pipeline.plans import Limits, Outcome, Step
from console.pipeline.rows import accept, agreed, decode_row, draft_room, prefill_row
from console.pipeline.streams import FairQueue, Stream

KV_BLOCK_TOKENS = 32
"""Admission counts whole blocks, as paged caches hand them out."""


class Scheduler:
    """Streams in, steps out. At most `limits.stages` steps are in flight.

    `drafts` guesses tokens for verify rows; whatever it guesses, the answers are the same.
    """

    def __init__(self, limits: Limits, drafts: DraftSource = NO_DRAFTS) -> None:
        self.limits = limits
        self._drafts = drafts
        self._streams: dict[StreamId, Stream] = {}
        self._queue = FairQueue()
        self._running: dict[StreamId, Stream] = {}
        self._decoding: deque[Stream] = deque()
        self._prefilling: deque[Stream] = deque()
        self._filled = False
        self._pacer = Pacer(limits.stages, limits.prefill_tokens)
        self._in_flight: dict[int, Step] = {}
        self._release: list[StreamId] = []
        self._kv_used = 0
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
    def pace(self) -> Pace:
        """How many steps are in flight now, how much of a prompt goes into one, and why."""
        return self._pacer.pace(self._decoders)

    @property
    def idle(self) -> bool:
        """Whether no stream exists, nothing is on its way and nothing is left to release."""
        return not (self._streams or self._in_flight or self._release)

    def position(self, stream: StreamId) -> int:
        """Say how many streams are admitted before this one; 0 also for the next one and for running ones."""
        known = self._streams.get(stream)
        if known is None or stream in self._running:
            return 0
        return self._queue.position(known)

    def history(self, stream: StreamId) -> list[int]:
        """Return every token id of a stream, prompt first: what a replay needs. Raises KeyError."""
        return list(self._streams[stream].ids)

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
        limit = min(max_tokens, room)
        blocks = -(-(len(prompt) + limit) // KV_BLOCK_TOKENS)
        kv_tokens = min(blocks * KV_BLOCK_TOKENS, self.limits.stream_tokens)
        if sampling.needs_history:
            sampling = msgspec.structs.replace(sampling, answer_start=len(prompt))
        stream = Stream(
            StreamId(self._next_stream), list(prompt), len(prompt), limit, sampling, frozenset(eos), key, kv_tokens
        )
        self._next_stream += 1
        self._streams[stream.id] = stream
        self._queue.push(stream)
        return stream.id

    def schedule(self) -> Step | None:
        """Plan the next step, or None when nothing may be sent now. Call again until None: several may be in flight."""
        if len(self._in_flight) >= self.limits.stages:
            return None
        self._admit()
        rows: list[Row] = []
        tokens: list[int] = []
        step_id = self._next_step
        self._fill(rows, tokens)
        if not rows and (self._in_flight or not self._release):
            return None
        step = Step(step_id, rows, tokens, self._release)
        self._next_step += 1
        self._release = []
        self._in_flight[step_id] = step
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
            raise ValueError(f"Step {step_id} asked for {step.wants} tokens, {len(ids)} came.")
        del self._in_flight[step_id]
        self._filled = False
        outcomes, at = [], 0
        for row in step.rows:
            new, scores, at = ids[at : at + row.wants], logprobs[at : at + row.wants], at + row.wants
            stream = self._running.get(row.stream)
            if stream is None:
                continue
            stream.flying -= 1
            if not row.wants:
                continue
            accepted = agreed(stream.drafts, new)
            outcome = accept(stream, new[: accepted + 1])
            self._drafts.judged(stream.id, len(stream.drafts), accepted)
            if scores:
                outcome = outcome._replace(logprobs=scores[: len(outcome.ids)])
            if outcome.finish:
                self._drop(stream)
            else:
                self._decoding.append(stream)
            outcomes.append(outcome)
        return outcomes

    def measured(self, step: Step, compute_us: Sequence[int], wait_ms: float) -> None:
        """Learn what each stage spent on a step that came back, and what a trip spends outside of inference."""
        self._pacer.measured(step, compute_us, wait_ms)

    def cancel(self, stream: StreamId) -> bool:
        """End a stream now; a step in flight is discarded when it comes back. False if it ended already."""
        known = self._streams.get(stream)
        if known is None:
            return False
        if stream in self._running:
            self._drop(known)
        else:
            self._queue.remove(known)
            del self._streams[stream]
            self._drafts.forget(stream)
        return True

    def fail_step(self, step_id: int) -> list[StreamId]:
        """Give up a step that a stage could not run: its streams end, all others go on. Unknown steps fail nobody."""
        step = self._in_flight.pop(step_id, None)
        lost = [self._running[row.stream] for row in step.rows if row.stream in self._running] if step else []
        for stream in lost:
            self._drop(stream)
        if step:
            # The stages behind the failing one never saw these releases; releasing twice is harmless.
            self._release = sorted({*self._release, *step.release})
        return [stream.id for stream in lost]

    def fail_all(self) -> list[StreamId]:
        """Forget every stream and step: the stages and their caches are gone. Returns who was running or waiting."""
        lost = list(self._streams)
        for stream in lost:
            self._drafts.forget(stream)
        self._streams.clear()
        self._queue = FairQueue()
        self._running.clear()
        self._decoding.clear()
        self._prefilling.clear()
        self._in_flight.clear()
        self._release = []
        self._kv_used = 0
        return lost

    def _admit(self) -> None:
        # The head waits until it fits: letting smaller ones pass would starve a long prompt.
        while (stream := self._queue.head()) is not None:
            fits = self._kv_used + stream.kv_tokens <= self.limits.kv_tokens
            if not fits or len(self._running) >= self.limits.streams:
                return
            self._queue.pop()
            self._kv_used += stream.kv_tokens
            self._running[stream.id] = stream
            self._prefilling.append(stream)
            self._drafts.begin(stream.id, stream.ids, stream.sampling)

    @property
    def _decoders(self) -> int:
        return sum(not stream.prefilling for stream in self._running.values())

    def _fill(self, rows: list[Row], tokens: list[int]) -> None:
        """Take the streams that waited longest, as many as make the steps in flight equally large.

        Steps that only read prompts do not keep answers from their places: when the last of a prompt is on its way,
        the answers beside it go on at once.
        """
        decoders, pace = self._decoders, self.pace
        reading = decoders < len(self._running)
        places = pace.filling if reading else pace.steps
        free = self.limits.stages - len(self._in_flight)
        answering = sum(step.wants > 0 for step in self._in_flight.values())
        if (free_for_answers := min(free, places - answering)) > 0:
            # The second bound keeps a step from growing past its share of all answers: uneven ones become even again.
            size = min(-(-len(self._decoding) // free_for_answers), -(-decoders // places))
            self._take(self._decoding, size, 0, rows, tokens)
        free_for_prompts = min(free, pace.filling - len(self._in_flight))
        # Steps that answer nobody leave one by one: a burst of them would lie in front of the next answers.
        filler = not rows and any(stream.answered for stream in self._running.values())
        if free_for_prompts > 0 and not (filler and self._filled):
            size = -(-len(self._prefilling) // free_for_prompts)
            self._take(self._prefilling, size, pace.chunk, rows, tokens)
            self._filled = self._filled or (filler and bool(rows))

    def _take(self, ready: deque[Stream], size: int, budget: int, rows: list[Row], tokens: list[int]) -> None:
        """Give up to `size` streams of a queue a row, with at most `budget` prompt tokens for all of them."""
        left_out, again = [], []
        while ready and size:
            stream = ready.popleft()
            prefilling, made = stream.prefilling, self._row(stream, budget)
            if made is None:
                left_out.append(stream)
                continue
            row, new = made
            budget -= row.count if prefilling else 0
            size -= 1
            stream.flying += 1
            rows.append(row)
            tokens += new
            if not row.wants:
                again.append(stream)
        ready.extendleft(reversed(left_out))
        for stream in again:
            (self._prefilling if stream.prefilling else self._decoding).append(stream)

    def _row(self, stream: Stream, budget: int) -> tuple[Row, list[int]] | None:
        """Make a stream's next row, or None while it waits: for prompt tokens left in the step, or for its drafts."""
        if stream.prefilling:
            return prefill_row(stream, budget) if budget else None
        room = draft_room(stream)
        if room < 1:
            return decode_row(stream, ())
        drafts = self._drafts.drafts_for(stream.id, stream.ids, room)
        return None if drafts is None else decode_row(stream, tuple(drafts[:room]))

    def _drop(self, stream: Stream) -> None:
        del self._streams[stream.id], self._running[stream.id]
        for ready in (self._decoding, self._prefilling):
            # Absent while a step carries it.
            if stream in ready:
                ready.remove(stream)
        self._kv_used -= stream.kv_tokens
        if stream.told:
            self._release.append(stream.id)
        self._drafts.forget(stream.id)
