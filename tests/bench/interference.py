"""What a long prompt does to an answer that is running, and the running answer to the long prompt."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import NamedTuple

from console.bench.figures import percentile
from console.bench.texts import long_prompt
from installer.loopback import LoopbackFleet
from tests.bench.prompts import questions
from tests.bench.served import Heard, listen

LONG_TOKENS = 2000
RUNNING_TOKENS = 400
"""More than the running answer gets out while the long prompt is read."""
AFTER_PIECES = 24


class Interference(NamedTuple):
    """Seconds: gaps of the running answer, and the long prompt's first token, each undisturbed and together."""

    quiet_p95_s: float
    busy_p95_s: float
    alone_s: float
    together_s: float

    def figures(self) -> dict[str, float]:
        """Return ratios and times as the benchmark prints them."""
        return {
            "gap_p95_ratio": round(self.busy_p95_s / self.quiet_p95_s, 2),
            "prompt_time_ratio": round(self.together_s / self.alone_s, 2),
            "quiet_gap_p95_ms": round(1000 * self.quiet_p95_s, 2),
            "busy_gap_p95_ms": round(1000 * self.busy_p95_s, 2),
            "prompt_alone_ms": round(1000 * self.alone_s, 1),
            "prompt_together_ms": round(1000 * self.together_s, 1),
        }


def measure(fleet: LoopbackFleet, model: str, count_tokens: Callable[[str], int], round_: int) -> Interference:
    """Measure one round: alone, quiet, together; every prompt is a new one."""
    first, second = (long_prompt(LONG_TOKENS, 2 * round_ + index, count_tokens) for index in range(2))
    running, quiet = questions(2, 2 * round_)
    alone = listen(fleet, model, first, 1)
    undisturbed = listen(fleet, model, quiet, RUNNING_TOKENS // 2)
    begun = threading.Event()
    answers: list[Heard] = []

    def run() -> None:
        answers.append(
            listen(fleet, model, running, RUNNING_TOKENS, lambda pieces: begun.set() if pieces > AFTER_PIECES else None)
        )

    thread = threading.Thread(target=run, name="running-answer")
    thread.start()
    try:
        if not begun.wait(60):
            raise TimeoutError("The running answer did not begin.")
        together = listen(fleet, model, second, 1)
    finally:
        thread.join()
    came_s = together.pieces_s[0]
    pieces_s = answers[0].pieces_s
    pairs = itertools.pairwise(pieces_s)
    busy = [later - earlier for earlier, later in pairs if later >= together.asked_s and earlier <= came_s]
    return Interference(percentile(undisturbed.gaps_s, 0.95), percentile(busy, 0.95), alone.first_s, together.first_s)
