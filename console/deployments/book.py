"""All deployments: which there are, what the registry keeps of them, and which numbers are taken. Event loop only."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

import msgspec

from agent.stage.types import Epoch, PipelineId
from console.api.admin import types as wire
from console.deployments.entry import Entry, SavedPlan, SavedStage
from console.deployments.live import LivePipeline
from console.deployments.recent import RecentAnswers
from console.deployments.totals import ModelTotals, PlanChange
from console.fleet.hub import Hub
from console.pipeline.ended import EndedAnswer
from console.registry.audit import CONSOLE, Actor
from console.registry.records import Deployment
from console.registry.registry import Registry

log = logging.getLogger(__name__)

FORGET_EVERY_S = 60.0
"""At least so long between two looks for answers that are too old."""


class Book:
    """`entries` are the pipelines by key; `others` hold PCs as well: attempts, and what is being retired."""

    def __init__(self, registry: Registry, hub: Hub) -> None:
        self._registry = registry
        self._hub = hub
        self.entries: dict[str, Entry] = {}
        self.others: list[Entry] = []
        self.recent = RecentAnswers()
        """The answers that ended lately."""
        self._forgetting: asyncio.TimerHandle | None = None
        self.on_answer: Callable[[EndedAnswer], None] | None = None
        """Hears of each, too."""
        self._totals: dict[str, ModelTotals] = {}

    def answered(self, entry: Entry, ended: EndedAnswer) -> None:
        """Remember an answer that one of the pipelines ended. Event loop only."""
        self.recent.take(entry.model, entry.number, ended, time.time())
        if self._forgetting is None:
            self._forget()
        if self.on_answer is not None:
            self.on_answer(ended)

    def close(self) -> None:
        """End what goes on by itself."""
        if self._forgetting is not None:
            self._forgetting.cancel()

    def _forget(self) -> None:
        """Let go of old answers, now and for as long as there are any: it may be that nobody ever asks for them."""
        left_s = self.recent.forget(time.time())
        later = None if left_s is None else max(left_s, FORGET_EVERY_S)
        self._forgetting = None if later is None else asyncio.get_running_loop().call_later(later, self._forget)

    def totals(self) -> dict[str, ModelTotals]:
        """Return the counters of every model that was deployed since the service began."""
        return dict(self._totals)

    def totals_of(self, model_id: str) -> ModelTotals:
        """Return the counters of a model."""
        return self._totals.setdefault(model_id, ModelTotals())

    def all(self) -> list[Entry]:
        """List everything that may use PCs."""
        return [*self.entries.values(), *self.others]

    def live_beside(self, entry: Entry) -> list[LivePipeline]:
        """List what is up of all but one."""
        return [other.live for other in self.all() if other.live is not None and other is not entry]

    def of_model(self, model_id: str) -> list[Entry]:
        """List the pipelines of a model, its first one first."""
        return sorted((one for one in self.entries.values() if one.model == model_id), key=lambda one: one.number)

    def taken(self, entry: Entry) -> set[str]:
        """List the PCs of a model's other pipelines: two on one PC would only share its speed.

        None for an attempt, which is to replace all of them.
        """
        if self.entries.get(entry.key) is not entry:
            return set()
        lives = [other.live for other in self.of_model(entry.model) if other is not entry and other.live is not None]
        return {device_id for live in lives for device_id in (*live.device_ids, *live.held)}

    def read(self) -> list[Entry]:
        """Read what was deployed when the service stopped."""
        found = []
        for saved in self._registry.deployments.list():
            try:
                request = msgspec.convert(saved.settings, wire.DeployRequest)
                plan = msgspec.convert(saved.plan, SavedPlan)
            except msgspec.ValidationError as error:
                log.warning("The saved deployment %s cannot be read and is left alone: %s", saved.name, error)
                continue
            found.append(Entry(request, None, saved.library_digest, plan, saved.epoch, "waiting"))
        return found

    def save(self, entry: Entry, actor: Actor) -> None:
        """Keep a deployment for the next start."""
        settings, plan = msgspec.to_builtins(entry.request), msgspec.to_builtins(entry.plan)
        self._registry.deployments.save(Deployment(entry.key, entry.digest, settings, plan, entry.epoch), actor)

    def forget(self, entry: Entry, actor: Actor) -> None:
        """Do not bring a deployment up at the next start."""
        if any(saved.name == entry.key for saved in self._registry.deployments.list()):
            self._registry.deployments.remove(entry.key, actor)

    def new_epoch(self, entry: Entry, actor: Actor = CONSOLE) -> Epoch:
        """Count on. What is served is saved with its number first, so that none is ever used twice."""
        entry.epoch += 1
        if self.entries.get(entry.key) is entry:
            self.save(entry, actor)
        return Epoch(entry.epoch)

    def settle(self, entry: Entry, live: LivePipeline, actor: Actor, why: PlanChange) -> None:
        """Note who serves a deployment from now on."""
        self.totals_of(entry.model).plans[why] += 1
        former = entry.device_ids()
        stages = [SavedStage(stage.device_id, stage.first, stage.last) for stage in live.plan.stages]
        entry.plan = msgspec.structs.replace(entry.plan, stages=stages)
        if self.entries.get(entry.key) is entry:
            self.save(entry, actor)
        self.say_what_stays([*former, *entry.device_ids(), *live.warm])

    def say_what_stays(self, device_ids: Sequence[str]) -> None:
        """Tell PCs which files plans count on, so that nothing of them makes room for others."""
        for device_id in dict.fromkeys(device_ids):
            self._hub.keep(device_id, [kept for entry in self.all() for kept in entry.kept_by(device_id)])

    def new_pipeline(self) -> PipelineId:
        """Return a number that no PC knows."""
        return PipelineId(1 + max((entry.plan.pipeline for entry in self.all()), default=0))
