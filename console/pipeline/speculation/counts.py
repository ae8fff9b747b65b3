"""How many drafts does a round take? The number that gives most tokens per time. Pure: times come in as numbers.

A round of k drafts gives one token and every draft up to the first wrong one. With a chance `a` for each that is
E(k) = 1 + a + ... + a^k tokens. It takes as long as its step, which grows with the step's rows, and the making of the
drafts. A draft of one stream also slows down whoever shares the step, so what is compared is the step's tokens per
time, not the stream's own. All that is measured: the acceptance per stream, the round trip per pipeline. The round trip
holds what a network adds, so the slower the links, the more drafts pay.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_DRAFTS = 32
"""Where even perfect guesses gain little more: a round of 32 already saves 97 of 100 round trips."""
PROBE_DRAFTS = 2
FIRST_PROBE_ROUNDS, LAST_PROBE_ROUNDS = 8, 128
"""How many rounds without drafts pass before guessing is tried again; each vain try doubles it."""

STREAM_MEMORY = 0.9
"""How much of a stream's acceptance is kept at each judged draft: it follows a change within about 10 drafts."""
PIPELINE_MEMORY = 0.995
EXPECTED_DRAFTS = 4.0
"""How many drafts of its own a stream must see before they outweigh what other streams saw."""

ROUND_MEMORY = 0.98
SLOPE_PRIOR = 0.1
"""What a row adds to a stage's time, as a share of one row's, before it is measured (16 ms for 1 row, 29 for 8)."""
SLOPE_PRIOR_WEIGHT = 8.0
"""In rows squared, as a spread of measurements: two rounds that differ by four rows weigh as much."""
STALL = 4.0
"""A round that took this many times its expectation counts as no more than that: one stall is no trend."""


class Acceptance:
    """The share of drafts that are right, with old ones fading: each by `memory` with every new one.

    It starts as if EXPECTED_DRAFTS drafts had been judged, the share `expected` of them right.
    """

    def __init__(self, memory: float, expected: float) -> None:
        self._memory = memory
        self._right, self._judged = EXPECTED_DRAFTS * expected, EXPECTED_DRAFTS

    @property
    def share(self) -> float:
        return self._right / self._judged

    def add(self, drafts: int, accepted: int) -> None:
        """Count a round: `accepted` drafts were right, the next one wrong, those behind it were never judged."""
        for place in range(min(drafts, accepted + 1)):
            self._right = self._right * self._memory + (place < accepted)
            self._judged = self._judged * self._memory + 1.0


class Fading:
    """A mean in which old numbers count less and less: each by `kept` with every new one."""

    def __init__(self, kept: float) -> None:
        self._kept = kept
        self._weight = self._sum = 0.0

    @property
    def known(self) -> bool:
        """Whether any number was added."""
        return self._weight > 0

    @property
    def mean(self) -> float:
        """0 before any number."""
        return self._sum / self._weight if self._weight else 0.0

    def add(self, value: float) -> None:
        self._weight = self._weight * self._kept + 1.0
        self._sum = self._sum * self._kept + value


class RoundTimes:
    """Seconds of a round trip by rows in its step: a line through recent rounds."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._rows = self._seconds = 0.0
        self._spread = self._joint = 0.0
        self._row_seconds = 0.0

    @property
    def known(self) -> bool:
        """Whether any round was measured."""
        return self._weight > 0

    def add(self, rows: int, seconds: float, compute_seconds: float) -> None:
        """Record a round of decode and verify rows; `compute_seconds` is the stages' share of it."""
        if self.known:
            seconds = min(seconds, STALL * self.expected(rows))
        self._weight = self._weight * ROUND_MEMORY + 1.0
        share = 1.0 / self._weight
        off_rows, off_seconds = rows - self._rows, seconds - self._seconds
        self._rows += share * off_rows
        self._seconds += share * off_seconds
        self._spread = self._spread * ROUND_MEMORY + off_rows * (rows - self._rows)
        self._joint = self._joint * ROUND_MEMORY + off_rows * (seconds - self._seconds)
        one_row = compute_seconds / (1.0 + SLOPE_PRIOR * (rows - 1))
        self._row_seconds += share * (SLOPE_PRIOR * one_row - self._row_seconds)

    @property
    def per_row(self) -> float:
        """What another row adds, in seconds; never negative."""
        joint = self._joint + SLOPE_PRIOR_WEIGHT * self._row_seconds
        return max(0.0, joint / (self._spread + SLOPE_PRIOR_WEIGHT))

    def expected(self, rows: float) -> float:
        """Estimate a round of that many rows, in seconds; 0 before any measurement."""
        least = 0.1 * self._seconds
        return max(least, self._seconds + self.per_row * (rows - self._rows))


@dataclass(frozen=True)
class Company:
    """What shares a stream's steps: other streams' rows, and the tokens they get from a round."""

    rows: float = 0.0
    tokens: float = 0.0


ALONE = Company()


def best_count(
    acceptance: float, times: RoundTimes, *, most: int, draft_s: float = 0.0, company: Company = ALONE
) -> int:
    """Return the number of drafts, 0 to `most`, with the most expected tokens per second; the smallest on a tie.

    `draft_s` is what it takes to make one draft. Before any round was measured nothing is known: no drafts.
    """
    if not times.known:
        return 0
    best, best_rate = 0, 0.0
    tokens, chance = company.tokens + 1.0, 1.0
    for count in range(min(most, MOST_DRAFTS) + 1):
        if count:
            chance *= acceptance
            tokens += chance
        rate = tokens / max(1e-9, times.expected(company.rows + 1 + count) + count * draft_s)
        if rate > best_rate * (1 + 1e-9):
            best, best_rate = count, rate
    return best


class Probing:
    """When to guess although it did not pay lately: after 8 rounds, then 16, 32 ... at most 128."""

    def __init__(self) -> None:
        self._pause = FIRST_PROBE_ROUNDS
        self._rounds = 0

    def due(self) -> bool:
        """Count a round for which no drafts would be best; True when it should try some all the same."""
        self._rounds += 1
        if self._rounds < self._pause:
            return False
        self._rounds = 0
        self._pause = min(2 * self._pause, LAST_PROBE_ROUNDS)
        return True

    def paid(self) -> None:
        """Note that drafts are worth it again."""
        self._pause, self._rounds = FIRST_PROBE_ROUNDS, 0
