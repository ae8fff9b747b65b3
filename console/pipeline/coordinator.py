"""Answers for whoever asks, from stages that come and go. All on the service's event loop.

A coordinator outlives the plan epoch it began in. When a stage is lost its streams are suspended: nothing of them is
lost but what the stages had cached, because the token ids are the whole state. With other stages they are computed
anew, in chunks of a prompt, and go on with the next token as if nothing had been.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from agent.link.frames import Frame
from agent.stage.types import Epoch, PipelineId, StreamId
from console.pipeline.answers import Answer, Clock
from console.pipeline.caches import CacheBlocks
from console.pipeline.dialects import Dialect
from console.pipeline.drafts import NO_DRAFTS, DraftSource
from console.pipeline.ended import EndedAnswer
from console.pipeline.errors import GrammarRefused, KeyQueueFull, PromptError, QueueFull, UnknownToken
from console.pipeline.flight import DEFAULT_DEADLINES, Deadlines
from console.pipeline.plans import QUEUE_LIMIT, Limits, Outcome, Step
from console.pipeline.probing import PROBE_KEY, Prober
from console.pipeline.queue_news import QueueNews
from console.pipeline.scheduler import Scheduler
from console.pipeline.tokens import TextCodec
from console.pipeline.totals import PipelineTotals
from console.pipeline.traffic import Submit, Traffic
from console.pipeline.trips import Trip
from console.pipeline.types import (
    Ending,
    Event,
    Failed,
    Finished,
    GenerationRequest,
    PipelineStatus,
    QueuedAnswer,
    Readiness,
    StageInfo,
)
from shard_export.library.counts import counted

log = logging.getLogger(__name__)

KEPT_S = 300.0
"""Every so often the kept streams that nobody used meanwhile are released: they hold people's prompts."""


