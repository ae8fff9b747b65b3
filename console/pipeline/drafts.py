"""Where the scheduler's guesses come from: the hook that speculation plugs into. Pure; knows no proposer.

A stream whose next tokens were guessed runs them all in one row, a *verify row*: the last accepted token and K drafts.
The tail samples after every one of them from the model's own logits, as it would have without drafts. The drafts that
equal what was sampled are accepted, and the sampled token behind the last of them comes for free. So drafts change
how many tokens a round gives (1 to K + 1) and never which ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent.stage.types import Sampling, StreamId
from console.pipeline.types import SpeculationStatus


class DraftSource(Protocol):
    """What guesses for the streams of one pipeline. Called on the service's event loop; must not block or raise.

    For each stream the calls are: `begin` when it gets its place, `drafts_for` until it answers with a list, `judged`
    when that round came back, and so on, then `forget` exactly once (also for streams that never got a place). A round
    that a cancelled or failed stream left behind is never judged.
    """

    def begin(self, stream: StreamId, ids: Sequence[int], sampling: Sampling) -> None:
        """A stream with these tokens gets a place in the caches; again if it lost its place meanwhile."""
        ...

    def drafts_for(self, stream: StreamId, ids: Sequence[int], room: int) -> Sequence[int] | None:
        """Guess the tokens that follow `ids`: the prompt, then the answer so far.

        `ids` is the scheduler's own list: read it now, keep no reference. At most `room` >= 1 drafts are used, the
        rest is cut off: the answer may end or the context be full there. An empty list makes a plain decode row.
        None means "not yet": the stream sits out and is asked again at every `schedule()`, so whoever returns None
        owes a wake-up (`Coordinator.drafts_ready`), also when the guess fails.
        """
        ...

    def judged(self, stream: StreamId, drafts: int, accepted: int) -> None:
        """Hear how a round ended: `accepted` of its `drafts` (0 for a plain row) were what the model said."""
        ...

    def forget(self, stream: StreamId) -> None:
        """The stream ended, however it did; unknown streams are fine."""
        ...

    def round_took(self, streams: int, rows: int, tokens: int, round_trip_s: float, compute_s: float) -> None:
        """Hear how long a step of decode and verify rows took: `streams` of them ran `rows` tokens, drafts included.

        It gave `tokens` over all streams. `compute_s` is the stages' own part of the round trip.
        """
        ...

    def status(self) -> SpeculationStatus:
        """Tell how guessing goes."""
        ...


class NoDrafts:
    """Never guesses, because of `reason`."""

    def __init__(self, reason: str = "Switched off.") -> None:
        self._reason = reason

    def begin(self, stream: StreamId, ids: Sequence[int], sampling: Sampling) -> None:
        pass

    def drafts_for(self, stream: StreamId, ids: Sequence[int], room: int) -> Sequence[int] | None:
        return ()

    def judged(self, stream: StreamId, drafts: int, accepted: int) -> None:
        pass

    def forget(self, stream: StreamId) -> None:
        pass

    def round_took(self, streams: int, rows: int, tokens: int, round_trip_s: float, compute_s: float) -> None:
        pass

    def status(self) -> SpeculationStatus:
        return SpeculationStatus(reason=self._reason)


NO_DRAFTS = NoDrafts()
