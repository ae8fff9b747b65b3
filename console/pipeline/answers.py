"""One answer on its way to whoever asked: tokens in, events out. Lives on the service's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from agent.stage.types import Logprobs
from console.pipeline.emoji import EmojiHolder
from console.pipeline.ended import EndedAnswer
from console.pipeline.parts import slowest
from console.pipeline.plans import Outcome
from console.pipeline.spent import Spent
from console.pipeline.text import StopHolder
from console.pipeline.tokens import TextCodec
from console.pipeline.types import (
    Details,
    Ending,
    Event,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Reading,
    Recovering,
    ScoredToken,
    Text,
    Timings,
    TokenLogprobs,
    Usage,
    Waiting,
)


class Clock(Protocol):
    """Seconds of a monotonic clock."""

    def __call__(self) -> float: ...


class Answer:
    """Turns the outcomes of one stream into Text events and exactly one Finished or Failed."""

    def __init__(self, request: GenerationRequest, codec: TextCodec, eos: frozenset[int], clock: Clock) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.ending: Ending | None = None
        self.key_id = request.key_id
        self.has_grammar = bool(request.sampling.grammar)
        self._grammar_from = request.grammar_from
        self._prompt_tokens = len(request.prompt_ids)
        self._codec = codec
        self._text = codec.text_stream()
        self._stops = StopHolder(request.stop)
        self._emoji = EmojiHolder()
        self._eos = eos
        self._clock = clock
        self._held_ids: list[int] = []
        self._wants_logprobs = request.sampling.logprobs >= 0
        self._held_logprobs: list[TokenLogprobs] = []
        self._completion_tokens = 0
        self._cached_tokens = 0
        self._ahead: int | None = None
        self._serving: Sequence[str] = ()
        self._served: dict[str, None] = {}
        self._drafted = self._accepted = 0
        self.accepted_s = clock()
        self._started_s: float | None = None
        self._code = ""
        """Of the failure it ended with."""
        self._account: tuple[Timings, Details] | None = None
        self.spent = Spent(self.accepted_s)
        """Where its time goes."""
        self._first_token_s: float | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        return self.ending is not None

    def wait(self, ahead: int) -> None:
        """Tell that the stream waits for its place and how many get one before."""
        if ahead != self._ahead and not self.ended:
            self._ahead = ahead
            self.events.put_nowait(Waiting(ahead))

    def recover(self, reason: str) -> None:
        """Tell that the stages are being replaced and the answer goes on afterwards."""
        if not self.ended:
            self._ahead = None
            self.spent.lost(self._clock())
            self.events.put_nowait(Recovering(reason))

    def start(self, cached_tokens: int) -> bool:
        """Note that its first row leaves, with so many tokens cached. True unless it had its place before."""
        now_s = self._clock()
        self.spent.began(now_s)
        if self._started_s is not None:
            return False
        self._started_s = now_s
        self._cached_tokens = cached_tokens
        return True

    @property
    def queue_s(self) -> float:
        """How long it waited for its place, or does until now."""
        return (self._clock() if self._started_s is None else self._started_s) - self.accepted_s

    def read(self, done: int) -> None:
        """Tell that so many of the tokens that the stages lack are on their way to them, and more follow."""
        if not self.ended:
            self.events.put_nowait(Reading(done, self._prompt_tokens + self._completion_tokens))

    def served_by(self, pcs: Sequence[str]) -> None:
        """Note the names of the PCs that compute from here on; they count once a token comes from them."""
        self._serving = pcs

    def push(self, outcome: Outcome, came_s: float) -> bool:
        """Take new tokens, sampled at `came_s`. True when the answer ended here and not there: cancel the stream."""
        if self.ended:
            return False
        if self._wants_logprobs and [bool(entry) for entry in outcome.logprobs] != [True] * len(outcome.ids):
            message = "The last stage sends no log-probabilities; update the agent on its PC or ask without them."
            self.fail("stage_failed", message, retryable=False)
            return outcome.finish is None
        self._note_origin(outcome, came_s)
        pieces = []
        for place, token in enumerate(outcome.ids):
            self._completion_tokens += 1
            # The EOS token is counted, but it is no part of the answer.
            if outcome.finish == "stop" and token in self._eos:
                break
            self._hold(token, outcome.logprobs[place] if self._wants_logprobs else None)
            pieces.append(self._stops.push(self._text.push(token)))
            if self._stops.stopped:
                break
        if outcome.finish and not self._stops.stopped:
            pieces.append(self._stops.push(self._text.flush()) + self._stops.flush())
        ended_by_text = self._stops.stopped
        ends = ended_by_text or outcome.finish is not None
        # The emoji come last: what the stop strings let go of may end inside one.
        text = self._emoji.push("".join(pieces)) + (self._emoji.flush() if ends else "")
        self._emit(text, with_silent_ids=ends and not ended_by_text)
        if ended_by_text:
            self._finish("stop")
        elif outcome.finish:
            self._finish(outcome.finish)
        return ended_by_text and outcome.finish is None

    def refuse(self, message: str) -> None:
        """End because the tail cannot go on with it: only what an answer is to be kept to can be the cause."""
        self.fail("grammar_refused", message, retryable=False, param=self._grammar_from)

    def fail(self, code: str, message: str, *, retryable: bool = True, param: str = "") -> None:
        """End with an error; text that was held back is delivered first."""
        if not self.ended:
            left = self._stops.push(self._text.flush()) + self._stops.flush()
            self._emit(self._emoji.push(left) + self._emoji.flush(), with_silent_ids=False)
            failed = Failed(code, message, retryable, param)
            self.ending = failed.reason
            self._code = code
            self._told()  # what happens to it from here on is no time of the answer
            self.events.put_nowait(failed)

    def cancel(self) -> Ending:
        """Note that nobody waits for the answer any more, and return how it ended."""
        self.ending = self.ending or "cancelled"
        return self.ending

    def record(self, request: GenerationRequest) -> EndedAnswer:
        """Say what is remembered of it once it is over: nothing of its text."""
        timings, details = self._told()
        phases = [
            phase._replace(from_s=phase.from_s - self.accepted_s, to_s=phase.to_s - self.accepted_s)
            for phase in self.spent.phases
        ]
        return EndedAnswer(
            request.request_id,
            request.key_id,
            self.cancel(),
            self._code,
            self._usage,
            timings,
            details,
            phases,
            age_s=self._clock() - self.accepted_s,
            trace=request.trace,
        )

    def _note_origin(self, outcome: Outcome, came_s: float) -> None:
        if self._first_token_s is None:
            self._first_token_s = came_s
        if self._serving:
            self._served |= dict.fromkeys(self._serving)
            self._serving = ()
        if outcome.drafted:
            self._drafted += outcome.drafted
            self._accepted += len(outcome.ids) - 1

    def _emit(self, text: str, *, with_silent_ids: bool) -> None:
        if text or (with_silent_ids and self._held_ids):
            self.events.put_nowait(Text(text, self._held_ids, self._held_logprobs))
            self._held_ids, self._held_logprobs = [], []

    def _hold(self, token: int, entry: Logprobs | None) -> None:
        """Keep a token until its text goes out."""
        self._held_ids.append(token)
        if entry is not None:
            self._held_logprobs.append(self._named(token, entry))

    def _named(self, token: int, entry: Logprobs) -> TokenLogprobs:
        data = self._codec.token_bytes
        top = [ScoredToken(other, data(other), logprob) for other, logprob in entry.top]
        return TokenLogprobs(ScoredToken(token, data(token), entry.chosen), top)

    def _finish(self, reason: FinishReason) -> None:
        self.ending = reason
        timings, details = self._told()
        self.events.put_nowait(Finished(reason, self._usage, timings, details))

    @property
    def _usage(self) -> Usage:
        return Usage(self._prompt_tokens, self._completion_tokens, self._cached_tokens)

    def _told(self) -> tuple[Timings, Details]:
        """Say how the answer came about; asked again, the same."""
        if self._account is None:
            now_s = self._clock()
            parts, stages = self.spent.ended(now_s)
            timings = Timings(
                queue_ms=1000 * ((self._started_s or now_s) - self.accepted_s),
                first_token_ms=1000 * ((self._first_token_s or now_s) - self.accepted_s),
                total_ms=1000 * (now_s - self.accepted_s),
                parts=parts,
                slowest=slowest(parts),
            )
            why = slowest(parts, stages)
            self._account = timings, Details(list(self._served), self._drafted, self._accepted, stages, why)
        return self._account
