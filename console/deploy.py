"""The deployed models: which are wanted, which answer, and what happens when a PC leaves or comes back.

A deployment is `deploying` (a rollout is on its way), `ready` (its last probe came through), `waiting` (it was ready
once; it is tried again when PCs come back, with growing pauses) or `failed` (the admin's attempt failed; forgotten
with the next one). Everything runs on the service's event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence

import msgspec

from agent.stage.types import Epoch, PipelineId
from console.api.admin import types as wire
from console.api.models import ServedModel
from console.deployment import Entry, SavedPlan, SavedStage, broken
from console.drafting import check_draft, draft_library
from console.errors import DeployError, DeployRefused, ModelUnavailable
from console.facts import FleetFacts
from console.fleet.events import AgentAvailable, AgentJoined, FleetEvent
from console.fleet.hub import Hub
from console.libraries import LibraryShelf, LoadedLibrary
from console.pipeline.types import Generator
from console.registry.audit import CONSOLE, Actor
from console.registry.records import Deployment
from console.registry.registry import Registry
from console.rollout import LivePipeline, Rollout, take_down, withdraw

log = logging.getLogger(__name__)

LOST_CHECK_S = 1.0
PROBE_EVERY_S = 15.0
"""An idle model proves itself this often; one that answers people needs no probe."""
SAME_PCS_FIRST_S = 20.0
"""After a loss or a restart the former PCs get this long to come back before others are taken."""
MAX_PAUSE_S = 60.0


class Deployments:
    """Deploys, keeps up and takes down models. Implements `ModelDirectory`."""

    def __init__(self, registry: Registry, hub: Hub, shelf: LibraryShelf) -> None:
        self._registry = registry
        self._hub = hub
        self._shelf = shelf
        self._facts = FleetFacts(registry, hub)
        self._entries: dict[str, Entry] = {}

    def restore(self) -> None:
        """Take up what was deployed when the service stopped; each model waits for its PCs."""
        for saved in self._registry.deployments.list():
            try:
                request = msgspec.convert(saved.settings, wire.DeployRequest)
                plan = msgspec.convert(saved.plan, SavedPlan)
            except msgspec.ValidationError as error:
                log.warning("The saved deployment %s cannot be read and is left alone: %s", saved.name, error)
                continue
            entry = Entry(request, None, saved.library_digest, plan, saved.epoch, "waiting")
            entry.message = "The console was started again; waiting for the PCs to connect."
            self._entries[entry.model] = entry
            self._keep(entry)

    async def close(self) -> None:
        """End all streams and free the PCs; the deployments stay wanted for the next start."""
        entries = list(self._entries.values())
        for entry in entries:
            await self._stop_tasks(entry)
            entry.state, entry.message = "waiting", "The console is stopping."
            entry.tell(wire.Broken("stopping", "The console was stopped during the deployment; start it again."))
            await self._take_down(entry)

    # What the API asks

    def served(self) -> list[ServedModel]:
        """List the models that answer or will answer again by themselves."""
        return [
            ServedModel(entry.model, entry.plan.created_s, entry.request.context)
            for entry in self._entries.values()
            if entry.state in {"ready", "waiting"}
        ]

    def generator(self, model_id: str) -> Generator:
        """Return what answers for a model. Raises KeyError or ModelUnavailable."""
        entry = self._entries[model_id]
        if entry.live is None or entry.lost.is_set():
            raise ModelUnavailable(
                f"The model {model_id!r} cannot answer now ({entry.state}): {entry.message or 'it is being deployed.'}"
            )
        return entry.live.coordinator

    def views(self) -> list[wire.PipelineView]:
        """Describe every deployment."""
        return [entry.view(self._hub.stage_links(entry.plan.pipeline)) for entry in self._entries.values()]

    async def probe(self, max_age_s: float, wait_s: float) -> list[wire.PipelineView]:
        """Describe every deployment after making sure that each probe is at most `max_age_s` old."""
        probes = [entry.live.coordinator.ready(max_age_s) for entry in self._entries.values() if entry.live is not None]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await asyncio.gather(*probes)
        return self.views()

    # What the admin asks

    def deploy(self, request: wire.DeployRequest, actor: Actor) -> AsyncIterator[wire.DeployEvent]:
        """Start a rollout and return its events; the last one is Ready or Broken. Not reading them stops nothing.

        Raises DeployRefused. A deployment of the same model is taken down first.
        """
        library = self._shelf.of_model(request.model)
        former = self._entries.get(request.model)
        if former is not None and former.state == "deploying":
            raise DeployRefused(f"{request.model} is being deployed already; see: fallow-console status")
        devices = self._facts.resolve(request.devices)
        request = msgspec.structs.replace(request, devices=devices)
        entry = self._succeed(former, request, library)
        self._entries[request.model] = entry
        events: asyncio.Queue[wire.DeployEvent] = asyncio.Queue()
        entry.listeners.append(events)
        entry.job = asyncio.create_task(self._deploy(entry, actor), name=f"deploy {request.model}")
        return _events(events)

    async def undeploy(self, model_id: str, actor: Actor) -> None:
        """Take a model down for good. Raises DeployRefused when it is not deployed."""
        entry = self._entries.pop(model_id, None)
        if entry is None:
            raise DeployRefused(f"{model_id!r} is not deployed; see: fallow-console status")
        await self._stop_tasks(entry)
        await self._take_down(entry)
        entry.tell(wire.Broken("undeployed", f"{model_id} was taken down during its deployment."))
        self._forget(entry, actor)
        self._say_what_stays(entry.device_ids())

    # What the fleet says

    def on_fleet_event(self, event: FleetEvent) -> None:
        """Hear about PCs that come and go. Never blocks."""
        if isinstance(event, AgentJoined):
            self._say_what_stays([event.agent.device_id])
        if isinstance(event, AgentJoined | AgentAvailable):
            for entry in self._entries.values():
                entry.try_again.set()
            return
        for entry in self._entries.values():
            reason = entry.loss_by(event)
            if reason:
                self._lose(entry, reason)

    # One deployment

    def _succeed(self, former: Entry | None, request: wire.DeployRequest, library: LoadedLibrary) -> Entry:
        """Make the entry of an attempt; it owns what is still up of the former deployment of the same model.

        A model keeps its pipeline number, so that agents replace its old stage by the new one.
        """
        if former is None:
            plan = SavedPlan(self._new_pipeline(), int(time.time()))
            return Entry(request, library, library.digest, plan, 0, "deploying", "Being deployed.")
        plan = msgspec.structs.replace(former.plan, created_s=int(time.time()))
        entry = Entry(request, library, library.digest, plan, former.epoch, "deploying", "Being deployed.")
        entry.live, entry.keeper = former.live, former.keeper
        former.live = former.keeper = None
        return entry

    async def _deploy(self, entry: Entry, actor: Actor) -> None:
        """Run the admin's attempt; on failure nothing is left of it but the message."""
        last: wire.DeployEvent
        try:
            if entry.keeper is not None:
                entry.keeper.cancel()
                await asyncio.gather(entry.keeper, return_exceptions=True)
                entry.keeper = None
            await self._take_down(entry)
            await check_draft(self._shelf, entry.request)
            await self._roll_out(entry, self._facts.available(entry.request), actor)
        except DeployError as error:
            entry.state, entry.message = "failed", str(error)
            self._forget(entry, actor)
            last = broken(error)
        except Exception:  # the edge of a task nobody awaits: the admin gets an end, the log the cause
            log.exception("The deployment of %s failed unexpectedly.", entry.model)
            entry.state, entry.message = "failed", "The console failed while deploying; its log says why."
            last = wire.Broken("internal_error", entry.message)
        else:
            last = wire.Ready(entry.model, entry.live.probe_ms if entry.live else 0.0)
            self._keep(entry)
        entry.job = None
        entry.tell(last)
        entry.listeners.clear()

    async def _roll_out(self, entry: Entry, agents: Sequence[str], actor: Actor) -> None:
        """Try once on these PCs. The epoch is saved first, so that no number is ever used twice."""
        if entry.library is None:
            entry.library = self._shelf.by_digest(entry.digest)
        entry.epoch += 1
        self._save(entry, actor)
        rollout = Rollout(
            self._hub,
            entry.library,
            entry.request,
            pipeline=entry.plan.pipeline,
            epoch=Epoch(entry.epoch),
            report=entry.tell,
            draft=draft_library(self._shelf, entry.request),
        )
        facts = self._facts.collect(
            entry.request, agents, [other.live for other in self._entries.values() if other.live]
        )
        live = await rollout.run(facts)
        former = entry.device_ids()
        unused = set(former) - set(live.device_ids)
        for device_id in unused:
            await self._hub.unload(device_id, entry.plan.pipeline)
        entry.live, entry.state, entry.message, entry.failures = live, "ready", "", 0
        entry.lost.clear()
        stages = [SavedStage(stage.device_id, stage.first, stage.last) for stage in live.plan.stages]
        entry.plan = msgspec.structs.replace(entry.plan, stages=stages)
        self._save(entry, actor)
        self._say_what_stays([*former, *entry.device_ids()])
        log.info("%s is ready, stages: %d, epoch: %d.", entry.model, len(stages), entry.epoch)

    def _keep(self, entry: Entry) -> None:
        entry.keeper = asyncio.create_task(self._keep_up(entry), name=f"keep {entry.model}")

    async def _keep_up(self, entry: Entry) -> None:
        """Watch a model while it is ready and bring it back while it is not, until cancelled."""
        while True:
            try:
                if entry.live is not None:
                    await self._watch(entry, entry.live)
                    await self._take_down(entry)
                entry.waiting_since_s = time.monotonic()
                while entry.live is None:
                    await self._try_again(entry)
            except Exception:  # the edge of a task nobody awaits: a model must not stay down because of one surprise
                log.exception("Keeping %s up failed unexpectedly; it goes on.", entry.model)
                await asyncio.sleep(MAX_PAUSE_S)

    async def _watch(self, entry: Entry, live: LivePipeline) -> None:
        """Return when the pipeline cannot answer any more."""
        checks = 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOST_CHECK_S):
                    await entry.lost.wait()
            checks += 1
            if checks % int(PROBE_EVERY_S / LOST_CHECK_S) == 0:
                await live.coordinator.ready(PROBE_EVERY_S)
                self._facts.measured(live, entry.request)
            status = live.coordinator.status()
            if entry.lost.is_set() or status.reason:
                self._lose(entry, status.reason)
                return

    async def _try_again(self, entry: Entry) -> None:
        """Wait for PCs, then try once; a failed try makes the next pause longer."""
        pause_s = min(MAX_PAUSE_S, 2.0**entry.failures)
        agents = self._candidates(entry)
        if agents:
            entry.message = f"Being loaded again on {len(agents)} PCs or fewer."
            try:
                await self._roll_out(entry, agents, CONSOLE)
                return
            except DeployError as error:
                entry.failures += 1
                entry.message = f"Not up again yet: {error}"
                log.info("%s is not up again yet: %s", entry.model, error)
            await asyncio.sleep(pause_s)
        entry.try_again.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s if agents else SAME_PCS_FIRST_S):
                await entry.try_again.wait()

    def _candidates(self, entry: Entry) -> list[str]:
        """Choose the former PCs once all are there, else, after a while, whoever is."""
        available = self._facts.available(entry.request)
        former = entry.device_ids()
        if former and set(former) <= set(available):
            return former
        patient = time.monotonic() - entry.waiting_since_s < SAME_PCS_FIRST_S
        return [] if former and patient else available

    def _lose(self, entry: Entry, reason: str) -> None:
        if entry.live is None or entry.lost.is_set():
            return
        log.info("%s cannot answer any more: %s", entry.model, reason)
        entry.live.coordinator.stage_lost(reason)
        entry.state, entry.message = "waiting", reason
        entry.lost.set()

    async def _take_down(self, entry: Entry) -> None:
        if entry.live is not None:
            live, entry.live = entry.live, None
            self._facts.measured(live, entry.request)
            await take_down(self._hub, live)
        elif entry.plan.stages:
            await withdraw(self._hub, entry.plan.pipeline, entry.device_ids())

    async def _stop_tasks(self, entry: Entry) -> None:
        tasks = [task for task in (entry.job, entry.keeper) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _save(self, entry: Entry, actor: Actor) -> None:
        settings, plan = msgspec.to_builtins(entry.request), msgspec.to_builtins(entry.plan)
        self._registry.deployments.save(Deployment(entry.model, entry.digest, settings, plan, entry.epoch), actor)

    def _forget(self, entry: Entry, actor: Actor) -> None:
        if any(saved.name == entry.model for saved in self._registry.deployments.list()):
            self._registry.deployments.remove(entry.model, actor)

    def _say_what_stays(self, device_ids: Sequence[str]) -> None:
        """Tell PCs which files plans count on, so that nothing of them makes room for others."""
        for device_id in dict.fromkeys(device_ids):
            self._hub.keep(device_id, [kept for entry in self._entries.values() for kept in entry.kept_by(device_id)])

    def _new_pipeline(self) -> PipelineId:
        return PipelineId(1 + max((entry.plan.pipeline for entry in self._entries.values()), default=0))


async def _events(queue: asyncio.Queue[wire.DeployEvent]) -> AsyncIterator[wire.DeployEvent]:
    while True:
        event = await queue.get()
        yield event
        if isinstance(event, wire.Ready | wire.Broken):
            return
