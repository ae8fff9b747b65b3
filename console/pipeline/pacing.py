"""How many steps in flight, and how much of a prompt in one: decided from measured stage times, with the reason.

G steps in flight carry N rows in shares of n = N / G. A stage can only work on one of them at a time, and a step must
pass all stages before its rows can be in the next one, so a round of all rows takes

    max(G * slowest stage(n), sum of all stages(n) + waiting on links).

Few large steps win where rows cost next to nothing or one stage is much slower than the others, several small ones
where the stages would otherwise wait for each other. The same formula says how many prompt tokens each of G steps may
carry until a round has become `STALL` times as long; G is then what moves the most of them. And on a PC whose owner may
come back, an inference, which nobody can interrupt, may take only so long, whether answers run beside it or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from console.pipeline.costs import Costs, StepCosts
from console.pipeline.plans import Step

STALL = 2.5
"""How much longer a round may get while a prompt is read. The chunks then cost 1.5 times the rows beside them, so
the prompt takes about 1.7 times as long as it would alone."""
LEAST_CHUNK = 16
"""Smaller pieces of a prompt cost nearly as much as this, whatever the fit says."""
UNKNOWN_CHUNK = 64
"""Beside running answers, as long as no prompt was ever measured."""
WORTH = 0.95
"""Another number of steps must promise at least this fraction of a round: no wavering between equals."""
STRAIN_SPAN = (0.5, 5.0)
"""Parts of a prompt were never measured to cost less or more than so many times what the fit says."""
REFRESH = 32
"""Measured steps until the costs are fitted again, which takes about a millisecond; less while there are few."""


class Pace(NamedTuple):
    """How many `steps` are in flight at most, and why.

    While a prompt is read these are `filling` steps, and each carries at most `chunk` tokens of prompts.
    """

    steps: int
    filling: int
    chunk: int
    reason: str

    @property
    def words(self) -> str:
        """The whole decision in words."""
        return f"{self.reason} A step takes up to {self.chunk} prompt tokens."


class Load(NamedTuple):
    """What is to be paced: `decoding` streams past their prompts, on average with `drafts` drafts each.

    `chunk` is what an undisturbed prompt is cut into, `wait_ms` what a whole trip spends outside of inference, and
    `current` how many steps are in flight now. `strain` is how many times what was fitted the tokens of a prompt cost
    now: the longer a prompt already is, the more each of its next tokens has to look at. `infer_ms` says of each stage
    how long a part of a prompt may compute there (0, or none said: as long as it likes).
    """

    decoding: int
    stages: int
    chunk: int
    drafts: float = 0.0
    wait_ms: float = 0.0
    current: int = 1
    strain: float = 1.0
    infer_ms: tuple[int, ...] = ()

    @property
    def most(self) -> int:
        """More steps than this would be empty or wait for a stage."""
        return min(self.stages, self.decoding)

    def rows(self, steps: int) -> int:
        """How many rows the largest of `steps` steps has."""
        return -(-self.decoding // steps)

    def round_ms(self, costs: Costs, steps: int) -> float:
        """Predict how long it takes until every stream has been in one of `steps` steps."""
        rows = self.rows(steps)
        extra = rows * self.drafts
        return max(steps * costs.slowest_ms(rows, extra), costs.total_ms(rows, extra) + self.wait_ms)

    def room(self, costs: Costs, steps: int, allowed_ms: float) -> int:
        """Say how many prompt tokens each of `steps` steps may carry so that a round takes `allowed_ms`."""
        rows = self.rows(steps)
        extra = rows * self.drafts
        limits = [(allowed_ms / steps - stage.ms(rows, extra), stage.token_ms) for stage in costs.stages]
        left_ms = allowed_ms - self.wait_ms - costs.total_ms(rows, extra)
        limits.append((left_ms, sum(stage.token_ms for stage in costs.stages)))
        tokens = min((left_ms / token_ms for left_ms, token_ms in limits if token_ms > 0), default=float(self.chunk))
        return max(0, min(self.piece(costs, steps), int(tokens / self.strain)))

    def piece(self, costs: Costs, steps: int) -> int:
        """Say how many prompt tokens one of `steps` steps may carry so that no stage computes for longer than it may.

        `LEAST_CHUNK` it may in any case, and no more before a prompt was measured.
        """
        bounded = [(most_ms, stage) for most_ms, stage in zip(self.infer_ms, costs.stages, strict=False) if most_ms > 0]
        if not bounded:
            return self.chunk
        least = min(LEAST_CHUNK, self.chunk)
        if not costs.knows_tokens:
            return least
        rows = self.rows(steps)
        left = [(most_ms - stage.ms(rows, rows * self.drafts), stage.token_ms) for most_ms, stage in bounded]
        tokens = min((left_ms / token_ms for left_ms, token_ms in left if token_ms > 0), default=float(self.chunk))
        return max(least, min(self.chunk, int(tokens / self.strain)))

    def shares(self, steps: int) -> str:
        """Say how the streams are divided."""
        rows = self.rows(steps)
        return f"{steps} step{'s' * (steps > 1)} of {rows} row{'s' * (rows > 1)}"


class Pacer:
    """Decides for one pipeline of `stages` stages; `chunk` and `infer_ms` are those of `Load`."""

    def __init__(self, stages: int, chunk: int, infer_ms: tuple[int, ...] = ()) -> None:
        self._load = Load(0, stages, chunk, current=stages, infer_ms=infer_ms)
        self._costs = StepCosts(stages)
        self._fitted = self._costs.fit()
        self._fit_at = 1
        self._decided: tuple[int, int, float] | None = None
        self._pace = decide(self._fitted, self._load)

    @property
    def token_ms(self) -> float:
        """What a token beyond one for each row costs, over all stages, as fitted; 0 while it was not measured."""
        return sum(stage.token_ms for stage in self._fitted.stages) if self._fitted.knows_tokens else 0.0

    def measured(self, step: Step, compute_us: Sequence[int], wait_ms: float) -> None:
        """Take what each stage spent on a step, and what lately passes outside of inference on a whole trip.

        Called when the next step is on its way already: what it costs delays nobody.
        """
        self._costs.add(step, compute_us)
        if self._costs.measured >= self._fit_at:
            self._fit_at = self._costs.measured + min(REFRESH, self._costs.measured)
            self._fitted = self._costs.fit()
        drafts, strain = self._load.drafts, self._load.strain
        if step.decodes_only:
            drafts += 0.1 * (len(step.tokens) / len(step.rows) - 1 - drafts)
        elif (extra := len(step.tokens) - len(step.rows)) >= LEAST_CHUNK // 2:
            strain += 0.3 * (self._fitted.strain(len(step.rows), extra, sum(compute_us) / 1000) - strain)
            strain = min(max(strain, STRAIN_SPAN[0]), STRAIN_SPAN[1])
        self._load = self._load._replace(drafts=drafts, wait_ms=wait_ms, strain=strain)

    def pace(self, decoding: int) -> Pace:
        """Decide for `decoding` streams that are past their prompts; the answer is kept until something changes."""
        asked = (decoding, self._fit_at, round(self._load.strain, 1))
        if asked != self._decided:
            self._decided = asked
            self._load = self._load._replace(decoding=decoding, current=self._pace.steps)
            self._pace = decide(self._fitted, self._load)
        return self._pace


def decide(costs: Costs, load: Load) -> Pace:
    """Choose the pace."""
    if not load.decoding:
        return Pace(load.stages, load.stages, load.piece(costs, load.stages), "No answer is running.")
    steps = load.most
    if steps == 1:
        reason = f"1 step at a time: there is only one {'stage' if load.stages == 1 else 'answer'}."
    elif not costs.knows_rows:
        reason = f"{load.shares(steps)}: steps of several sizes have not been measured yet."
    else:
        rounds = {count: load.round_ms(costs, count) for count in range(1, load.most + 1)}
        kept = min(load.current, load.most)
        steps = min(rounds, key=lambda count: rounds[count] * (WORTH if count == kept else 1))
        other = min((count for count in rounds if count != steps), key=rounds.__getitem__)
        reason = (
            f"{load.shares(steps)} take{'s' * (steps == 1)} about {rounds[steps]:.0f} ms a round; "
            f"{load.shares(other)} would take {rounds[other]:.0f} ms."
        )
    return Pace(steps, *_filling(costs, load, steps), reason)


def _filling(costs: Costs, load: Load, steps: int) -> tuple[int, int]:
    """Choose the steps in flight and the chunk in each while a prompt is read beside the answers."""
    if not costs.knows_tokens:
        return load.stages, min(load.piece(costs, load.stages), UNKNOWN_CHUNK)
    allowed_ms = STALL * load.round_ms(costs, steps)
    rooms = {count: load.room(costs, count, allowed_ms) for count in range(1, load.stages + 1)}
    # Pieces below the least would be rounded up and break the bound: fewer steps have room for larger ones.
    filling = max(rooms, key=lambda count: (rooms[count] >= LEAST_CHUNK, count * rooms[count]))
    return filling, max(min(LEAST_CHUNK, load.chunk), rooms[filling])
