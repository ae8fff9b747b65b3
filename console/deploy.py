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
from dataclasses import dataclass, field

import msgspec

from agent.stage.types import Epoch, PipelineId
from console.api.admin import types as wire
from console.api.models import ServedModel
from console.errors import DeployError, DeployFailed, DeployRefused, ModelUnavailable
from console.facts import FleetFacts
from console.fleet.events import AgentJoined, AgentLost, FleetEvent, StageDied
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
FRESH_S = 4 * PROBE_EVERY_S
SAME_PCS_FIRST_S = 20.0
"""After a loss or a restart the former PCs get this long to come back before others are taken."""
MAX_PAUSE_S = 60.0


class SavedStage(msgspec.Struct, frozen=True):
    """What the registry remembers of a planned stage."""

    device_id: str
    first: int
    last: int


class SavedPlan(msgspec.Struct, frozen=True):
    """What the registry remembers of a deployment beside the request."""

    pipeline: PipelineId
    created_s: int
    stages: list[SavedStage] = []


@dataclass(eq=False)
class _Entry:
    """One deployment. `live` is set exactly while it can answer."""

    request: wire.DeployRequest
    library: LoadedLibrary | None
    digest: str
    plan: SavedPlan
    epoch: int
    state: wire.DeploymentState
    message: str = ""
    live: LivePipeline | None = None
    job: asyncio.Task[None] | None = None
    keeper: asyncio.Task[None] | None = None
    listeners: list[asyncio.Queue[wire.DeployEvent]] = field(default_factory=list)
    waiting_since_s: float = 0.0
    failures: int = 0
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    try_again: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def model(self) -> str:
        return self.request.model

    def tell(self, event: wire.DeployEvent) -> None:
        for listener in self.listeners:
            listener.put_nowait(event)

    def device_ids(self) -> list[str]:
        return [stage.device_id for stage in self.plan.stages]


