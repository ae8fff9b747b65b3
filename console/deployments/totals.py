"""What became of the answers and plans of a model since the service began, counted where it happens. Pure.

Unlike `performance.py` nothing is forgotten here and nothing is said of a moment: `console.metrics` hands the counters
to whoever collects them and makes rates of them.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from console.pipeline.types import Failed, Finished
from console.tallies import STEP_S, WAIT_S, Tally

PlanChange = Literal["deployed", "taken_over"]
"""Why a pipeline has other stages: it was brought up, or others took over what a PC held."""


class ModelTotals:
    """The counters of one model, whatever pipelines it had."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        """By how they ended: `stop`, `length`, `cancelled`, or the code of a failure."""
        self.first_token = Tally(WAIT_S)
        self.between_tokens = Tally(STEP_S)
        """Seconds between pieces, each token with its share."""
        self.prompt_tokens = self.cached_tokens = self.answer_tokens = 0
        self.plans: Counter[PlanChange] = Counter()
        self.recovered = Tally(WAIT_S)
        """Seconds that answers stood still until others had taken over."""
        self.given_up = 0
        """Losses after which nobody took over in time."""

    def note_first(self, waited_s: float) -> None:
        """An answer's first tokens came, so long after it was asked for."""
        self.first_token.add(waited_s)

    def note_more(self, tokens: int, waited_s: float) -> None:
        """More tokens of an answer came, so long after the ones before."""
        self.between_tokens.add(waited_s / tokens, tokens)

    def ended(self, last: Finished | Failed | None) -> None:
        """An answer ended; None: whoever asked took it back."""
        if isinstance(last, Finished):
            self.answers[last.reason] += 1
            self.prompt_tokens += last.usage.prompt_tokens
            self.cached_tokens += last.usage.cached_tokens
            self.answer_tokens += last.usage.completion_tokens
        else:
            self.answers["cancelled" if last is None else last.code] += 1
