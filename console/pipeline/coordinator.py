"""The shell around the scheduler: frames in and out, answers to whoever asked. All on the service's event loop.

When tokens come back the next step leaves first; text is made from them afterwards, so the stages never wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from agent.link.frames import Frame, FrameType
from agent.stage.types import Epoch, PipelineId, StreamId
from console.pipeline.answers import Answer, Clock
from console.pipeline.codec import Reply, StepCodec
from console.pipeline.drafts import NO_DRAFTS, DraftSource
from console.pipeline.errors import PromptError, QueueFull, UnknownToken
from console.pipeline.flight import DEFAULT_DEADLINES, Deadlines, Flight, Sent
from console.pipeline.meters import RateMeter, StepMeter
from console.pipeline.outbox import Outbox
from console.pipeline.plans import QUEUE_LIMIT, Limits, Outcome
from console.pipeline.probing import PROBE_KEY, Prober
from console.pipeline.scheduler import Scheduler
from console.pipeline.tokens import TextCodec
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

log = logging.getLogger(__name__)

KEPT_S = 300.0
"""Every so often the kept streams that nobody used meanwhile are released: they hold people's prompts."""


class Coordinator:
    """Runs one pipeline of one plan epoch. Implements `Generator`.

    `submit` hands a frame to the link of stage 0, in order; it may return an awaitable. Whoever owns the links calls
    `on_frame` for every TOKENS and NACK of this pipeline, and `stage_lost` when a stage's link or child is gone.
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
        submit: Callable[[bytes], Awaitable[None] | None],
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
        self.epoch = epoch
        self._stages = list(stages)
        self._tokenizer = tokenizer
        self._codec = StepCodec(pipeline, epoch, stages=len(self._stages), vocab_size=tokenizer.vocab_size)
        self._clock = clock
        copies = any(stage.engine == "stateful" for stage in stages)
        limits = Limits(
            len(self._stages), kv_tokens, context_tokens, streams, queue=queue,
            shares_blocks=not copies, places=streams if copies else 0,
        )  # fmt: skip
        self._drafts = drafts
        self._scheduler = Scheduler(limits, drafts)
        self.context_tokens = self._scheduler.limits.stream_tokens
        self._answers: dict[StreamId, Answer] = {}
        self._flight = Flight(deadlines)
        self._outbox = Outbox(submit, self._link_failed)
        self._meter = StepMeter(len(self._stages))
        self._rate = RateMeter()
        self._queue_told = 0
        self._dropped_replies = 0
        self._endings: Counter[Ending] = Counter()
        self._lost_reason = ""
        self._watch: asyncio.TimerHandle | None = None
        self._ageing: asyncio.TimerHandle | None = None
        self._prober = Prober(self.generate, lambda: self._lost_reason, token=tokenizer.probe_id, clock=clock)

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Apply the chat template and tokenize. Raises PromptError."""
        return self._tokenizer.encode_chat(messages)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        """Yield Waiting and Text events, then exactly one Finished or Failed. Closing the iterator cancels the stream.

        Raises PromptError, ContextExceeded or UnknownToken before the first event.
        """
        if self._lost_reason:
            yield Failed("not_ready", self._not_ready())
            return
        try:
            stream, answer = self._start(request)
        except QueueFull as error:
            yield Failed("overloaded", str(error))
            return
        try:
            while True:
                event = await answer.events.get()
                yield event
                if isinstance(event, Finished | Failed):
                    return
        finally:
            ending = self._end(stream, answer)
            if request.key_id != PROBE_KEY:
                self._endings[ending] += 1

    def history(self, stream: StreamId) -> list[int]:
        """Return every token id of a live stream, prompt first. Raises KeyError."""
        return self._scheduler.history(stream)

    def on_frame(self, frame: Frame) -> None:
        """Take a TOKENS or NACK frame; everything stale, repeated, out of order or malformed is dropped and counted."""
        if self._lost_reason or not self._codec.concerns(frame):
            self._drop(frame, "it belongs to another plan")
        elif frame.type is FrameType.TOKENS:
            self._on_tokens(frame)
        elif frame.type is FrameType.NACK:
            self._on_nack(frame)
        else:
            self._drop(frame, "no such frame comes from a stage")

    def drafts_ready(self) -> None:
        """Ask again for the drafts of the streams that wait for them, and send what may leave now."""
        if not self._lost_reason:
            self._pump()

    def stage_lost(self, reason: str) -> None:
        """A PC of this pipeline is gone: every stream fails at once and the pipeline is not ready any more.

        `reason` is a sentence that names the PC. Safe to call twice.
        """
        self._fail_all("stage_lost", reason)

    def status(self) -> PipelineStatus:
        """Tell what the pipeline does now."""
        now_s = self._clock()
        return PipelineStatus(
            stages=self._meter.stages(self._stages),
            ready=not self._lost_reason and self._prober.age_s >= 0,
            reason=self._lost_reason,
            last_token_age_s=self._prober.age_s,
            tokens_per_second=self._rate.rate(now_s),
            overhead_ms_per_hop=self._meter.overhead_ms_per_hop,
            streams_running=self._scheduler.running,
            streams_waiting=self._scheduler.waiting,
            steps_in_flight=self._scheduler.in_flight,
            dropped_replies=self._dropped_replies,
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
        await self._outbox.close()

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
        eos = frozenset() if request.ignore_eos else self._tokenizer.eos_ids
        stream = self._scheduler.add(
            request.prompt_ids, request.max_tokens, sampling=request.sampling, eos=eos, key=request.key_id
        )
        answer = Answer(request, self._tokenizer, eos, self._clock)
        self._answers[stream] = answer
        self._pump()
        return stream, answer

    def _end(self, stream: StreamId, answer: Answer) -> Ending:
        ending = answer.cancel()
        self._answers.pop(stream, None)
        if self._scheduler.cancel(stream):
            self._pump()
        return ending

    def _pump(self) -> None:
        """Send every step that may leave now."""
        while (step := self._scheduler.schedule()) is not None:
            self._flight.add(step, self._clock())
            self._outbox.send(self._codec.step(step))
            for row in step.rows:
                if row.sampling is not None and (answer := self._answers.get(row.stream)):
                    answer.start(self._scheduler.reused(row.stream))
        if self._queue_told != self._scheduler.queue_changes:
            self._queue_told = self._scheduler.queue_changes
            asyncio.get_running_loop().call_soon(self._tell_queue)
        if self._flight and self._watch is None:
            self._arm()
        if self._scheduler.kept and self._ageing is None:
            self._ageing = asyncio.get_running_loop().call_later(KEPT_S, self._age_kept)

    def _tell_queue(self) -> None:
        for ahead, stream in enumerate(self._scheduler.queue()):
            if answer := self._answers.get(stream):
                answer.wait(ahead)

    def _on_tokens(self, frame: Frame) -> None:
        wants = self._scheduler.expects(frame.step)
        if wants is None or not self._codec.in_sequence(frame):
            self._drop(frame, "no such step is expected next")
            return
        reply = self._codec.reply(frame, wants)
        if reply is None:
            self._drop(frame, "it does not answer its step")
            self._fail_step(frame.step, f"{self._name(-1)} answered a step with something else than its tokens.")
            return
        outcomes = self._scheduler.update(frame.step, reply.ids, reply.logprobs)
        now_s = self._clock()
        sent = self._flight.remove(frame.step, now_s)
        self._pump()
        asyncio.get_running_loop().call_soon(self._deliver, outcomes, now_s)
        if sent is not None:
            self._measure(sent, reply, now_s, sum(len(outcome.ids) for outcome in outcomes))

    def _measure(self, sent: Sent, reply: Reply, now_s: float, tokens: int) -> None:
        """Record a step that gave `tokens` to its streams."""
        step, took_s = sent.step, now_s - sent.at_s
        if step.wants:
            self._prober.token_came(now_s)
            self._rate.add(now_s, tokens)
        if step.rows:
            self._scheduler.measured(step, reply.compute_us, self._meter.overhead_ms_per_hop * len(self._stages))
        if step.decodes_only:
            self._meter.add(reply.timings, len(step.tokens), took_s, alone=sent.alone)
            compute_s = sum(reply.compute_us) / 1e6
            self._drafts.round_took(len(step.rows), len(step.tokens), tokens, took_s, compute_s)

    def _deliver(self, outcomes: list[Outcome], came_s: float) -> None:
        stopped = False
        for outcome in outcomes:
            answer = self._answers.get(outcome.stream)
            if answer is not None and answer.push(outcome, came_s):
                stopped = self._scheduler.cancel(outcome.stream) or stopped
        if stopped:
            self._pump()

    def _on_nack(self, frame: Frame) -> None:
        nack = self._codec.nack(frame)
        if nack is None:
            self._drop(frame, "its reason cannot be read")
            return
        if frame.step not in self._flight:
            self._drop(frame, "no such step is in flight")
        elif nack.code in {"gone", "stale", "yielded"}:
            self._fail_all("stage_lost", f"{self._name(nack.stage)} cannot go on: {nack.message}")
        else:
            self._fail_step(frame.step, f"{self._name(nack.stage)} could not run a step ({nack.code}): {nack.message}")

    def _fail_step(self, step_id: int, message: str) -> None:
        log.warning("%s", message)
        self._flight.remove(step_id, self._clock())
        for stream in self._scheduler.fail_step(step_id):
            if answer := self._answers.get(stream):
                answer.fail("stage_failed", message)
        self._pump()

    def _fail_all(self, code: str, reason: str) -> None:
        if self._lost_reason:
            return
        if code == "stage_lost":
            log.warning("%s stops: %s", self.model_id, reason)
        self._lost_reason = reason
        self._scheduler.fail_all()
        self._flight.clear()
        self._outbox.clear()
        for timer in (self._watch, self._ageing):
            if timer is not None:
                timer.cancel()
        self._watch = self._ageing = None
        for answer in self._answers.values():
            answer.fail(code, reason)

    def _link_failed(self, error: Exception) -> None:
        self.stage_lost(f"{self._name(0)} cannot be reached: {error}")

    def _arm(self) -> None:
        left_s = self._flight.left_s(self._clock())
        if left_s <= 0:
            self.stage_lost(
                f"No stage of {self.model_id} answered for {self._flight.allowed_s:.0f} s"
                f" (PCs: {', '.join(stage.device_name for stage in self._stages)})."
            )
            return
        self._watch = asyncio.get_running_loop().call_later(left_s, self._watched)

    def _watched(self) -> None:
        self._watch = None
        if self._flight:
            self._arm()

    def _age_kept(self) -> None:
        self._ageing = None
        self._scheduler.age_kept()
        self._pump()

    def _drop(self, frame: Frame, why: str) -> None:
        self._dropped_replies += 1
        log.debug("Dropped a %s frame of step %d: %s", frame.type.name, frame.step, why)

    def _name(self, stage: int) -> str:
        known = -1 <= stage < len(self._stages)
        return f"{self._stages[stage].device_name} (stage {stage % len(self._stages)})" if known else f"Stage {stage}"

    def _not_ready(self) -> str:
        return f"{self.model_id} is not ready: {self._lost_reason}"