class Deployments:
    """Deploys, keeps up and takes down models. Implements `ModelDirectory`."""

    def __init__(self, registry: Registry, hub: Hub, shelf: LibraryShelf) -> None:
        self._registry = registry
        self._hub = hub
        self._shelf = shelf
        self._facts = FleetFacts(registry, hub)
        self._entries: dict[str, _Entry] = {}

    def restore(self) -> None:
        """Take up what was deployed when the service stopped; each model waits for its PCs."""
        for saved in self._registry.deployments.list():
            try:
                request = msgspec.convert(saved.settings, wire.DeployRequest)
                plan = msgspec.convert(saved.plan, SavedPlan)
            except msgspec.ValidationError as error:
                log.warning("The saved deployment %s cannot be read and is left alone: %s", saved.name, error)
                continue
            entry = _Entry(request, None, saved.library_digest, plan, saved.epoch, "waiting")
            entry.message = "The console was started again; waiting for the PCs to connect."
            self._entries[entry.model] = entry
            self._keep(entry)

    async def close(self) -> None:
        """End all streams and free the PCs; the deployments stay wanted for the next start."""
        entries = list(self._entries.values())
        for entry in entries:
            await self._stop_tasks(entry)
            entry.state, entry.message = "waiting", "The console is stopping."
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
        return [self._view(entry) for entry in self._entries.values()]

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
        plan = SavedPlan(self._pipeline_of(former), int(time.time()))
        entry = _Entry(request, library, library.digest, plan, former.epoch if former else 0, "deploying")
        entry.message = "Being deployed."
        self._entries[request.model] = entry
        events: asyncio.Queue[wire.DeployEvent] = asyncio.Queue()
        entry.listeners.append(events)
        entry.job = asyncio.create_task(self._deploy(entry, former, actor), name=f"deploy {request.model}")
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

    # What the fleet says

    def on_fleet_event(self, event: FleetEvent) -> None:
        """Hear about PCs that come and go. Never blocks."""
        if isinstance(event, AgentJoined):
            self._facts.joined(event.agent)
            for entry in self._entries.values():
                entry.try_again.set()
            return
        name = self._facts.name(event.device_id)
        for entry in self._entries.values():
            if isinstance(event, AgentLost) and entry.live and event.device_id in entry.live.device_ids:
                self._lose(entry, f"{name} left: {event.reason}.")
            elif isinstance(event, StageDied) and event.pipeline == entry.plan.pipeline and event.epoch == entry.epoch:
                self._lose(entry, f"The stage on {name} ended: {event.cause}")

    # One deployment

    async def _deploy(self, entry: _Entry, former: _Entry | None, actor: Actor) -> None:
        """Run the admin's attempt; on failure nothing is left of it but the message."""
        last: wire.DeployEvent
        try:
            if former is not None:
                await self._stop_tasks(former)
                await self._take_down(former)
            await self._roll_out(entry, self._facts.available(entry.request), actor)
        except DeployError as error:
            entry.state, entry.message = "failed", str(error)
            self._forget(entry, actor)
            last = _broken(error)
        except Exception:
            log.exception("The deployment of %s failed unexpectedly.", entry.model)
            entry.state, entry.message = "failed", "The console failed while deploying; its log says why."
            last = wire.Broken("internal_error", entry.message)
        else:
            last = wire.Ready(entry.model, entry.live.probe_ms if entry.live else 0.0)
            self._keep(entry)
        entry.job = None
        entry.tell(last)

    async def _roll_out(self, entry: _Entry, agents: Sequence[str], actor: Actor) -> None:
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
        )
        facts = self._facts.collect(
            entry.request, agents, [other.live for other in self._entries.values() if other.live]
        )
        live = await rollout.run(facts)
        unused = set(entry.device_ids()) - set(live.device_ids)
        for device_id in unused:
            await self._hub.unload(device_id, entry.plan.pipeline)
        entry.live, entry.state, entry.message, entry.failures = live, "ready", "", 0
        entry.lost.clear()
        stages = [SavedStage(stage.device_id, stage.first, stage.last) for stage in live.plan.stages]
        entry.plan = msgspec.structs.replace(entry.plan, stages=stages)
        self._save(entry, actor)
        log.info("%s is ready on %d stages, epoch %d.", entry.model, len(stages), entry.epoch)

    def _keep(self, entry: _Entry) -> None:
        entry.keeper = asyncio.create_task(self._keep_up(entry), name=f"keep {entry.model}")

    async def _keep_up(self, entry: _Entry) -> None:
        """Watch a model while it is ready and bring it back while it is not, until cancelled."""
        while True:
            if entry.live is not None:
                await self._watch(entry, entry.live)
                await self._take_down(entry)
            entry.waiting_since_s = time.monotonic()
            while entry.live is None:
                await self._try_again(entry)

    async def _watch(self, entry: _Entry, live: LivePipeline) -> None:
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

    async def _try_again(self, entry: _Entry) -> None:
        """Wait for PCs, then try once; a failed try makes the next pause longer."""
        pause_s = min(MAX_PAUSE_S, 2.0**entry.failures)
        agents = self._candidates(entry)
        if agents:
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

    def _candidates(self, entry: _Entry) -> list[str]:
        """Choose the former PCs once all are there, else, after a while, whoever is."""
        available = self._facts.available(entry.request)
        former = entry.device_ids()
        if former and set(former) <= set(available):
            return former
        patient = time.monotonic() - entry.waiting_since_s < SAME_PCS_FIRST_S
        return [] if former and patient else available

    def _lose(self, entry: _Entry, reason: str) -> None:
        if entry.live is None or entry.lost.is_set():
            return
        log.info("%s cannot answer any more: %s", entry.model, reason)
        entry.live.coordinator.stage_lost(reason)
        entry.state, entry.message = "waiting", reason
        entry.lost.set()

    async def _take_down(self, entry: _Entry) -> None:
        if entry.live is not None:
            live, entry.live = entry.live, None
            self._facts.measured(live, entry.request)
            await take_down(self._hub, live)
        elif entry.plan.stages:
            await withdraw(self._hub, entry.plan.pipeline, entry.device_ids())

    async def _stop_tasks(self, entry: _Entry) -> None:
        tasks = [task for task in (entry.job, entry.keeper) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _save(self, entry: _Entry, actor: Actor) -> None:
        settings, plan = msgspec.to_builtins(entry.request), msgspec.to_builtins(entry.plan)
        self._registry.deployments.save(Deployment(entry.model, entry.digest, settings, plan, entry.epoch), actor)

    def _forget(self, entry: _Entry, actor: Actor) -> None:
        if any(saved.name == entry.model for saved in self._registry.deployments.list()):
            self._registry.deployments.remove(entry.model, actor)

    def _pipeline_of(self, former: _Entry | None) -> PipelineId:
        """Keep a model's number over its deployments, so that agents replace its old stage by the new one."""
        if former is not None:
            return former.plan.pipeline
        return PipelineId(1 + max((entry.plan.pipeline for entry in self._entries.values()), default=0))

    def _view(self, entry: _Entry) -> wire.PipelineView:
        view = wire.PipelineView(
            entry.model, entry.state, entry.message, entry.epoch, wire.Probe(message=entry.message), entry.request
        )
        if entry.live is None:
            return view
        status = entry.live.coordinator.status()
        age_s = status.last_token_age_s if status.last_token_age_s >= 0 else None
        fresh = status.ready and age_s is not None and age_s <= FRESH_S
        return msgspec.structs.replace(
            view,
            probe=wire.Probe(fresh, age_s, entry.live.probe_ms, status.reason or ("" if fresh else "No fresh token.")),
            stages=status.stages,
            tokens_per_second=status.tokens_per_second,
            overhead_ms=status.overhead_ms_per_hop,
            running=status.streams_running,
            queued=status.streams_waiting,
        )


async def _events(queue: asyncio.Queue[wire.DeployEvent]) -> AsyncIterator[wire.DeployEvent]:
    while True:
        event = await queue.get()
        yield event
        if isinstance(event, wire.Ready | wire.Broken):
            return


def _broken(error: DeployError) -> wire.Broken:
    if isinstance(error, DeployFailed):
        return wire.Broken(error.code, str(error), error.device_id, error.device_name)
    return wire.Broken("refused", str(error))
