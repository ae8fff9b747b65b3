"""One attempt to bring a model up: plan, route, load every stage, compare what they say, send a real token through.

Whatever goes wrong, the attempt takes back what it did and raises an error that names the PC and the cause.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from agent.stage.types import Epoch, PipelineId, StageReport
from console.api.admin import types as wire
from console.byhand import made_by_hand
from console.deployments.live import LivePipeline, infos_of, withdraw
from console.deployments.loading import Report, StageLoads, check_alike
from console.drafting import make_drafts
from console.errors import DeployFailed, DeployRefused
from console.fleet.hub import Hub
from console.libraries import LoadedLibrary
from console.pipeline.coordinator import Coordinator
from console.pipeline.errors import TokenizerUnusable
from console.pipeline.speculation.draft_model import DraftModel
from console.pipeline.tokens import ModelTokenizer
from console.planner.costs import Costs
from console.planner.ranges import plan
from console.planner.types import AgentFacts, ModelFacts, Plan, PlanImpossible
from console.standing import rules_of
from shard_export.library.manifest import Manifest


class Rollout:
    """One attempt. `report` hears every event but the last one (Ready or Broken), on the event loop.

    `draft` is the library of the draft model that the request names. It is loaded beside the stages and nobody waits
    for it. `number` is which of the model's pipelines it is, from 0.
    """

    def __init__(
        self,
        hub: Hub,
        library: LoadedLibrary,
        request: wire.DeployRequest,
        *,
        pipeline: PipelineId,
        epoch: Epoch,
        report: Report,
        draft: LoadedLibrary | None = None,
        number: int = 0,
    ) -> None:
        self._hub = hub
        self._library = library
        self._request = request
        self._pipeline = pipeline
        self._epoch = epoch
        self._report = report
        self._draft = draft
        self._number = number
        self._draft_model: DraftModel | None = None

    async def run(self, agents: Sequence[AgentFacts]) -> LivePipeline:
        """Bring the model up on some of `agents`. Raises DeployRefused or DeployFailed; cancelling takes it back."""
        chosen = await self._plan(agents)
        device_ids = [stage.device_id for stage in chosen.stages]
        coordinator: Coordinator | None = None
        self._hub.set_route(self._pipeline, self._epoch, device_ids)
        try:
            loads = StageLoads(self._hub, self._request, self._pipeline, self._library.digest, self._report)
            held = await loads.all(chosen.stages, self._epoch)
            remark = check_alike(held, self._request.numerics)
            if remark:
                self._report(wire.Note(remark))
            coordinator = await self._coordinate(chosen, [one.report for one in held])
            probe_ms = await self._probe(coordinator, chosen)
        except BaseException:
            if coordinator is not None:
                await coordinator.close()
            if self._draft_model is not None:
                await self._draft_model.close()
            await withdraw(self._hub, self._pipeline, device_ids)
            raise
        return LivePipeline(
            self._pipeline,
            self._epoch,
            chosen,
            {one.stage.device_id: one for one in held},
            coordinator,
            probe_ms,
            read_mb(self._library, self._request, chosen),
            self._draft_model,
            remark=remark,
        )

    async def _plan(self, agents: Sequence[AgentFacts]) -> Plan:
        chosen = await make_plan(self._library, self._request, agents, number=self._number)
        self._report(planned(chosen, self._epoch))
        return chosen

    async def _coordinate(self, chosen: Plan, reports: Sequence[StageReport]) -> Coordinator:
        try:
            tokenizer = await asyncio.to_thread(ModelTokenizer.load, self._library.folder, self._library.manifest)
        except TokenizerUnusable as error:
            raise DeployRefused(str(error)) from None
        drafts, self._draft_model = make_drafts(self._request, self._draft, tokenizer, self._pipeline, self._epoch)
        coordinator = Coordinator(
            model_id=self._request.model,
            context_tokens=self._request.context,
            kv_tokens=min(report.kv_tokens for report in reports),
            streams=self._request.streams,
            stages=infos_of(chosen, reports),
            tokenizer=tokenizer,
            submit=lambda data: self._hub.submit(self._pipeline, data),
            pipeline=self._pipeline,
            epoch=self._epoch,
            drafts=drafts,
        )
        if self._draft_model is not None:
            self._draft_model.start(coordinator.drafts_ready)
        self._hub.set_frame_handler(lambda _, frame: coordinator.on_frame(frame), self._pipeline)
        self._hub.set_pass_handler(coordinator.on_pass, self._pipeline)
        return coordinator

    async def _probe(self, coordinator: Coordinator, chosen: Plan) -> float:
        started_s = time.perf_counter()
        readiness = await coordinator.ready()
        if not readiness.ready:
            names = ", ".join(stage.name for stage in chosen.stages)
            reason = readiness.reason or "no answer came back"
            raise DeployFailed(f"A probe token did not come through all stages ({names}): {reason}", code="probe")
        return (time.perf_counter() - started_s) * 1000


async def make_plan(
    library: LoadedLibrary,
    request: wire.DeployRequest,
    agents: Sequence[AgentFacts],
    current: Plan | None = None,
    *,
    number: int = 0,
) -> Plan:
    """Plan a model on some PCs: as the request says pipeline `number` is to be, or as near to `current` as is good.

    Raises DeployRefused as the planner says.
    """
    manifest = library.manifest
    check_context(request, manifest)
    if request.plan:
        return made_by_hand(library, request, agents, number)
    try:
        return await asyncio.to_thread(
            plan,
            ModelFacts.from_manifest(manifest, request.numerics),
            agents,
            context_tokens=request.context,
            streams=request.streams,
            stages=request.stages,
            rules=rules_of(request),
            current=current,
        )
    except PlanImpossible as error:
        raise DeployRefused(str(error)) from None


def check_context(request: wire.DeployRequest, manifest: Manifest) -> None:
    """Raise DeployRefused for more context than the model has."""
    if request.context > manifest.context_tokens:
        raise DeployRefused(
            f"{request.model} takes at most {manifest.context_tokens} tokens of context, not {request.context}; "
            "ask for less with --context."
        )


def planned(chosen: Plan, epoch: Epoch) -> wire.Planned:
    """Say a plan to whoever follows the rollout."""
    stages = [
        wire.PlannedStage(index, stage.device_id, stage.name, stage.first, stage.last)
        for index, stage in enumerate(chosen.stages)
    ]
    return wire.Planned(stages, chosen.reasons, epoch)


def read_mb(library: LoadedLibrary, request: wire.DeployRequest, chosen: Plan) -> list[float]:
    """Count the megabytes of weights that each stage reads in a decode step, as the planner does."""
    model = ModelFacts.from_manifest(library.manifest, request.numerics)
    unit = AgentFacts("", "", 0, ms_per_mb=1.0)
    costs = Costs(model, [unit], context_tokens=request.context, streams=request.streams, scratch_bytes=0)
    return [costs.ms(unit, stage.first, stage.last) for stage in chosen.stages]
