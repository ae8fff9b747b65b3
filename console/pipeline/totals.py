"""What went through a pipeline since it came up, counted where it happens. Pure; read by `console.metrics`.

Work is told apart by its kind: a step that only continues answers takes milliseconds, one that reads parts of prompts
may take a hundred times as long, and one figure for both would say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from console.pipeline.plans import Outcome, Step
from console.pipeline.trips import Trip
from console.pipeline.types import StageInfo
from console.tallies import ROWS, STEP_S, WAIT_S, Tally

Work = Literal["answers", "prompts"]
"""What a step does: continue answers and nothing else, or read parts of prompts (too)."""
KINDS: tuple[Work, ...] = ("answers", "prompts")


class StageTotals(NamedTuple):
    """One PC's part: seconds of inference, of steps that waited there for their turn, and that were on its links."""

    compute: dict[Work, Tally]
    queue: dict[Work, Tally]
    link: dict[Work, Tally]

    @classmethod
    def new(cls) -> StageTotals:
        """Begin to count."""
        return cls(*({kind: Tally(STEP_S) for kind in KINDS} for _ in range(3)))


class PipelineTotals:
    """All counters of one coordinator, over all the stages it ever had."""

    def __init__(self) -> None:
        self.stages: dict[str, StageTotals] = {}
        """By device, of those on the route now: one that left takes its figures along."""
        self.rows: dict[Work, Tally] = {kind: Tally(ROWS) for kind in KINDS}
        """Answers in a step: the batch size."""
        self.waited = Tally(WAIT_S)
        """Seconds in the queue, of those that got their place."""
        self.drafted = self.accepted = 0
        """Tokens guessed ahead, and those of them that were right."""

    def begin(self, stages: Sequence[StageInfo]) -> None:
        """Count for these stages from now on; who stays goes on counting."""
        self.stages = {stage.device_id: self.stages.get(stage.device_id) or StageTotals.new() for stage in stages}

    def came(self, step: Step, trip: Trip) -> None:
        """Count a step that came back."""
        if not step.rows:
            return
        kind: Work = "answers" if step.decodes_only else "prompts"
        self.rows[kind].add(len(step.rows))
        for part, stage in zip(trip.stages, self.stages.values(), strict=False):
            stage.compute[kind].add(part.compute_s + part.sampling_s)
            stage.queue[kind].add(part.queue_s)
            stage.link[kind].add(part.link_s)

    def judged(self, outcomes: Sequence[Outcome]) -> None:
        """Count the drafts of a step's rounds."""
        for outcome in outcomes:
            if outcome.drafted:
                self.drafted += outcome.drafted
                self.accepted += len(outcome.ids) - 1
