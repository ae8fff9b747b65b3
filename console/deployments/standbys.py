"""Keeps PCs in reserve for what is served: hot ones have a stage loaded, warm ones its units on their disk.

One task for each deployment, whenever something is missing. Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence

from agent.link.messages import LayerRange
from agent.logs.about import about
from console.byhand import meant_for_others
from console.deployments.book import Book
from console.deployments.entry import AVOID_S, Entry
from console.deployments.live import LivePipeline
from console.deployments.loading import StageLoads
from console.deployments.succession import moved
from console.facts import FleetFacts
from console.fleet.errors import DeliveryFailed, StageLoadFailed
from console.fleet.hub import Hub
from console.planner.candidates import beside
from console.planner.types import AgentFacts, PlannedStage
from console.standing import rules_of

log = logging.getLogger(__name__)

HAND_OVER_S = 5.0
"""How long standbys may take to get ready while a PC waits to leave."""
AGAIN_S = 5.0
"""How soon it is tried again when there was nobody, or somebody could not."""


class Standbys:
    """One for all deployments of a console."""

    def __init__(self, hub: Hub, facts: FleetFacts, book: Book) -> None:
        self._hub = hub
        self._facts = facts
        self._book = book

    def tend(self, entry: Entry) -> None:
        """Begin to prepare what is missing, if something is and nobody is at it. Never blocks."""
        live = entry.live
        if live is None or entry.state != "ready" or time.monotonic() < entry.tend_again_s:
            return
        if (entry.tending is None or entry.tending.done()) and not _complete(entry, live):
            entry.tend_again_s = time.monotonic() + AGAIN_S
            with about(fresh=True, model=entry.model):
                entry.tending = asyncio.create_task(self._prepare(entry, live), name=f"standbys of {entry.model}")

    async def rest(self, entry: Entry) -> None:
        """Begin nothing more; what is being prepared ends."""
        tending, entry.tending = entry.tending, None
        if tending is not None:
            tending.cancel()
            await asyncio.gather(tending, return_exceptions=True)

    async def hand_over(self, entry: Entry, live: LivePipeline, leaving: Sequence[str]) -> None:
        """Let others get ready for what these PCs serve, until something is lost or for `HAND_OVER_S`. Never raises."""
        lost = asyncio.create_task(entry.lost.wait())
        preparing = asyncio.create_task(self._prepare_for(entry, live, leaving))
        try:
            await asyncio.wait({lost, preparing}, timeout=HAND_OVER_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (lost, preparing):
                task.cancel()
            for problem in await asyncio.gather(lost, preparing, return_exceptions=True):
                if isinstance(problem, Exception):
                    log.error("Handing %s over failed unexpectedly.", entry.model, exc_info=problem)

    async def _prepare_for(self, entry: Entry, live: LivePipeline, leaving: Sequence[str]) -> None:
        """Load what these PCs serve where the units are at hand, if no hot standby has it already."""
        loaded = {(held.stage.first, held.stage.last) for held in live.standbys}
        loads = StageLoads(self._hub, entry.request, live.pipeline, entry.digest)
        warm = [agent for agent in self._spares(entry, live) if agent.device_id in live.warm]
        for index, stage in enumerate(live.plan.stages):
            able = [agent for agent in warm if agent.memory_budget_bytes >= stage.memory_bytes]
            if stage.device_id not in leaving or (stage.first, stage.last) in loaded or not able:
                continue
            try:
                await self._reserve(loads, live, index, stage, able[0])
            except StageLoadFailed as error:
                _pass_by(entry, able[0], error)
            warm.remove(able[0])

    async def _prepare(self, entry: Entry, live: LivePipeline) -> None:
        try:
            await self._trim(entry, live)
            if entry.request.standby == "hot":
                await self._load(entry, live)
            await self._deliver(entry, live)
        except Exception:  # the edge of a task nobody awaits: what is served goes on without
            log.exception("Preparing standbys of %s failed unexpectedly.", entry.model)

    async def _trim(self, entry: Entry, live: LivePipeline) -> None:
        """Let go of what is in reserve for no stage of the plan, or too much."""
        wanted = entry.request.standbys if entry.request.standby == "hot" else 0
        ranges = {(stage.first, stage.last) for stage in live.plan.stages}
        fitting = [held for held in live.standbys if (held.stage.first, held.stage.last) in ranges][:wanted]
        for held in live.standbys:
            if held not in fitting:
                device_id = held.stage.device_id
                del live.held[device_id]
                self._hub.drop_standby(live.pipeline, device_id)
                await self._hub.unload(device_id, live.pipeline)
                self._book.say_what_stays([device_id])

    async def _load(self, entry: Entry, live: LivePipeline) -> None:
        """Load stages in reserve, where fewest PCs could take over first."""
        loads = StageLoads(self._hub, entry.request, live.pipeline, entry.digest)
        failed: set[str] = set()
        while len(live.standbys) < entry.request.standbys:
            index, stage = _least_covered(live)
            spares = [agent for agent in self._spares(entry, live) if agent.device_id not in failed]
            able = [agent for agent in spares if agent.memory_budget_bytes >= stage.memory_bytes]
            if not able:
                return
            try:
                await self._reserve(loads, live, index, stage, able[0])
            except StageLoadFailed as error:
                failed.add(able[0].device_id)
                _pass_by(entry, able[0], error)
            self._book.say_what_stays([able[0].device_id])

    async def _reserve(
        self, loads: StageLoads, live: LivePipeline, index: int, stage: PlannedStage, agent: AgentFacts
    ) -> None:
        """Load a stage of the plan on a PC beside it."""
        self._hub.set_standby(live.pipeline, agent.device_id, live.epoch, index)
        try:
            live.held[agent.device_id] = await loads.one(moved(stage, agent), index, live.epoch)
        except BaseException:
            self._hub.drop_standby(live.pipeline, agent.device_id)
            raise
        log.info("%s is in reserve for layers %d to %d.", agent.name, stage.first, stage.last - 1)

    async def _deliver(self, entry: Entry, live: LivePipeline) -> None:
        """Bring units to the PCs in reserve: all ranges that no stage in reserve covers and that fit into memory."""
        loaded = {(held.stage.first, held.stage.last) for held in live.standbys}
        ranges = [stage for stage in live.plan.stages if (stage.first, stage.last) not in loaded]
        hot = {held.stage.device_id for held in live.standbys}
        chosen = [agent for agent in self._agents(entry, live) if agent.device_id in hot]
        if entry.request.standby == "warm":
            least_bytes = min((stage.memory_bytes for stage in ranges), default=0)
            able = [agent for agent in self._spares(entry, live) if agent.memory_budget_bytes >= least_bytes]
            chosen = able[: entry.request.standbys]
        for agent in chosen:
            fitting = [stage for stage in ranges if agent.memory_budget_bytes >= stage.memory_bytes]
            wanted = [LayerRange(entry.digest, stage.first, stage.last) for stage in fitting]
            if live.warm.get(agent.device_id, []) == wanted:
                continue
            try:
                for layers in wanted:
                    await self._hub.deliver(agent.device_id, layers)
            except DeliveryFailed as error:
                _pass_by(entry, agent, error)
                continue
            if agent.device_id not in self._facts.available(entry.request):
                continue  # it left meanwhile
            live.names[agent.device_id] = agent.name
            live.warm[agent.device_id] = wanted
            self._book.say_what_stays([agent.device_id])
        for device_id in set(live.warm) - {agent.device_id for agent in chosen}:
            del live.warm[device_id]
            self._book.say_what_stays([device_id])

    def _agents(self, entry: Entry, live: LivePipeline) -> list[AgentFacts]:
        available = self._facts.available(entry.request, self._book.taken(entry))
        manifest = None if entry.library is None else entry.library.manifest
        others = self._book.live_beside(entry)
        agents = self._facts.collect(entry.request, available, others, entry.digest, manifest)
        return beside(agents, live.plan.stages, rules_of(entry.request))

    def _spares(self, entry: Entry, live: LivePipeline) -> list[AgentFacts]:
        """List the PCs that do nothing for this model: those with its units first, then the fastest.

        Those that failed lately come last.
        """
        now_s = time.monotonic()

        def order(agent: AgentFacts) -> tuple[bool, bool, float, str]:
            speed = agent.ms_per_mb if agent.ms_per_mb is not None else float("inf")
            failed = entry.passed_by.get(agent.device_id, now_s) > now_s
            return failed, agent.device_id not in live.warm, speed, agent.device_id

        busy = {*live.device_ids, *live.held, *meant_for_others(entry.request, entry.number)}
        return sorted((agent for agent in self._agents(entry, live) if agent.device_id not in busy), key=order)


def _pass_by(entry: Entry, agent: AgentFacts, error: StageLoadFailed | DeliveryFailed) -> None:
    """Let others come before a PC that could not get ready."""
    log.info("%s is no standby of %s now: %s", agent.name, entry.model, error)
    entry.passed_by[agent.device_id] = time.monotonic() + AVOID_S


def _least_covered(live: LivePipeline) -> tuple[int, PlannedStage]:
    covers = Counter((held.stage.first, held.stage.last) for held in live.standbys)
    stages: Sequence[PlannedStage] = live.plan.stages
    # The tail first among equals: it has the head besides its layers, so it takes longest to load.
    return min(enumerate(stages), key=lambda one: (covers[(one[1].first, one[1].last)], -one[0]))


def _complete(entry: Entry, live: LivePipeline) -> bool:
    """Whether nothing is missing and nothing too much."""
    wanted, kind = entry.request.standbys, entry.request.standby
    ranges = {(stage.first, stage.last) for stage in live.plan.stages}
    # Of a PC with less memory some ranges are enough, but none of a former plan.
    fresh = all((one.first, one.last) in ranges for layers in live.warm.values() for one in layers)
    if kind == "warm":
        return not live.standbys and len(live.warm) == wanted and fresh
    held = {(one.stage.first, one.stage.last) for one in live.standbys}
    covered = held == ranges or (bool(live.warm) and fresh) or not wanted
    return len(live.standbys) == wanted and held <= ranges and covered
