"""Which models a fleet can run at some time, how surely and how fast: by when its PCs tend to rest. Pure.

How likely a pipeline fits is worked out, not drawn: each PC is there or not, by itself, and brings as many layers as
its memory holds. PCs are counted by whole layers and pipelines are filled one after the other, so the chance is rather
higher than said. Its speed is drawn: of some fleets that may be there, the slowest plan counts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from agent.volunteer.availability import likely
from console.planner.candidates import allowed, by_place
from console.planner.costs import SCRATCH_BYTES, Costs
from console.planner.ranges import plan
from console.planner.types import AgentFacts, Demand, PlanImpossible
from shard_export.library.counts import counted

MOST_PIPELINES = 64
DRAWS = 5
SEED = 2


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The time asked about: from `unix_s` for `for_s`; with `certainty` it has to work.

    A PC that does not tell when it rests counts as resting with a chance of `unknown`.
    """

    unix_s: float
    for_s: float = 3600.0
    certainty: float = 0.95
    unknown: float = 0.0


class Answer(msgspec.Struct, frozen=True):
    """What is to be expected of one model: the chance that it fits at all, and how many pipelines fit surely enough.

    `tokens_per_second` and `stages` are of the slowest of the plans that were drawn; 0 where none was possible.
    """

    model_id: str
    chance: float
    pipelines: int
    tokens_per_second: float
    stages: int
    reasons: list[str]


def what_if(demands: Sequence[Demand], moment: Moment, *, scratch_bytes: int = SCRATCH_BYTES) -> list[Answer]:
    """Answer for each model on its own, as if it had the fleet for itself; the largest that runs surely comes first."""
    answers = [(_bytes(demand), _answer(demand, moment, scratch_bytes)) for demand in demands]
    answers.sort(key=lambda pair: (not pair[1].pipelines, -pair[0], pair[1].model_id))
    return [answer for _, answer in answers]


def at(agents: Sequence[AgentFacts], moment: Moment) -> list[AgentFacts]:
    """Return the PCs as they are expected to be then: `stay` is how likely each one rests for that time."""
    found = []
    for agent in agents:
        chance = likely(agent.rests, moment.unix_s, agent.utc_offset_s, moment.for_s)
        found.append(msgspec.structs.replace(agent, stay=moment.unknown if chance is None else chance))
    return found


def _answer(demand: Demand, moment: Moment, scratch_bytes: int) -> Answer:
    try:
        agents = at(allowed(demand.agents, demand.rules), moment)
    except PlanImpossible as error:
        return Answer(demand.model.model_id, 0.0, 0, 0.0, 0, [str(error)])
    costs = Costs(
        demand.model,
        agents,
        context_tokens=demand.context_tokens,
        streams=demand.streams,
        scratch_bytes=scratch_bytes,
        limits=demand.rules.limits,
    )
    total = np.ones(1)
    for place in by_place(agents, demand.rules).values():
        total = _capped(np.convolve(total, pipelines_likely(costs, place)))
    at_least = np.cumsum(total[::-1])[::-1]
    surely = int(np.flatnonzero(at_least >= moment.certainty - 1e-9).max())
    chance = float(at_least[1]) if len(at_least) > 1 else 0.0
    rate, stages = _drawn(demand, agents, scratch_bytes)
    reasons = _reasons(demand, agents, moment, chance, surely)
    return Answer(demand.model.model_id, round(min(chance, 1.0), 6), surely, rate, stages, reasons)


def _capped(likely: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Count more than `MOST_PIPELINES` as so many: no chance is lost."""
    if len(likely) <= MOST_PIPELINES + 1:
        return likely
    return np.append(likely[:MOST_PIPELINES], likely[MOST_PIPELINES:].sum())


def pipelines_likely(costs: Costs, agents: Sequence[AgentFacts]) -> npt.NDArray[np.float64]:
    """Return how likely exactly 0, 1, 2, ... pipelines fit into one place, each PC being there with its `stay`.

    An end counts as so many layers; a PC too small for an end beside a layer is not counted. Filling a pipeline wastes
    less than what its last PC holds.
    """
    layer = max(costs.layer_needs)
    ends = [-(-size // max(1, layer)) for size in (costs.model.embed_bytes, costs.model.head_bytes)]
    needed = costs.layers + sum(ends)
    counts = [(min(costs.room(agent) // max(1, layer), needed), agent) for agent in agents]
    counts = [
        (count if costs.most_layers(agent) == costs.layers else min(count, costs.most_layers(agent)), agent)
        for count, agent in counts
        if count > max(ends) and costs.most_layers(agent) > 0
    ]
    largest = max((count for count, _ in counts), default=0)
    if sum(count for count, _ in counts) < needed:
        return np.ones(1)
    most = min(MOST_PIPELINES, sum(count for count, _ in counts) // needed)
    steps = [needed * number + max(0, number - 1) * max(0, largest - 1) for number in range(most + 1)]
    sums = np.zeros(steps[-1] + 1)
    sums[0] = 1.0
    for count, agent in counts:
        moved = np.zeros_like(sums)
        moved[count:] = sums[: len(sums) - count]
        moved[-1] += sums[len(sums) - count :].sum()
        sums = (1 - agent.stay) * sums + agent.stay * moved
    at_least = np.array([sums[step:].sum() for step in steps])
    return np.asarray(at_least - np.append(at_least[1:], 0.0))


def _drawn(demand: Demand, agents: Sequence[AgentFacts], scratch_bytes: int) -> tuple[float, int]:
    chance = random.Random(SEED)  # noqa: S311 - the same fleets each time, nothing secret
    found: list[tuple[float, int]] = []
    for _ in range(DRAWS):
        there = [agent for agent in agents if chance.random() < agent.stay]
        try:
            made = plan(
                demand.model,
                [msgspec.structs.replace(agent, stay=1.0) for agent in there],
                context_tokens=demand.context_tokens,
                streams=demand.streams,
                stages=demand.stages,
                scratch_bytes=scratch_bytes,
                rules=demand.rules,
            )
        except PlanImpossible:
            continue
        found.append((made.tokens_per_second, len(made.stages)))
    return min(found, default=(0.0, 0))


def _reasons(demand: Demand, agents: Sequence[AgentFacts], moment: Moment, chance: float, surely: int) -> list[str]:
    silent = sum(1 for agent in agents if not agent.rests)
    expected = sum(agent.stay for agent in agents)
    percent = 100 * moment.certainty
    reasons = [f"Of {counted(len(agents), 'PC')}, {expected:.0f} can be expected to rest then."]
    if surely:
        pipelines = counted(surely, "pipeline fits", "pipelines fit")
        reasons.append(f"{pipelines} with at least {percent:g}% certainty.")
    else:
        reasons.append(f"It fits with {100 * chance:.0f}% certainty, and {percent:g}% are asked for.")
    if silent:
        how = f"counts as resting with {100 * moment.unknown:.0f}%" if moment.unknown else "is not counted"
        reasons.append(f"{counted(silent, 'PC does', 'PCs do')} not tell when they rest; each {how}.")
    if demand.rules.pins:
        reasons.append("Pinned PCs have to be there as well; that is not part of the chance.")
    return reasons


def _bytes(demand: Demand) -> int:
    return sum(demand.model.layer_bytes) + demand.model.embed_bytes + demand.model.head_bytes
