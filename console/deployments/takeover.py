"""One attempt to go on after a loss: others take the lost ranges over, what is still there stays, the answers resume.

What an attempt achieved is not taken back when it fails: the next one goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

import msgspec

from agent.stage.types import Epoch
from console.api.admin import types as wire
from console.byhand import left_to_the_planner
from console.deployments.live import Held, LivePipeline, infos_of
from console.deployments.loading import StageLoads, check_alike
from console.deployments.rollout import make_plan, read_mb
from console.deployments.succession import succeed
from console.errors import DeployFailed, DeployRefused
from console.fleet.errors import StageLoadFailed
from console.fleet.hub import Hub
from console.libraries import LoadedLibrary
from console.planner.candidates import beside
from console.planner.types import AgentFacts, Plan, PlannedStage
from console.standing import rules_of

log = logging.getLogger(__name__)


class Takeover:
    """Brings a pipeline's lost stages up elsewhere. `new_epoch` counts on, and saves the number first."""

    def __init__(
        self,
        hub: Hub,
        library: LoadedLibrary,
        request: wire.DeployRequest,
        live: LivePipeline,
        new_epoch: Callable[[], Epoch],
    ) -> None:
        self._hub = hub
        self._library = library
        self._request = request
        self._live = live
        self._new_epoch = new_epoch

    async def run(self, agents: Sequence[AgentFacts], avoid: Collection[str] = ()) -> None:
        """Have every stage up on some of `agents` and let the answers go on. Raises DeployRefused or DeployFailed.

        Cancelling ends what was being loaded.
        """
        live = self._live
        lost, live.lost = live.lost, set()
        chosen = await self._choose(agents, avoid, lost)
        device_ids = [stage.device_id for stage in chosen.stages]
        epoch = self._new_epoch()
        self._hub.set_route(live.pipeline, epoch, device_ids)
        for device_id in device_ids:
            self._hub.drop_standby(live.pipeline, device_id)
        stayed = set(live.device_ids) & set(live.held)
        held = await self._bring(chosen, epoch)
        await self._compare(held, stayed)
        former = set(live.device_ids) - set(device_ids) - set(live.held)
        live.plan, live.epoch = chosen, epoch
        for device_id in device_ids:
            live.warm.pop(device_id, None)  # who serves is in reserve no more
        live.read_mb = read_mb(self._library, self._request, chosen)
        live.coordinator.resume(
            stages=infos_of(chosen, [one.report for one in held]),
            epoch=epoch,
            kv_tokens=min(one.report.kv_tokens for one in held),
        )
        for device_id in former:
            await self._hub.unload(device_id, live.pipeline)

    async def _compare(self, held: Sequence[Held], stayed: Collection[str]) -> None:
        """Have the runtimes compared: those that stayed are the measure, who is new is let go."""
        live = self._live
        try:
            stayed_first = sorted(held, key=lambda one: one.stage.device_id not in stayed)
            live.remark = check_alike(stayed_first, self._request.numerics)
        except DeployFailed as error:
            live.held.pop(error.device_id, None)
            await self._hub.unload(error.device_id, live.pipeline)
            raise

    async def _choose(self, agents: Sequence[AgentFacts], avoid: Collection[str], lost: Collection[str]) -> Plan:
        """Keep the ranges where somebody takes them over, else plan anew with whoever is there."""
        live = self._live
        near = beside(agents, live.plan.stages, rules_of(self._request))
        stages = succeed(live.plan.stages, live.held, near, self._has_units, avoid=avoid, lost=lost)
        if stages is not None:
            return msgspec.structs.replace(live.plan, stages=stages)
        wanted = [agent for agent in agents if agent.device_id not in avoid] or agents
        request = left_to_the_planner(self._request)
        try:
            return await make_plan(self._library, request, wanted, live.plan)
        except DeployRefused:
            if request.stages is None:
                raise
            # An answer on fewer PCs than were asked for is better than none.
            fewer = msgspec.structs.replace(request, stages=None)
            return await make_plan(self._library, fewer, wanted, live.plan)

    def _has_units(self, device_id: str, first: int, last: int) -> bool:
        units = self._library.manifest.units_of_range(first, last)
        return self._hub.has_files(device_id, [record.sha256 for unit in units for record in (unit.xml, unit.bin)])

    async def _bring(self, chosen: Plan, epoch: Epoch) -> list[Held]:
        """Have all stages up; those that come up stay up, even if another one fails."""
        live = self._live
        loads = StageLoads(self._hub, self._request, live.pipeline, self._library.digest)
        failed: list[tuple[PlannedStage, StageLoadFailed]] = []

        async def bring(index: int, stage: PlannedStage) -> None:
            try:
                held = await loads.one(stage, index, epoch, live.held.get(stage.device_id))
            except StageLoadFailed as error:
                live.held.pop(stage.device_id, None)
                failed.append((stage, error))
            else:
                if stage.device_id not in live.lost:
                    live.held[stage.device_id] = held

        async with asyncio.TaskGroup() as group:
            for index, stage in enumerate(chosen.stages):
                group.create_task(bring(index, stage))
        if failed:
            stage, error = failed[0]
            raise DeployFailed(str(error), code=error.code, device_id=stage.device_id, device_name=stage.name)
        for stage in chosen.stages:
            if stage.device_id not in live.held:
                raise DeployFailed(
                    f"{stage.name} left while it took over.", code="gone", device_id=stage.device_id,
                    device_name=stage.name,
                )  # fmt: skip
        return [live.held[stage.device_id] for stage in chosen.stages]
