"""What the scheduler asks for drafts: a proposer's guesses, as many as pay. Pure; belongs to the service's loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.stage.types import Sampling, StreamId
from console.pipeline.speculation.counts import (
    PIPELINE_MEMORY,
    PROBE_DRAFTS,
    STREAM_MEMORY,
    Acceptance,
    Company,
    Fading,
    Probing,
    RoundTimes,
    best_count,
)
from console.pipeline.speculation.proposers import Proposer
from console.pipeline.types import SpeculationStatus

FIRST_GUESS = 0.5
"""What is expected of drafts before any was judged: enough to try one."""
ROUNDS_KEPT = 0.98
COMPANY_KEPT = 0.9
SELDOM = 0.05
"""With fewer drafts a round than this a status says why."""


@dataclass
class _Guessing:
    """One stream: its own acceptance by kind of guess, and the guess that is being made (`asked` drafts of `kind`)."""

    acceptance: list[Acceptance]
    probing: Probing = field(default_factory=Probing)
    asked: int = 0
    kind: int = 0


class Speculator:
    """Decides for every round of every stream how many drafts to ask the proposer for. Implements `DraftSource`."""

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer
        self._streams: dict[StreamId, _Guessing] = {}
        self._acceptance = [Acceptance(PIPELINE_MEMORY, FIRST_GUESS) for _ in range(proposer.kinds)]
        self._times = RoundTimes()
        self._step_streams, self._step_rows, self._step_tokens = (Fading(COMPANY_KEPT) for _ in range(3))
        self._drafts, self._accepted = Fading(ROUNDS_KEPT), Fading(ROUNDS_KEPT)
        self._why = "No answer was generated yet."

    def begin(self, stream: StreamId, ids: Sequence[int], sampling: Sampling) -> None:
        """A stream with these tokens got its place; nothing is lost if it got one before."""
        if stream in self._streams:
            return
        self._streams[stream] = _Guessing([Acceptance(STREAM_MEMORY, others.share) for others in self._acceptance])
        self._proposer.begin(stream, ids, sampling)

    def drafts_for(self, stream: StreamId, ids: Sequence[int], room: int) -> Sequence[int] | None:
        """Return the guess for a round, nothing when none pays, or None while it is being made."""
        guessing = self._streams[stream]
        if not guessing.asked:
            guessing.asked = self._count(guessing, stream, ids, room)
            if not guessing.asked:
                return ()
        drafts = self._proposer.propose(stream, ids, guessing.asked)
        if drafts is not None:
            guessing.asked = 0
        return drafts

    def judged(self, stream: StreamId, drafts: int, accepted: int) -> None:
        """Learn from a round: `accepted` of its `drafts` were right."""
        self._drafts.add(drafts)
        self._accepted.add(accepted)
        guessing = self._streams.get(stream)
        if guessing is not None and drafts:
            guessing.acceptance[guessing.kind].add(drafts, accepted)
            self._acceptance[guessing.kind].add(drafts, accepted)

    def forget(self, stream: StreamId) -> None:
        """The stream ended."""
        if self._streams.pop(stream, None) is not None:
            self._proposer.forget(stream)

    def round_took(self, streams: int, rows: int, tokens: int, round_trip_s: float, compute_s: float) -> None:
        """Learn how long a step of decode and verify rows took, and what it gave: `tokens` over all its streams.

        `rows` counts the tokens that ran, drafts included; `compute_s` is the stages' own part of the round trip.
        """
        self._times.add(rows, round_trip_s, compute_s)
        self._step_streams.add(streams)
        self._step_rows.add(rows)
        self._step_tokens.add(tokens)

    def status(self) -> SpeculationStatus:
        """Tell how guessing goes, over the last rounds."""
        drafts, accepted = self._drafts.mean, self._accepted.mean
        return SpeculationStatus(
            source=self._proposer.name,
            acceptance=accepted / drafts if drafts else 0.0,
            drafts_per_round=drafts,
            tokens_per_round=1.0 + accepted if self._drafts.known else 0.0,
            reason=self._proposer.problem or (self._why if drafts < SELDOM else ""),
        )

    def _count(self, guessing: _Guessing, stream: StreamId, ids: Sequence[int], room: int) -> int:
        kind = self._proposer.kind(stream, ids)
        if kind is None:
            self._why = "No guess was at hand."
            return 0
        guessing.kind = kind
        share = guessing.acceptance[kind].share
        count = best_count(share, self._times, most=room, draft_s=self._proposer.draft_s, company=self._company())
        if count:
            guessing.probing.paid()
            return count
        making = f" and one takes {1000 * self._proposer.draft_s:.0f} ms to make" if self._proposer.draft_s else ""
        self._why = f"Drafts do not pay: {share:.0%} of them are right{making}."
        return min(PROBE_DRAFTS, room) if self._times.known and guessing.probing.due() else 0

    def _company(self) -> Company:
        """What shares a step with a stream: an average one, as seen in the last steps."""
        streams = self._step_streams.mean
        if streams <= 1:
            return Company()
        others = (streams - 1) / streams
        return Company(self._step_rows.mean * others, self._step_tokens.mean * others)
