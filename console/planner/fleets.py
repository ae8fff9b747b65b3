"""Plans many pipelines over one fleet: several of one model, several models. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from console.planner.costs import SCRATCH_BYTES, Costs
from console.planner.ranges import plan
from console.planner.types import AgentFacts, Demand, FleetPlan, Plan, PlanImpossible
from shard_export.library.counts import counted


def plan_fleet(demands: Sequence[Demand], *, scratch_bytes: int = SCRATCH_BYTES) -> FleetPlan:
    """Plan what is wanted of a fleet, as much of it as there is room for.

    Each model gets its first pipeline before any gets a second one; then its second, and so on. Pipelines have PCs of
    their own as long as there are some; beyond that models share PCs whose memory allows it, and the reasons say so.
    Two pipelines of one model never share a PC. A PC that serves a pipeline now is left to it if that is possible.
    The result does not depend on the order of `demands` or of their agents. Never raises.
    """
    ordered = sorted(demands, key=lambda one: (-one.priority, -_need(one, scratch_bytes), one.model.model_id))
    found = _Round(ordered, scratch_bytes, thrifty=False).run()
    if found.missing:
        thrifty = _Round(ordered, scratch_bytes, thrifty=True).run()
        if _count(thrifty) > _count(found):
            return thrifty
    return found


class _Round:
    """One try. `thrifty`: each pipeline takes the largest PCs and ends with the smallest that is enough."""

    def __init__(self, demands: Sequence[Demand], scratch_bytes: int, *, thrifty: bool) -> None:
        self._demands = demands
        self._scratch = scratch_bytes
        self._thrifty = thrifty
        self._used: defaultdict[str, int] = defaultdict(int)
        """Bytes taken on each PC."""
        self._plans: dict[str, list[Plan]] = {demand.model.model_id: [] for demand in demands}
        self._missing: dict[str, str] = {}
        self._reasons: list[str] = []

    def run(self) -> FleetPlan:
        """Plan pipeline by pipeline."""
        for number in range(max((demand.pipelines for demand in self._demands), default=0)):
            for demand in self._demands:
                if number < demand.pipelines and demand.model.model_id not in self._missing:
                    self._add(demand, number)
        for model_id, text in self._missing.items():
            self._reasons.append(f"{model_id} has {counted(len(self._plans[model_id]), 'pipeline')}: {text}")
        return FleetPlan(self._plans, self._missing, self._reasons)

    def _add(self, demand: Demand, number: int) -> None:
        model_id = demand.model.model_id
        current = demand.current[number] if number < len(demand.current) else None
        failed: PlanImpossible | None = None
        for agents, shared in self._choices(demand, number):
            try:
                made = self._plan(demand, agents, current)
            except PlanImpossible as error:
                failed = error
                continue
            self._plans[model_id].append(made)
            for stage in made.stages:
                self._used[stage.device_id] += stage.memory_bytes
            if shared:
                self._reasons.append(f"Pipeline {number + 1} of {model_id} shares PCs: no others are free.")
            return
        self._missing[model_id] = str(failed)

    def _choices(self, demand: Demand, number: int) -> Iterator[tuple[list[AgentFacts], bool]]:
        """Yield who may be taken: free PCs that nobody else runs on now, all free ones, then those with room left."""
        own = {stage.device_id for made in self._plans[demand.model.model_id] for stage in made.stages}
        agents = [agent for agent in demand.agents if agent.device_id not in own]
        free = [agent for agent in agents if not self._used[agent.device_id]]
        promised = self._promised(demand, number)
        if promised:
            yield [agent for agent in free if agent.device_id not in promised], False
        yield free, False
        if len(free) < len(agents):
            yield [self._what_is_left(agent) for agent in agents], True

    def _promised(self, demand: Demand, number: int) -> set[str]:
        """Return the PCs that other pipelines run on now."""
        return {
            stage.device_id
            for other in self._demands
            for index, running in enumerate(other.current[: other.pipelines])
            if (other.model.model_id, index) != (demand.model.model_id, number)
            for stage in running.stages
        }

    def _what_is_left(self, agent: AgentFacts) -> AgentFacts:
        left = max(0, agent.memory_budget_bytes - self._used[agent.device_id])
        return msgspec.structs.replace(agent, memory_budget_bytes=left)

    def _plan(self, demand: Demand, agents: Sequence[AgentFacts], current: Plan | None) -> Plan:
        pools = self._thrifty_pools(demand, agents) if self._thrifty and current is None else iter([agents])
        for pool in pools:
            try:
                return self._plan_with(demand, pool, current)
            except PlanImpossible:
                if len(pool) == len(agents):
                    raise
        return self._plan_with(demand, agents, current)

    def _plan_with(self, demand: Demand, agents: Sequence[AgentFacts], current: Plan | None) -> Plan:
        return plan(
            demand.model,
            agents,
            context_tokens=demand.context_tokens,
            streams=demand.streams,
            stages=demand.stages,
            scratch_bytes=self._scratch,
            rules=demand.rules,
            current=current,
        )

    def _thrifty_pools(self, demand: Demand, agents: Sequence[AgentFacts]) -> Iterator[list[AgentFacts]]:
        """Yield small groups of PCs that may be enough, each wasting little memory: first the smallest last PC."""
        costs = _costs(demand, agents, self._scratch)
        large = sorted(agents, key=lambda agent: (-costs.room(agent), agent.device_id))
        pool: list[AgentFacts] = []
        room = 0
        for place, agent in enumerate(large):
            needed = costs.total_bytes - room
            if costs.room(agent) >= needed:
                enough = [other for other in large[place:] if costs.room(other) >= needed]
                for last in reversed(enough[-2:]):
                    yield [*pool, last]
            pool.append(agent)
            room += costs.room(agent)
            if room >= 2 * costs.total_bytes:
                return


def _costs(demand: Demand, agents: Sequence[AgentFacts], scratch_bytes: int) -> Costs:
    return Costs(
        demand.model,
        agents,
        context_tokens=demand.context_tokens,
        streams=demand.streams,
        scratch_bytes=scratch_bytes,
        limits=demand.rules.limits,
    )


def _need(demand: Demand, scratch_bytes: int) -> int:
    return _costs(demand, (), scratch_bytes).total_bytes


def _count(found: FleetPlan) -> int:
    return sum(len(plans) for plans in found.plans.values())
