"""Deliveries under way: they go on whether anybody watches or not, and after a restart of the console.

What each PC has is in the registry as soon as it has it, and what a PC has of a file is on its own disk; so a delivery
that was cut off anywhere goes on exactly there. A PC that is away gets some time to come back before it counts as one
that failed. Everything runs on the service's event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from sqlalchemy.exc import SQLAlchemyError

from agent.link.messages import LayerRange
from console.api.admin import types as wire
from console.errors import DeployRefused
from console.facts import FleetFacts
from console.fleet.delivery import Delivered, DeliveryEnded, DeliveryEvent, deliver_in_rings
from console.fleet.errors import DeliveryFailed
from console.fleet.events import AgentJoined, FleetEvent
from console.fleet.hub import Hub
from console.fleet.orders import DELIVERY_S
from console.libraries import LibraryShelf
from console.registry.audit import CONSOLE, Actor
from console.registry.records import DeliveryRecord
from console.registry.registry import Registry
from shard_export.library.counts import counted

log = logging.getLogger(__name__)

ABSENT_S = 120.0
"""How long a PC may be away; after a restart of the console agents are back within a minute."""
CUTS = 20
"""So often may a PC leave in the middle of one delivery."""


@dataclass
class _Job:
    record: DeliveryRecord
    events: list[DeliveryEvent] = field(default_factory=list)
    listeners: list[asyncio.Queue[DeliveryEvent]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    unwritten: dict[str, str] = field(default_factory=dict)
    """What the registry could not take yet of `record.done`."""

    @property
    def layers(self) -> LayerRange:
        return LayerRange(self.record.library_digest, self.record.first, self.record.last)

    def tell(self, event: DeliveryEvent) -> None:
        self.events.append(event)
        for listener in self.listeners:
            listener.put_nowait(event)


class DeliveryJobs:
    """Starts, continues, ends and describes deliveries."""

    def __init__(self, registry: Registry, hub: Hub, shelf: LibraryShelf, *, absent_s: float = ABSENT_S) -> None:
        self._registry = registry
        self._hub = hub
        self._shelf = shelf
        self._facts = FleetFacts(registry, hub)
        self._absent_s = absent_s
        self._jobs: dict[str, _Job] = {}
        self._joined: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        shelf.ask_before_removing(self._user_of)

    def restore(self) -> None:
        """Go on with what was not over when the service stopped."""
        for record in self._registry.deliveries.unfinished():
            log.info(
                "The delivery of %s goes on: %d of %s.",
                record.model_id,
                len(record.done),
                counted(len(record.devices), "PC"),
            )
            self._start(record)

    async def close(self) -> None:
        """Stop working; the next start goes on."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for job in self._jobs.values():
            delivered, failed = _counts(job.record)
            job.tell(
                DeliveryEnded(delivered, failed, "The console stops; the delivery goes on when it is started again.")
            )
        self._jobs.clear()

    def begin(self, request: wire.DeliveryRequest, actor: Actor) -> AsyncIterator[DeliveryEvent]:
        """Start a delivery, or follow it if it is under way already; return its events. Raises DeployRefused."""
        library = self._shelf.of_model(request.model)
        count = library.manifest.layer_count
        last = count if request.last is None else request.last
        if not request.first < last <= count:
            raise DeployRefused(f"{request.model} has layers 0 to {count - 1}, not {request.first} to {last - 1}.")
        wanted = list(dict.fromkeys(self._facts.resolve(request.devices)))
        job = self._find(request.model)
        if job is not None:
            asked = (LayerRange(library.digest, request.first, last), set(wanted or job.record.devices))
            if asked != (job.layers, set(job.record.devices)):
                raise DeployRefused(
                    f"Other layers of {request.model} are being delivered, or to other PCs; wait, or end that first: "
                    f"fallow-console deliver {request.model} --stop"
                )
            return _following(job)
        devices = wanted or [agent.device_id for agent in self._hub.agents()]
        if not devices:
            raise DeployRefused("No PC is connected; see: fallow-console agents")
        layers = (request.first, last)
        return _following(
            self._start(self._registry.deliveries.begin(request.model, library.digest, layers, devices, actor))
        )

    def follow(self, model_id: str) -> AsyncIterator[DeliveryEvent]:
        """Return the events of a delivery that is under way; none is begun. Raises DeployRefused if there is none."""
        return _following(self._running(model_id))

    async def stop(self, model_id: str, actor: Actor) -> None:
        """End a delivery; what PCs have they keep. Raises DeployRefused if there is none."""
        job = self._running(model_id)
        why = "It was ended by an administrator."
        # First: if the registry cannot take it, the delivery is still there and can be ended again.
        self._write_end(job, why, actor)
        del self._jobs[job.record.delivery_id]
        if job.task is not None:
            job.task.cancel()
            await asyncio.gather(job.task, return_exceptions=True)
        job.tell(DeliveryEnded(*_counts(job.record), why))

    def views(self) -> list[wire.DeliveryView]:
        """Describe what is under way."""
        found = []
        for job in self._jobs.values():
            record = job.record
            delivered, failed = _counts(record)
            found.append(
                wire.DeliveryView(
                    record.model_id, record.first, record.last, len(record.devices), delivered, failed, record.begun_s
                )
            )
        return found

    def on_fleet_event(self, event: FleetEvent) -> None:
        """Hear about PCs that come back. Never blocks."""
        if isinstance(event, AgentJoined) and event.agent.device_id in self._joined:
            self._joined.pop(event.agent.device_id).set()

    def _user_of(self, digest: str) -> str:
        job = next((job for job in self._jobs.values() if job.record.library_digest == digest), None)
        return "" if job is None else f"{job.record.model_id} is being delivered from it"

    def _find(self, model_id: str) -> _Job | None:
        return next((job for job in self._jobs.values() if job.record.model_id == model_id), None)

    def _running(self, model_id: str) -> _Job:
        job = self._find(model_id)
        if job is None:
            raise DeployRefused(f"{model_id!r} is not being delivered; see: fallow-console deliver")
        return job

    def _start(self, record: DeliveryRecord) -> _Job:
        job = _Job(record)
        self._jobs[record.delivery_id] = job
        job.task = asyncio.create_task(self._run(job), name=f"deliver {record.model_id}")
        return job

    async def _run(self, job: _Job) -> None:
        record = job.record
        try:
            async for event in deliver_in_rings(
                record.devices,
                record.library_digest,
                lambda device: self._bring(device, job.layers),
                record.done,
                self._wait_for,
            ):
                if isinstance(event, Delivered) and event.device_id not in record.done:
                    record.done[event.device_id] = job.unwritten[event.device_id] = event.problem
                    self._note(job)
                if isinstance(event, DeliveryEnded):
                    self._jobs.pop(record.delivery_id, None)
                    self._write_end(job, event.stopped, CONSOLE)
                job.tell(event)
        except Exception:  # the edge of a task nobody awaits: whoever follows gets an end, the log the cause
            log.exception("The delivery of %s failed unexpectedly; it goes on at the next start.", record.model_id)
            self._jobs.pop(record.delivery_id, None)
            job.tell(DeliveryEnded(*_counts(record), "The console failed while delivering; its log says why."))

    def _note(self, job: _Job) -> None:
        """Write what PCs have; what cannot be written now goes with the next one, and costs the others nothing."""
        try:
            self._write(job)
        except SQLAlchemyError as error:
            log.warning("What PCs have of %s cannot be noted now (%s).", job.record.model_id, type(error).__name__)

    def _write(self, job: _Job) -> None:
        for device_id, problem in list(job.unwritten.items()):
            self._registry.deliveries.note(job.record.delivery_id, device_id, problem)
            del job.unwritten[device_id]

    def _write_end(self, job: _Job, stopped: str, actor: Actor) -> None:
        self._write(job)
        self._registry.deliveries.end(job.record.delivery_id, stopped, actor)

    async def _bring(self, device_id: str, layers: LayerRange) -> None:
        """Bring layers to a PC, through its absences. Raises DeliveryFailed."""
        until_s = asyncio.get_running_loop().time() + DELIVERY_S
        for cut in range(CUTS + 1):
            await self._wait_for(device_id)
            try:
                left_s = max(0.0, until_s - asyncio.get_running_loop().time())
                await self._hub.deliver(device_id, layers, left_s)
            except DeliveryFailed as error:
                if not error.left or cut == CUTS:
                    raise
                log.info("The delivery to %s goes on when it is back: %s", device_id, error)
            else:
                return

    async def _wait_for(self, device_id: str) -> None:
        if any(agent.device_id == device_id for agent in self._hub.agents()):
            return
        try:
            async with asyncio.timeout(self._absent_s):
                await self._joined[device_id].wait()
        except TimeoutError:
            # The event stays: another delivery may wait for the same PC.
            raise DeliveryFailed(f"{device_id} is not connected; switch it on and deliver again.", left=True) from None


def _counts(record: DeliveryRecord) -> tuple[int, int]:
    """How many PCs have it, and how many do not."""
    failed = sum(bool(problem) for problem in record.done.values())
    return len(record.done) - failed, failed


def _following(job: _Job) -> AsyncIterator[DeliveryEvent]:
    """Return what was said so far and what is said from now on."""
    queue: asyncio.Queue[DeliveryEvent] = asyncio.Queue()
    for event in job.events:
        queue.put_nowait(event)
    job.listeners.append(queue)
    return _events(job, queue)


async def _events(job: _Job, queue: asyncio.Queue[DeliveryEvent]) -> AsyncIterator[DeliveryEvent]:
    try:
        while True:
            event = await queue.get()
            yield event
            if isinstance(event, DeliveryEnded):
                return
    finally:
        job.listeners.remove(queue)
