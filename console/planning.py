"""Plans that nobody carries out: how a model would be deployed now, and what the fleet could run at some other time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from console.api.admin import plan_types as wire
from console.api.admin.types import DeployRequest
from console.byhand import checked
from console.deployments.deployments import Deployments
from console.deployments.live import LivePipeline
from console.deployments.rollout import check_context
from console.facts import FleetFacts
from console.libraries import LibraryShelf, LoadedLibrary
from console.planner.fleets import plan_fleet
from console.planner.given import NOBODY, CheckedPlan
from console.planner.reasons import names_text
from console.planner.standbys import choose_standbys
from console.planner.types import AgentFacts, Demand, ModelFacts, Plan
from console.planner.whatif import Moment, what_if
from console.standing import resolved, rules_of


class Planning:
    """Collects the facts on the event loop and lets a thread think about them."""

    def __init__(self, facts: FleetFacts, shelf: LibraryShelf, deployments: Deployments) -> None:
        self._facts = facts
        self._shelf = shelf
        self._deployments = deployments

    async def plan(self, asked: wire.PlanRequest) -> wire.Plans:
        """Plan a model with the PCs that may be used now. Raises DeployRefused for what cannot be asked.

        What other models use is taken off; a model that is up keeps its PCs unless others are much better.
        """
        request = resolved(asked.request, self._facts.resolve)
        library = self._shelf.of_model(request.model)
        check_context(request, library.manifest)
        live = self._deployments.live()
        own = [one.plan for one in live if one.plan.model_id == request.model]
        others = [one for one in live if one.plan.model_id != request.model]
        available = self._facts.available(request)
        agents = self._facts.collect(request, available, others, library.digest, library.manifest)
        demand = _demand(request, library, agents, asked.pipelines, own)
        return await asyncio.to_thread(_plans, demand, asked)

    async def check(self, asked: DeployRequest) -> CheckedPlan:
        """Look at a plan made by hand with the PCs that may be used now; nothing is done. Raises DeployRefused.

        What other models use is taken off. Where the memory is not enough beside the model's own running pipelines,
        a note says that these make room first.
        """
        request = resolved(asked, self._facts.resolve)
        library = self._shelf.of_model(request.model)
        check_context(request, library.manifest)
        live = self._deployments.live()
        own = [one for one in live if one.plan.model_id == request.model]
        others = [one for one in live if one.plan.model_id != request.model]
        available = self._facts.available(request)
        agents = self._facts.collect(request, available, others, library.digest, library.manifest)
        current = self._deployments.plans_of(request.model)
        here = {agent.device_id for agent in agents}
        away = any(stage.device not in here for stages in request.plan for stage in stages)
        names = self._facts.names() if away else NOBODY
        found = await asyncio.to_thread(checked, library, request, agents, current=current, names=names)
        if found.faults or not current:
            return found
        return _with_room(found, agents, own)

    async def what_if(self, question: wire.Question) -> wire.Answers:
        """Say what the fleet could run then, PCs that are away now included. Raises DeployRefused."""
        demands = []
        for library in await self._libraries(question.models):
            context = min(question.context, library.manifest.context_tokens)
            request = DeployRequest(library.manifest.model_id, context=context, streams=question.streams)
            demands.append(_demand(request, library, self._facts.known(request, library.digest), 1, ()))
        moment = Moment(
            unix_s=question.at_s,
            for_s=question.for_s,
            certainty=question.certainty_percent / 100,
            unknown=question.unknown_percent / 100,
        )
        return wire.Answers(await asyncio.to_thread(what_if, demands, moment))

    async def _libraries(self, models: Sequence[str]) -> list[LoadedLibrary]:
        """Return the newest library of each model that can answer people."""
        if models:
            return [self._shelf.of_model(model) for model in dict.fromkeys(models)]
        usable = [one.model_id for one in await self._shelf.list() if not one.problem and one.role == "target"]
        return [self._shelf.of_model(model) for model in dict.fromkeys(usable)]


def _with_room(found: CheckedPlan, agents: Sequence[AgentFacts], own: Sequence[LivePipeline]) -> CheckedPlan:
    """Add where the running pipelines have to make room; `agents` are the PCs as if these were not there."""
    left = {agent.device_id: agent.memory_budget_bytes for agent in agents}
    for device_id, held in ((device_id, held) for live in own for device_id, held in live.held.items()):
        if device_id in left:
            left[device_id] -= held.stage.memory_bytes
    stages = [one.stage for pipeline in found.pipelines for one in pipeline.stages]
    tight = [stage.name for stage in stages if stage.memory_bytes > left.get(stage.device_id, stage.memory_bytes)]
    if not tight:
        return found
    note = (
        f"It does not fit beside what is served now on {names_text(tight)}: that makes room first, and nobody answers"
        " meanwhile."
    )
    return msgspec.structs.replace(found, notes=[*found.notes, note])


def _demand(
    request: DeployRequest,
    library: LoadedLibrary,
    agents: Sequence[AgentFacts],
    pipelines: int,
    current: Sequence[Plan],
) -> Demand:
    return Demand(
        model=ModelFacts.from_manifest(library.manifest, request.numerics),
        agents=agents,
        context_tokens=request.context,
        streams=request.streams,
        pipelines=pipelines,
        stages=request.stages,
        rules=rules_of(request),
        current=tuple(current),
    )


def _plans(demand: Demand, asked: wire.PlanRequest) -> wire.Plans:
    found = plan_fleet([demand])
    model_id = demand.model.model_id
    plans = found.plans[model_id]
    busy = {stage.device_id for made in plans for stage in made.stages}
    pipelines = []
    for made in plans:
        standbys = choose_standbys(
            made,
            demand.model,
            demand.agents,
            count=asked.standbys,
            kind=asked.standby_kind,
            rules=demand.rules,
            busy=busy,
        )
        # Who stands by hot for one pipeline has no memory left for another.
        busy |= {one.device_id for one in standbys} if asked.standby_kind == "hot" else set()
        pipelines.append(wire.PlannedPipeline(made, standbys))
    return wire.Plans(model_id, pipelines, found.reasons, found.missing.get(model_id, ""))
