"""The deployed models: which are wanted, which answer, and what becomes of them.

A deployment is `deploying` (a rollout is on its way), `ready` (a token came through), `recovering` (a PC was lost and
others take over), `waiting` (it is down and tried again when PCs come back, with growing pauses) or `failed` (the
admin's attempt failed; forgotten with the next one). Everything runs on the service's event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable

from console.api.admin import types as wire
from console.api.models import ServedModel
from console.deployments.book import Book
from console.deployments.entry import Entry, SavedPlan
from console.deployments.keeper import Keeper
from console.deployments.live import LivePipeline
from console.deployments.performance import BUCKET_S, Performance
from console.deployments.replacing import Replacing
from console.deployments.routed import RoutedModel
from console.deployments.totals import ModelTotals
from console.errors import DeployRefused
from console.facts import FleetFacts
from console.fleet.events import AgentAvailable, AgentJoined, AgentLeaving, AgentLost, AgentYielded, FleetEvent
from console.fleet.hub import Hub
from console.libraries import LibraryShelf
from console.pipeline.ended import EndedAnswer
from console.pipeline.types import Generator
from console.planner.types import Plan
from console.registry.audit import Actor
from console.registry.registry import Registry
from console.standing import resolved

log = logging.getLogger(__name__)


class Deployments:
    """Deploys, keeps up and takes down models. Implements `ModelDirectory`."""

    def __init__(self, registry: Registry, hub: Hub, shelf: LibraryShelf) -> None:
        self._hub = hub
        self._shelf = shelf
        self._performance: dict[str, Performance] = {}
        self._facts = FleetFacts(registry, hub)
        self._book = Book(registry, hub)
        self._keeper = Keeper(hub, shelf, self._facts, self._book)
        self._replacing = Replacing(shelf, self._facts, self._book, self._keeper)

    def restore(self) -> None:
        """Take up what was deployed when the service stopped; each model waits for its PCs."""
        for entry in self._book.read():
            entry.message = "The console was started again; waiting for the PCs to connect."
            self._book.entries[entry.key] = entry
            self._keeper.keep(entry)

    async def close(self) -> None:
        """End all streams and free the PCs; the deployments stay wanted for the next start."""
        await self._replacing.close()
        for entry in self._book.all():
            await self._keeper.stop(entry)
            entry.state, entry.message = "waiting", "The console is stopping."
            await self._keeper.take_down(entry)
        self._book.close()

    # What the API asks

    def served(self) -> list[ServedModel]:
        """List the models that answer or will answer again by themselves."""
        found: dict[str, ServedModel] = {}
        for entry in self._book.entries.values():
            if entry.state in {"ready", "recovering", "waiting"}:
                ready = any(one.is_proven for one in self._book.of_model(entry.model))
                model = ServedModel(entry.model, entry.plan.created_s, entry.request.context, ready)
                found.setdefault(entry.model, model)
        return list(found.values())

    def generator(self, model_id: str) -> Generator:
        """Return what answers for a model. Raises KeyError or ModelUnavailable."""
        if not self._book.of_model(model_id):
            raise KeyError(model_id)
        performance = self._performance.setdefault(model_id, Performance())
        totals = self._book.totals_of(model_id)
        return RoutedModel(model_id, lambda: self._book.of_model(model_id), performance, totals)

    def performances(self) -> wire.Performances:
        """Describe how fast each model answered lately, also one that is not served any more."""
        now_s = time.monotonic()
        self._performance = {model: one for model, one in self._performance.items() if not one.is_over(now_s)}
        return wire.Performances(BUCKET_S, [one.view(model, now_s) for model, one in self._performance.items()])

    def tell_answers(self, listener: Callable[[EndedAnswer], None]) -> None:
        """Let somebody hear of every answer that ends from now on; must not block or raise."""
        self._book.on_answer = listener

    def answer_times(self, order: wire.AnswerOrder, limit: int) -> wire.AnswerTimes:
        """Return the answers that ended lately, and where their time went."""
        return wire.AnswerTimes(self._book.recent.view(order, limit, time.time()))

    def live(self) -> list[LivePipeline]:
        """List what is up."""
        return [entry.live for entry in self._book.all() if entry.live is not None]

    def entries(self) -> list[Entry]:
        """List the pipelines that are wanted, each model and number once."""
        return list(self._book.entries.values())

    def totals(self) -> dict[str, ModelTotals]:
        """Return the counters of every model that was deployed since the service began."""
        return self._book.totals()

    def plans_of(self, model_id: str) -> list[Plan]:
        """List the plans of a model's pipelines that are up, the first one first."""
        return [entry.live.plan for entry in self._book.of_model(model_id) if entry.live is not None]

    def views(self) -> list[wire.PipelineView]:
        """Describe every deployment."""
        return [
            self._replacing.shown(entry, entry.view(self._hub.stage_links(entry.plan.pipeline)))
            for entry in sorted(
                self._book.entries.values(), key=lambda one: (one.plan.created_s, one.model, one.number)
            )
        ]

    async def probe(self, max_age_s: float, wait_s: float) -> list[wire.PipelineView]:
        """Describe every deployment after making sure that each probe is at most `max_age_s` old."""
        up = [entry.live for entry in self._book.entries.values() if entry.live is not None]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await asyncio.gather(*(live.coordinator.ready(max_age_s) for live in up))
        return self.views()

    # What the admin asks

    def deploy(self, request: wire.DeployRequest, actor: Actor) -> AsyncIterator[wire.DeployEvent]:
        """Start a rollout and return its events; the last one is Ready or Broken. Not reading them stops nothing.

        Raises DeployRefused. What is served of the same model is served on until the new one is ready.
        """
        library = self._shelf.of_model(request.model)
        self._replacing.check(request.model)
        request = resolved(request, self._facts.resolve)
        formers = self._book.of_model(request.model)
        plan = SavedPlan(self._book.new_pipeline(), int(time.time()))
        epoch = max((former.epoch for former in formers), default=0)
        entry = Entry(request, library, library.digest, plan, epoch, "deploying", "Being deployed.")
        events: asyncio.Queue[wire.DeployEvent] = asyncio.Queue()
        entry.listeners.append(events)
        self._replacing.begin(entry, formers, actor)
        return _events(events)

    async def undeploy(self, model_id: str, actor: Actor) -> None:
        """Take a model down for good. Raises DeployRefused when it is not deployed."""
        attempt = await self._replacing.cancel(model_id)
        entries = self._book.of_model(model_id)
        if not entries and attempt is None:
            raise DeployRefused(f"{model_id!r} is not deployed; see: fallow-console status")
        for entry in entries:
            self._book.entries.pop(entry.key, None)
        for entry in entries:
            await self._keeper.stop(entry)
            await self._keeper.take_down(entry)
            self._book.forget(entry, actor)

    # What the fleet says

    def on_fleet_event(self, event: FleetEvent) -> None:
        """Hear about PCs that come and go. Never blocks."""
        if isinstance(event, AgentJoined):
            self._book.say_what_stays([event.agent.device_id])
            self._may_be_used(event.agent.device_id)
            return
        if isinstance(event, AgentAvailable):
            self._may_be_used(event.device_id)
            return
        if isinstance(event, AgentLost | AgentYielded | AgentLeaving):
            self._keeper.lose_reserve(event.device_id)
        if isinstance(event, AgentLeaving):
            for entry in self._book.all():
                self._keeper.leave(entry, event.device_id)
            return
        for entry in self._book.all():
            reason = entry.loss_by(event)
            if reason:
                self._keeper.lose(entry, reason, event.device_id)

    def _may_be_used(self, device_id: str) -> None:
        for entry in self._book.all():
            entry.leaving.discard(device_id)
            entry.try_again.set()
            entry.tend_again_s = 0.0


async def _events(queue: asyncio.Queue[wire.DeployEvent]) -> AsyncIterator[wire.DeployEvent]:
    while True:
        event = await queue.get()
        yield event
        if isinstance(event, wire.Ready | wire.Broken):
            return
