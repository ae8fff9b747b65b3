"""One attempt to bring a model up: plan, route, load every stage, compare what they say, send a real token through.

Whatever goes wrong, the attempt takes back what it did and raises an error that names the PC and the cause.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.link.messages import LoadStage, StageProgress
from agent.stage.types import Epoch, PipelineId, StageReport
from console.api.admin import types as wire
from console.drafting import make_drafts
from console.errors import DeployFailed, DeployRefused
from console.fleet.errors import StageLoadFailed
from console.fleet.hub import Hub
from console.libraries import LoadedLibrary
from console.pipeline.coordinator import Coordinator
from console.pipeline.errors import TokenizerUnusable
from console.pipeline.speculation.draft_model import DraftModel
from console.pipeline.tokens import ModelTokenizer
from console.pipeline.types import StageInfo
from console.planner.costs import Costs
from console.planner.ranges import plan
from console.planner.types import AgentFacts, ModelFacts, Plan, PlanImpossible, PlannedStage

log = logging.getLogger(__name__)

Report = Callable[[wire.DeployEvent], None]


@dataclass(frozen=True)
class LivePipeline:
    """A model that answered a probe: its plan, what the stages said, and the coordinator that runs it."""

    pipeline: PipelineId
    epoch: Epoch
    plan: Plan
    reports: list[StageReport]
    coordinator: Coordinator
    probe_ms: float
    read_mb: list[float]
    """Megabytes of weights each stage reads in a decode step, as the planner counts them."""
    draft_model: DraftModel | None = None

    @property
    def device_ids(self) -> list[str]:
        return [stage.device_id for stage in self.plan.stages]


async def take_down(hub: Hub, live: LivePipeline) -> None:
    """End the streams, drop the route and free the PCs that are still there."""
    await live.coordinator.close()
    if live.draft_model is not None:
        await live.draft_model.close()
    await withdraw(hub, live.pipeline, live.device_ids)


async def withdraw(hub: Hub, pipeline: PipelineId, device_ids: Sequence[str]) -> None:
    """Drop a route and unload its stages; PCs that are gone hold nothing."""
    hub.clear_route(pipeline)
    for device_id in device_ids:
        await hub.unload(device_id, pipeline)


class Rollout:
    """One attempt. `report` hears every event but the last one (Ready or Broken), on the event loop.

    `draft` is the library of the draft model that the request names. It is loaded beside the stages and nobody waits
    for it.
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
    ) -> None:
        self._hub = hub
        self._library = library
        self._request = request
        self._pipeline = pipeline
        self._epoch = epoch
        self._report = report
        self._draft = draft
        self._draft_model: DraftModel | None = None

    async def run(self, agents: Sequence[AgentFacts]) -> LivePipeline:
        """Bring the model up on some of `agents`. Raises DeployRefused or DeployFailed; cancelling takes it back."""
        chosen = await self._plan(agents)
        device_ids = [stage.device_id for stage in chosen.stages]
        coordinator: Coordinator | None = None
        self._hub.set_route(self._pipeline, self._epoch, device_ids)
        try:
            reports = await self._load(chosen)
            _check_alike(chosen, reports)
            coordinator = await self._coordinate(chosen, reports)
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
            reports,
            coordinator,
            probe_ms,
            self._read_mb(chosen),
            self._draft_model,
        )

    async def _plan(self, agents: Sequence[AgentFacts]) -> Plan:
        request, manifest = self._request, self._library.manifest
        if request.context > manifest.context_tokens:
            raise DeployRefused(
                f"{request.model} takes at most {manifest.context_tokens} tokens of context, not {request.context}; "
                "ask for less with --context."
            )
        try:
            chosen = await asyncio.to_thread(
                plan,
                ModelFacts.from_manifest(manifest, request.numerics),
                agents,
                context_tokens=request.context,
                streams=request.streams,
                stages=request.stages,
            )
        except PlanImpossible as error:
            raise DeployRefused(str(error)) from None
        stages = [
            wire.PlannedStage(index, stage.device_id, stage.name, stage.first, stage.last)
            for index, stage in enumerate(chosen.stages)
        ]
        self._report(wire.Planned(stages, chosen.reasons, self._epoch))
        return chosen

    def _read_mb(self, chosen: Plan) -> list[float]:
        request = self._request
        model = ModelFacts.from_manifest(self._library.manifest, request.numerics)
        unit = AgentFacts("", "", 0, ms_per_mb=1.0)
        costs = Costs(model, [unit], context_tokens=request.context, streams=request.streams, scratch_bytes=0)
        return [costs.ms(unit, stage.first, stage.last) for stage in chosen.stages]

    async def _load(self, chosen: Plan) -> list[StageReport]:
        """Load all stages at once; the first failure stops the others."""
        tasks: list[asyncio.Task[StageReport]] = []
        failed: list[tuple[PlannedStage, StageLoadFailed]] = []

        async def load(index: int) -> StageReport:
            try:
                return await self._load_stage(chosen, index)
            except StageLoadFailed as error:
                failed.append((chosen.stages[index], error))
                raise

        try:
            async with asyncio.TaskGroup() as group:
                tasks += [group.create_task(load(index)) for index in range(len(chosen.stages))]
        except* StageLoadFailed:
            log.info("The rollout of %s failed at %d stages.", self._request.model, len(failed))
        if failed:
            stage, error = failed[0]
            raise DeployFailed(str(error), code=error.code, device_id=stage.device_id, device_name=stage.name)
        return [task.result() for task in tasks]

    async def _load_stage(self, chosen: Plan, index: int) -> StageReport:
        stage, request = chosen.stages[index], self._request

        def on_progress(progress: StageProgress) -> None:
            self._report(wire.Loading(index, stage.name, progress.phase, progress.done, progress.total))

        message = LoadStage(
            pipeline=self._pipeline,
            epoch=self._epoch,
            stage=index,
            library_digest=self._library.digest,
            first=stage.first,
            last=stage.last,
            engine=stage.engine,
            numerics=request.numerics,
            device=stage.device,
            context_tokens=request.context,
            streams=request.streams,
            cache=request.cache,
            kv_bytes=request.cache_mb << 20,
        )
        report = await self._hub.load(stage.device_id, message, on_progress)
        self._report(
            wire.StageUp(
                index, stage.name, report.engine, report.fused, report.load_ms, report.memory_bytes, report.engine_note
            )
        )
        return report

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
            stages=[
                StageInfo(
                    stage.device_id,
                    stage.name,
                    stage.first,
                    stage.last,
                    report.engine,
                    report.fused,
                    report.engine_note,
                    report.infer_ms,
                )
                for stage, report in zip(chosen.stages, reports, strict=True)
            ],
            tokenizer=tokenizer,
            submit=lambda data: self._hub.submit(self._pipeline, data),
            pipeline=self._pipeline,
            epoch=self._epoch,
            drafts=drafts,
        )
        if self._draft_model is not None:
            self._draft_model.start(coordinator.drafts_ready)
        self._hub.set_frame_handler(lambda _, frame: coordinator.on_frame(frame), self._pipeline)
        return coordinator

    async def _probe(self, coordinator: Coordinator, chosen: Plan) -> float:
        started_s = time.perf_counter()
        readiness = await coordinator.ready()
        if not readiness.ready:
            names = ", ".join(stage.name for stage in chosen.stages)
            reason = readiness.reason or "no answer came back"
            raise DeployFailed(f"A probe token did not come through all stages ({names}): {reason}", code="probe")
        return (time.perf_counter() - started_s) * 1000


def _check_alike(chosen: Plan, reports: Sequence[StageReport]) -> None:
    """Stages with different runtimes may compute differently: refuse them before they answer anybody."""
    for stage, report in zip(chosen.stages, reports, strict=True):
        if report.openvino != reports[0].openvino:
            raise DeployFailed(
                f"{stage.name} runs OpenVINO {report.openvino} and {chosen.stages[0].name} runs "
                f"{reports[0].openvino}; update the older agent.",
                code="mismatch",
                device_id=stage.device_id,
                device_name=stage.name,
            )