class Coordinator:
    """Runs one pipeline. Implements `Generator`.

    `submit` hands a frame to the link of stage 0, in order; it may return an awaitable. Whoever owns the links calls
    `on_frame` for every TOKENS and NACK of this pipeline, and `on_pass` for the steps it sends on from stage to stage.
    When a stage's link or child is gone, it calls `suspend`, and `resume` once others have taken over, or `stage_lost`
    when nobody will.
    """

    def __init__(
        self,
        *,
        model_id: str,
        context_tokens: int,
        kv_tokens: int,
        streams: int,
        stages: Sequence[StageInfo],
        tokenizer: TextCodec,
        submit: Submit,
        pipeline: PipelineId,
        epoch: Epoch,
        deadlines: Deadlines = DEFAULT_DEADLINES,
        queue: int = QUEUE_LIMIT,
        drafts: DraftSource = NO_DRAFTS,
        clock: Clock = time.perf_counter,
    ) -> None:
        """`kv_tokens` is the smallest cache of all stages; at most `streams` run at once and `queue` wait.

        `drafts` guesses tokens for the scheduler; if it lets streams wait for a guess, it calls `drafts_ready`.
        """
        self.model_id = model_id
        self.on_ended: Callable[[EndedAnswer], None] | None = None
        """Hears of every answer that ended, however it did; not of probes."""
        self.on_lost: Callable[[str], None] | None = None
        """Hears why a stage is lost, if this finds it out; the streams are suspended then. Without it they fail."""
        self._tokenizer = tokenizer
        self._clock = clock
        self._drafts = drafts
        self._streams, self._queue_limit = streams, queue
        self._context_tokens = context_tokens
        self._scheduler = Scheduler(self._limits(stages, kv_tokens), drafts)
        self._answers: dict[StreamId, Answer] = {}
        self._queue_told = 0
        self._news = QueueNews(self._tell_queue)
        self._endings: Counter[Ending] = Counter()
        self._lost_reason = self._suspended = ""
        self._ageing: asyncio.TimerHandle | None = None
        self._prober = Prober(self.generate, self._why_not, token=tokenizer.probe_id, clock=clock)
        self._traffic = Traffic(
            self._scheduler, drafts, self, model_id=model_id, pipeline=pipeline, vocab_size=tokenizer.vocab_size,
            deadlines=deadlines, clock=clock,
        )  # fmt: skip
        self._submit = submit
        self._pipeline = pipeline
        self._begin(stages, epoch, submit)

    @property
    def context_tokens(self) -> int:
        """The longest stream that can run."""
        return self._scheduler.limits.stream_tokens

    @property
    def recovers(self) -> bool:
        """Whether somebody replaces a stage that is found to be lost."""
        return self.on_lost is not None

    @property
    def is_proven(self) -> bool:
        """Whether a token came through the stages there are now."""
        return not self._why_not() and self._prober.age_s >= 0

    @property
    def suspended(self) -> str:
        """Why nothing is computed for now; empty: it is, or never will be again."""
        return self._suspended

    @property
    def load(self) -> tuple[int, int]:
        """How many answers run, and how many wait."""
        return self._scheduler.running, self._scheduler.waiting

    @property
    def totals(self) -> PipelineTotals:
        """What went through since it began."""
        return self._traffic.totals

    @property
    def blocks(self) -> CacheBlocks:
        """How full the caches of all stages alike are."""
        return self._scheduler.blocks

    @property
    def dialect(self) -> Dialect:
        """How the model writes what is not plain text."""
        return self._tokenizer.dialect

    def encode_chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        """Apply the chat template and tokenize. Raises PromptError."""
        return self._tokenizer.encode_chat(messages, tools)

    @property
    def vocab_size(self) -> int:
        """How many token ids there are."""
        return self._tokenizer.vocab_size

    def encode_text(self, text: str) -> list[int]:
        """Tokenize plain text, with BOS where the model wants one."""
        return self._tokenizer.encode_text(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        return self._tokenizer.decode(ids)

    def token_bytes(self, token: int) -> bytes:
        """Return the text of one token, perhaps a part of a code point; special tokens by their names."""
        return self._tokenizer.token_bytes(token)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        """Yield Waiting, Reading, Recovering and Text events, then exactly one Finished or Failed.

        Closing the iterator cancels the stream.

        Raises PromptError, ContextExceeded, UnknownToken or GrammarRefused before the first event.
        """
        if self._lost_reason:
            yield Failed("not_ready", self._not_ready())
            return
        try:
            stream, answer = self._start(request)
        except QueueFull as error:
            yield Failed("too_many_waiting" if isinstance(error, KeyQueueFull) else "overloaded", str(error))
            return
        said = {"stream": int(stream), "pipeline": int(self._pipeline)}
        log.debug(
            "A stream of %s begins with %s.", self.model_id, counted(len(request.prompt_ids), "token"), extra=said
        )
        try:
            while True:
                event = await answer.events.get()
                yield event
                if isinstance(event, Finished | Failed):
                    return
        finally:
            ending = self._end(stream, answer)
            log.debug("A stream of %s ended: %s.", self.model_id, ending, extra=said)
            if request.key_id != PROBE_KEY:
                self._endings[ending] += 1
                if self.on_ended is not None:
                    self.on_ended(answer.record(request))

    def history(self, stream: StreamId) -> list[int]:
        """Return every token id of a live stream, prompt first. Raises KeyError."""
        return self._scheduler.history(stream)

    def on_frame(self, frame: Frame) -> None:
        """Take a TOKENS or NACK frame; everything stale, repeated, out of order or malformed is dropped and counted."""
        self._traffic.on_frame(frame)

    def on_pass(self, step: int, stage: int) -> None:
        """Note that a step was sent on to a stage beyond the first one."""
        self._traffic.on_pass(step, stage)

    def drafts_ready(self) -> None:
        """Ask again for the drafts of the streams that wait for them, and send what may leave now."""
        self._traffic.pump()

    def suspend(self, reason: str) -> None:
        """A stage is lost: drop what is on its way and let every stream wait, to be computed anew after `resume`.

        `reason` is a sentence that names the PC. Whoever waits for an answer gets a note; who asks now is queued.
        """
        if self._lost_reason or self._suspended:
            return
        log.info("%s is suspended: %s", self.model_id, reason)
        self._suspended = reason
        self._traffic.stop()
        self._scheduler.suspend()
        for answer in self._answers.values():
            if answer.key_id == PROBE_KEY:
                answer.fail("stage_lost", reason)
            else:
                answer.recover(reason)

    def resume(
        self, *, stages: Sequence[StageInfo], epoch: Epoch, kv_tokens: int, submit: Submit | None = None
    ) -> None:
        """Go on with these stages, which have nothing cached. Suspends first if that was not done.

        A stream that is longer than the smallest of their caches cannot go on and fails.
        """
        if self._lost_reason:
            return
        self.suspend("The plan changed.")
        self._suspended = ""
        self._prober.forget()
        too_long = self._scheduler.resume(self._limits(stages, kv_tokens))
        self._begin(stages, epoch, submit or self._submit)
        self.failed(too_long, "The PCs that took over have too little memory for an answer of this length.")
        self._refuse_grammars()
        self._traffic.pump()

    def stage_lost(self, reason: str) -> None:
        """A stage is lost for good: every stream fails at once and the pipeline is not ready any more.

        `reason` is a sentence that names the PC. Safe to call twice.
        """
        self._fail_all("stage_lost", reason)

    def status(self) -> PipelineStatus:
        """Tell what the pipeline does now."""
        now_s, traffic = self._clock(), self._traffic
        return PipelineStatus(
            stages=traffic.meter.stages(traffic.stages),
            ready=self.is_proven,
            reason=self._why_not(),
            last_token_age_s=self._prober.age_s,
            tokens_per_second=traffic.rate.rate(now_s),
            overhead_ms_per_hop=traffic.meter.overhead_ms_per_hop,
            streams_running=self._scheduler.running,
            streams_waiting=self._scheduler.waiting,
            steps_in_flight=self._scheduler.in_flight,
            dropped_replies=traffic.dropped,
            speculation=self._drafts.status(),
            endings=dict(self._endings),
            pace=self._scheduler.pace.words,
            kept_streams=self._scheduler.kept,
            queue=self._queue(now_s),
        )

    async def ready(self, max_age_s: float = 5.0) -> Readiness:
        """Tell whether a token goes through all stages: one that did so lately, else a probe that is sent now.

        Never raises for a pipeline that does not work; a probe without an answer ends by the step deadline.
        """
        return await self._prober.ready(max_age_s)

    async def close(self) -> None:
        """End every stream and stop the timers; the caller unloads the stages. Safe to call twice."""
        self._fail_all("cancelled", "The model was taken down.")
        self._news.close()
        await self._traffic.close()

    def _queue(self, now_s: float) -> list[QueuedAnswer]:
        waiting = [(stream, self._answers.get(stream)) for stream in self._scheduler.queue()]
        return [
            QueuedAnswer(answer.key_id, ahead, now_s - answer.accepted_s)
            for ahead, (_, answer) in enumerate(waiting)
            if answer is not None
        ]

    def _start(self, request: GenerationRequest) -> tuple[StreamId, Answer]:
        highest = max(request.prompt_ids, default=0)
        if min(request.prompt_ids, default=0) < 0 or highest >= self._tokenizer.vocab_size:
            raise PromptError(f"The prompt holds a token id outside of 0..{self._tokenizer.vocab_size - 1}.")
        if any(not 0 <= token < self._tokenizer.vocab_size for token in request.sampling.logit_bias):
            raise UnknownToken(self._tokenizer.vocab_size)
        if request.sampling.grammar and not self._constrains:
            raise GrammarRefused(request.grammar_from)
        eos = frozenset() if request.ignore_eos else self._tokenizer.eos_ids
        stream = self._scheduler.add(
            request.prompt_ids, request.max_tokens, sampling=request.sampling, eos=eos, key=request.key_id
        )
        answer = Answer(request, self._tokenizer, eos, self._clock)
        answer.served_by(self._pcs)
        self._answers[stream] = answer
        if self._suspended:
            answer.recover(self._suspended)
        self._traffic.pump()
        return stream, answer

    def _end(self, stream: StreamId, answer: Answer) -> Ending:
        ending = answer.cancel()
        self._answers.pop(stream, None)
        if self._scheduler.cancel(stream):
            self._traffic.pump()
        return ending

    def _limits(self, stages: Sequence[StageInfo], kv_tokens: int) -> Limits:
        copies = any(stage.engine == "stateful" for stage in stages)
        return Limits(
            len(stages), kv_tokens, self._context_tokens, self._streams, queue=self._queue_limit,
            shares_blocks=not copies, places=self._streams if copies else 0,
            infer_ms=tuple(stage.infer_ms for stage in stages),
        )  # fmt: skip

    def _begin(self, stages: Sequence[StageInfo], epoch: Epoch, submit: Submit) -> None:
        self.epoch, self._submit = epoch, submit
        self._pcs = [stage.device_name for stage in stages]
        self._constrains = bool(stages) and stages[-1].constrains
        for answer in self._answers.values():
            answer.served_by(self._pcs)
        self._traffic.begin(stages, epoch, submit)

    # What the traffic tells

    def sent(self, step: Step) -> None:
        """Note which answers left the queue, and how far their prompts are."""
        for row in step.rows:
            if (row.sampling is not None or not row.wants) and (answer := self._answers.get(row.stream)):
                if row.sampling is not None:
                    self._started(row.stream, answer)
                if not row.wants:
                    answer.read(row.first + row.count)

    def _started(self, stream: StreamId, answer: Answer) -> None:
        if answer.start(self._scheduler.reused(stream)) and answer.key_id != PROBE_KEY:
            self._traffic.totals.waited.add(answer.queue_s)

    def pumped(self) -> None:
        """Tell the queue, later, and let kept streams grow old."""
        if self._queue_told != self._scheduler.queue_changes:
            self._queue_told = self._scheduler.queue_changes
            self._news.changed()
        if self._scheduler.kept and self._ageing is None:
            self._ageing = asyncio.get_running_loop().call_later(KEPT_S, self._age_kept)

    def token_came(self, now_s: float) -> None:
        """A token is a probe that came through."""
        self._prober.token_came(now_s)

    def came(self, outcomes: list[Outcome], came_s: float, trip: Trip | None) -> None:
        """Make text of tokens."""
        stopped = False
        self._traffic.totals.judged(outcomes)
        for outcome in outcomes:
            answer = self._answers.get(outcome.stream)
            if answer is None:
                continue
            if trip is not None and not answer.ended:
                wrong = outcome.drafted - (len(outcome.ids) - 1) if outcome.drafted else 0
                answer.spent.came(trip, wrong * self._scheduler.draft_s)
            if answer.push(outcome, came_s):
                stopped = self._scheduler.cancel(outcome.stream) or stopped
        if stopped:
            self._traffic.pump()

    def failed(self, streams: list[StreamId], message: str) -> None:
        """Streams have ended."""
        for stream in streams:
            if answer := self._answers.get(stream):
                answer.fail("stage_failed", message)

    def refused(self, stream: StreamId, message: str) -> None:
        """The tail cannot go on with a stream."""
        if answer := self._answers.get(stream):
            answer.refuse(message)

    def lost(self, reason: str) -> None:
        """A stage was found to be lost."""
        if self.on_lost is None:
            self.stage_lost(reason)
            return
        self.suspend(reason)
        self.on_lost(reason)

    def _refuse_grammars(self) -> None:
        """End the answers that the new last stage cannot keep to their grammars."""
        for stream, answer in self._answers.items():
            if answer.has_grammar and not self._constrains and self._scheduler.cancel(stream):
                message = "The PC that took over cannot keep this answer to its grammar: update its agent."
                answer.fail("stage_failed", message, retryable=False)

    def _tell_queue(self, first: int, count: int) -> int:
        waiting = [] if self._suspended else self._scheduler.queue()
        for ahead, stream in enumerate(waiting[first : first + count], first):
            if answer := self._answers.get(stream):
                answer.wait(ahead)
        return len(waiting)

    def _fail_all(self, code: str, reason: str) -> None:
        if self._lost_reason:
            return
        if code == "stage_lost":
            log.warning("%s stops: %s", self.model_id, reason)
        self._lost_reason, self._suspended = reason, ""
        self._traffic.stop()
        self._scheduler.fail_all()
        if self._ageing is not None:
            self._ageing.cancel()
            self._ageing = None
        for answer in self._answers.values():
            answer.fail(code, reason)

    def _age_kept(self) -> None:
        self._ageing = None
        self._scheduler.age_kept()
        self._traffic.pump()

    def _why_not(self) -> str:
        return self._lost_reason or self._suspended

    def _not_ready(self) -> str:
        return f"{self.model_id} is not ready: {self._lost_reason}"
