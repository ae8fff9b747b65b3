"""Steps on their way: out to stage 0 and back from the tail, in one plan epoch after the other. Event loop only.

When tokens come back the next step leaves first; what becomes of them is told afterwards, so the stages never wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from agent.link.frames import Frame, FrameType
from agent.stage.types import Epoch, Nack, PipelineId, StreamId
from console.pipeline.answers import Clock
from console.pipeline.codec import Reply, StepCodec
from console.pipeline.drafts import DraftSource
from console.pipeline.flight import Deadlines, Flight, Sent
from console.pipeline.meters import RateMeter, StepMeter
from console.pipeline.outbox import Outbox
from console.pipeline.plans import Outcome, Step
from console.pipeline.scheduler import Scheduler
from console.pipeline.totals import PipelineTotals
from console.pipeline.trips import Trip
from console.pipeline.types import StageInfo

log = logging.getLogger(__name__)

Submit = Callable[[bytes], Awaitable[None] | None]
_LOST = frozenset({"gone", "stale", "yielded"})
"""Codes of a NACK after which its stage answers nothing more."""


class Listener(Protocol):
    """What hears of the steps; none of it may block or raise."""

    @property
    def recovers(self) -> bool:
        """Whether a lost stage is replaced."""
        ...

    def sent(self, step: Step) -> None:
        """A step left."""
        ...

    def pumped(self) -> None:
        """No more steps leave for now."""
        ...

    def token_came(self, now_s: float) -> None:
        """A token went through all stages."""
        ...

    def came(self, outcomes: list[Outcome], came_s: float, trip: Trip | None) -> None:
        """Streams got tokens, by this trip; the next step is on its way already."""
        ...

    def failed(self, streams: list[StreamId], message: str) -> None:
        """A step could not be run: its streams have ended."""
        ...

    def refused(self, stream: StreamId, message: str) -> None:
        """The tail cannot go on with a stream, which has ended."""
        ...

    def lost(self, reason: str) -> None:
        """A stage answers nothing more; `reason` is a sentence that names its PC."""
        ...


class Traffic:
    """Carries the steps of one pipeline. Stopped until `begin`; `stop` ends an epoch."""

    def __init__(
        self,
        scheduler: Scheduler,
        drafts: DraftSource,
        listener: Listener,
        *,
        model_id: str,
        pipeline: PipelineId,
        vocab_size: int,
        deadlines: Deadlines,
        clock: Clock,
    ) -> None:
        self._scheduler = scheduler
        self._drafts = drafts
        self._listener = listener
        self._model_id = model_id
        self._pipeline = pipeline
        self._vocab_size = vocab_size
        self._clock = clock
        self._flight = Flight(deadlines)
        self._refused: dict[int, str] = {}
        """Why steps could not be run that others, still unanswered, left before."""
        self._watch: asyncio.TimerHandle | None = None
        self._codec: StepCodec | None = None
        self._outbox: Outbox | None = None
        self.stages: list[StageInfo] = []
        self._pcs: list[str] = []
        self.meter = StepMeter(0)
        self.rate = RateMeter()
        self.totals = PipelineTotals()
        self.dropped = 0
        """Frames that answered nothing."""

    def begin(self, stages: Sequence[StageInfo], epoch: Epoch, submit: Submit) -> None:
        """Let steps leave, through these stages. `submit` hands a frame to the link of stage 0, in order."""
        self.stages = list(stages)
        self._pcs = [stage.device_name for stage in self.stages]
        self.meter = StepMeter(len(self.stages))
        self.totals.begin(self.stages)
        self._codec = StepCodec(self._pipeline, epoch, stages=len(self.stages), vocab_size=self._vocab_size)
        outbox = Outbox(submit, lambda error: self._link_failed(outbox, error))
        self._outbox = outbox

    def stop(self) -> None:
        """Let nothing leave any more and forget what is on its way; frames that still come are dropped."""
        self._codec = None
        self._flight.clear()
        self._refused.clear()
        if self._outbox is not None:
            self._outbox.clear()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def close(self) -> None:
        """Stop, and wait until nothing is being sent."""
        self.stop()
        if self._outbox is not None:
            await self._outbox.close()

    def pump(self) -> None:
        """Send every step that may leave now."""
        if self._codec is None or self._outbox is None:
            return
        while (step := self._scheduler.schedule()) is not None:
            self._send(step, self._codec, self._outbox)
        self._listener.pumped()
        if self._flight and self._watch is None:
            self._arm()

    def _send(self, step: Step, codec: StepCodec, outbox: Outbox) -> None:
        self._flight.add(step, self._clock())
        outbox.send(codec.step(step))
        self._listener.sent(step)

    def on_pass(self, step: int, stage: int) -> None:
        """Note when a step was sent on to a stage."""
        self._flight.passed(step, stage, self._clock())

    def on_frame(self, frame: Frame) -> None:
        """Take a TOKENS or NACK frame; everything stale, repeated, out of order or malformed is dropped and counted."""
        if self._codec is None or not self._codec.concerns(frame):
            self._drop(frame, "it belongs to another plan")
        elif frame.type is FrameType.TOKENS:
            self._on_tokens(self._codec, frame)
        elif frame.type is FrameType.NACK:
            self._on_nack(self._codec.nack(frame), frame)
        else:
            self._drop(frame, "no such frame comes from a stage")

    def _on_tokens(self, codec: StepCodec, frame: Frame) -> None:
        wants = self._scheduler.expects(frame.step)
        if wants is None and frame.step in self._flight and codec.in_sequence(frame):
            # Links keep the order: what should have come before was lost.
            self._drop(frame, "an answer before it is missing")
            self._listener.lost(f"An answer of {self._name(-1)} did not come, but the one after it.")
            return
        if wants is None or not codec.in_sequence(frame):
            self._drop(frame, "no such step is expected next")
            return
        reply = codec.reply(frame, wants)
        if reply is None:
            self._drop(frame, "it does not answer its step")
            self._fail_step(frame.step, f"{self._name(-1)} answered a step with something else than its tokens.")
            self._fail_refused()
            self.pump()
            return
        for refusal in reply.refused:
            if self._scheduler.cancel(refusal.stream):
                self._listener.refused(refusal.stream, refusal.message)
        outcomes = self._scheduler.update(frame.step, reply.ids, reply.logprobs)
        now_s = self._clock()
        sent = self._flight.remove(frame.step, now_s)
        self._fail_refused()
        self.pump()
        trip = None if sent is None else Trip.of(sent, reply.timings, now_s, self._pcs)
        asyncio.get_running_loop().call_soon(self._listener.came, outcomes, now_s, trip)
        if sent is not None and trip is not None:
            self._measure(sent, reply, trip, sum(len(outcome.ids) for outcome in outcomes))

    def _measure(self, sent: Sent, reply: Reply, trip: Trip, tokens: int) -> None:
        """Record a step that gave `tokens` to its streams."""
        step, now_s, took_s = sent.step, trip.came_s, trip.took_s
        self.totals.came(step, trip)
        if step.wants:
            self._listener.token_came(now_s)
            self.rate.add(now_s, tokens)
        if step.rows:
            self._scheduler.measured(step, reply.compute_us, self.meter.overhead_ms_per_hop * len(self.stages))
        if step.decodes_only:
            self.meter.add(reply.timings, len(step.tokens), took_s, alone=sent.alone)
            compute_s = sum(reply.compute_us) / 1e6
            self._drafts.round_took(len(step.rows), len(step.tokens), tokens, took_s, compute_s)

    def _on_nack(self, nack: Nack | None, frame: Frame) -> None:
        if nack is None:
            self._drop(frame, "its reason cannot be read")
        elif frame.step not in self._flight:
            self._drop(frame, "no such step is in flight")
        elif nack.code in _LOST:
            self._listener.lost(f"{self._name(nack.stage)} cannot go on: {nack.message}")
        else:
            # One that was lost before it may be the cause; then all of this is done again, and nobody has failed.
            said = f"{self._name(nack.stage)} could not run a step ({nack.code}): {nack.message}"
            self._refused[frame.step] = said
            self._fail_refused()
            self.pump()

    def _fail_refused(self) -> None:
        """Give up the refused steps before which nothing is to come any more."""
        while (oldest := self._flight.oldest) is not None and oldest in self._refused:
            self._fail_step(oldest, self._refused.pop(oldest))

    def _fail_step(self, step_id: int, message: str) -> None:
        log.warning("%s", message)
        self._flight.remove(step_id, self._clock())
        self._listener.failed(self._scheduler.fail_step(step_id), message)

    def _link_failed(self, outbox: Outbox, error: Exception) -> None:
        if self._codec is not None and outbox is self._outbox:
            self._listener.lost(f"{self._name(0)} cannot be reached: {error}")

    def _arm(self) -> None:
        self._flight.hasty = self._listener.recovers
        left_s = self._flight.left_s(self._clock())
        if left_s <= 0:
            waited_s = self._flight.allowed_s
            self._flight.missed()
            self._listener.lost(
                f"No stage of {self._model_id} answered for {waited_s:.0f} s"
                f" (PCs: {', '.join(stage.device_name for stage in self.stages)})."
            )
            return
        if (probe_in_s := self._flight.probe_in_s(self._clock())) <= 0 and self._codec is not None and self._outbox:
            self._send(self._scheduler.probe(), self._codec, self._outbox)
            self._flight.probed()
            probe_in_s = self._flight.probe_in_s(self._clock())
        self._watch = asyncio.get_running_loop().call_later(max(0.0, min(left_s, probe_in_s)), self._watched)

    def _watched(self) -> None:
        self._watch = None
        if self._flight:
            self._arm()

    def _drop(self, frame: Frame, why: str) -> None:
        self.dropped += 1
        log.debug("Dropped a %s frame of step %d: %s", frame.type.name, frame.step, why)

    def _name(self, stage: int) -> str:
        known = -1 <= stage < len(self.stages)
        return f"{self.stages[stage].device_name} (stage {stage % len(self.stages)})" if known else f"Stage {stage}"
