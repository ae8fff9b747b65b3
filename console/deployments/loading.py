"""Gets stages onto PCs: loads those that are not there, and lets those that are go on in another epoch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from agent.link.stage_messages import AdvanceEpoch, LoadStage, StageProgress
from agent.stage.types import Epoch, Numerics, PipelineId
from console.api.admin import types as wire
from console.deployments.live import Held
from console.errors import DeployFailed
from console.fleet.errors import StageLoadFailed
from console.fleet.hub import Hub
from console.planner.types import PlannedStage
from shard_export.library.counts import counted

log = logging.getLogger(__name__)

Report = Callable[[wire.DeployEvent], None]


class StageLoads:
    """Loads stages of one pipeline as its request wants them; `report` hears how far they are."""

    def __init__(
        self, hub: Hub, request: wire.DeployRequest, pipeline: PipelineId, digest: str, report: Report = lambda _: None
    ) -> None:
        self._hub = hub
        self._request = request
        self._pipeline = pipeline
        self._digest = digest
        self._report = report

    async def all(self, stages: Sequence[PlannedStage], epoch: Epoch) -> list[Held]:
        """Load all stages, each as it gets there; the first failure stops the others.

        Raises DeployFailed, which names the PC.
        """
        tasks: list[asyncio.Task[Held]] = []
        failed: list[tuple[PlannedStage, StageLoadFailed]] = []

        async def bring(index: int) -> Held:
            try:
                return await self.one(stages[index], index, epoch)
            except StageLoadFailed as error:
                failed.append((stages[index], error))
                raise

        try:
            async with asyncio.TaskGroup() as group:
                tasks += [group.create_task(bring(index)) for index in range(len(stages))]
        except* StageLoadFailed:
            log.info("%s of %s did not come up.", counted(len(failed), "stage"), self._request.model)
        if failed:
            stage, error = failed[0]
            raise DeployFailed(str(error), code=error.code, device_id=stage.device_id, device_name=stage.name)
        return [task.result() for task in tasks]

    async def one(self, stage: PlannedStage, index: int, epoch: Epoch, held: Held | None = None) -> Held:
        """Have one stage up in an epoch. Raises StageLoadFailed."""
        if held is not None and held.is_of(stage) and self._hub.advances(stage.device_id):
            order = AdvanceEpoch(self._pipeline, held.epoch, epoch, index)
            return Held(stage, epoch, await self._hub.advance(stage.device_id, order))
        return await self._load(stage, index, epoch)

    async def _load(self, stage: PlannedStage, index: int, epoch: Epoch) -> Held:
        request = self._request

        def on_progress(progress: StageProgress) -> None:
            self._report(wire.Loading(index, stage.name, progress.phase, progress.done, progress.total))

        message = LoadStage(
            pipeline=self._pipeline,
            epoch=epoch,
            stage=index,
            library_digest=self._digest,
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
        return Held(stage, epoch, report)


def check_alike(held: Sequence[Held], numerics: Numerics) -> str:
    """Compare the stages' runtimes, which may compute differently: a sentence about the first that differs, else empty.

    In `exact` numerics that is refused: raises DeployFailed.
    """
    for one in held:
        if one.report.openvino != held[0].report.openvino:
            said = (
                f"{one.stage.name} runs OpenVINO {one.report.openvino} and {held[0].stage.name} runs "
                f"{held[0].report.openvino}"
            )
            if numerics == "exact":
                raise DeployFailed(
                    f"{said}, which may compute differently and cannot be exact together; update the older agent.",
                    code="mismatch",
                    device_id=one.stage.device_id,
                    device_name=one.stage.name,
                )
            return f"{said}: an answer that moves to other PCs may go on in other words; update the older agent."
    return ""
