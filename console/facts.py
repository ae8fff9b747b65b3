"""What is known of the PCs for planning: what they offer now, and what their stages were measured to take."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from agent.link.identity import DeviceId
from agent.link.messages import Device
from agent.stage.types import EngineChoice
from console.api.admin.types import DeployRequest
from console.deployments.live import LivePipeline
from console.errors import DeployRefused
from console.fleet.hub import Hub
from console.fleet.measured import (
    STAGES_FACT,
    Found,
    devices_of,
    down_of,
    find_speed,
    measurements_of,
    round_trip_of,
    stage_speeds,
)
from console.planner.types import AgentFacts, Speed
from console.registry.errors import NotFound
from console.registry.registry import Registry
from console.registry.sightings import Sighting
from console.standing import standing, units_held
from shard_export.library.manifest import Manifest

log = logging.getLogger(__name__)

NEWS = 0.05
"""A measurement is saved when it differs from the last one by more than this share."""
_PREFERRED: dict[EngineChoice, tuple[str, ...]] = {
    "auto": ("CPU", "GPU"),
    "paged": ("CPU", "GPU"),
    "stateful": ("GPU", "CPU"),
    "packed": ("NPU",),
}


class FleetFacts:
    """Collects facts from the hub and the registry, and writes measurements back."""

    def __init__(self, registry: Registry, hub: Hub, now: Callable[[], float] = time.time) -> None:
        self._registry = registry
        self._hub = hub
        self._now = now

    def resolve(self, wanted: Sequence[str]) -> list[str]:
        """Turn ids, beginnings of ids and device codes into ids, one for each. Raises DeployRefused.

        All in one look at the registry: whoever has many to name names them at once.
        """
        try:
            return list(self._registry.devices.ids_of(wanted))
        except NotFound as error:
            raise DeployRefused(str(error)) from None

    def names(self) -> dict[str, str]:
        """Return how people call each PC of the fleet, connected or not."""
        return {str(record.device_id): record.name for record in self._registry.devices.list("active")}

    def available(self, request: DeployRequest, taken: Collection[str] = ()) -> list[str]:
        """List the PCs that may be used for a request and are willing now, but those that are `taken`."""
        return [
            agent.device_id
            for agent in self._hub.agents()
            if agent.device_id not in taken
            and (not request.devices or agent.device_id in request.devices)
            and (agent.heartbeat is None or agent.heartbeat.state == "available")
            and _device_for(agent.hello.devices, request.engine) is not None
        ]

    def collect(
        self,
        request: DeployRequest,
        device_ids: Sequence[str],
        others: Sequence[LivePipeline],
        library_digest: str = "",
        manifest: Manifest | None = None,
    ) -> list[AgentFacts]:
        """Describe these PCs for the planner; what other models use of their memory is taken off.

        `library_digest` is what they are to run: what was measured with it counts before what others took. Without its
        `manifest` nobody knows which of its units they hold.
        """
        records = {str(record.device_id): record for record in self._registry.devices.list("active")}
        facts = []
        for agent in self._hub.agents():
            device = _device_for(agent.hello.devices, request.engine)
            if agent.device_id not in device_ids or device is None:
                continue
            held = [live.held[agent.device_id] for live in others if agent.device_id in live.held]
            used = sum(one.stage.memory_bytes for one in held)
            described = AgentFacts(
                device_id=agent.device_id,
                name=agent.name,
                memory_budget_bytes=max(0, device.memory_bytes - used),
                device=device.name,
                engine=request.engine,
                held=units_held(manifest, partial(self._hub.has_files, agent.device_id)) if manifest else frozenset(),
            )
            record = records.get(agent.device_id)
            if record is not None:
                measured = _measured(
                    described, record.facts, device, agent.hello.openvino, request=request, digest=library_digest
                )
                described = standing(measured, record, self._now())
            facts.append(described)
        return facts

    def known(self, request: DeployRequest, library_digest: str = "") -> list[AgentFacts]:
        """Describe every PC of the fleet, connected or not, as if nothing ran on it."""
        facts = []
        for record in self._registry.devices.list("active"):
            device = _device_for(devices_of(record.facts), request.engine)
            if device is None or (request.devices and record.device_id not in request.devices):
                continue
            described = AgentFacts(
                device_id=record.device_id,
                name=record.name,
                memory_budget_bytes=device.memory_bytes,
                device=device.name,
                engine=request.engine,
            )
            openvino = str(record.facts.get("openvino", ""))
            measured = _measured(described, record.facts, device, openvino, request=request, digest=library_digest)
            facts.append(standing(measured, record, self._now()))
        return facts

    def measured(self, live: LivePipeline, request: DeployRequest) -> None:
        """Save what the stages were measured to take, for the next plan."""
        stages = live.coordinator.status().stages
        for planned, status, read_mb in zip(live.plan.stages, stages, live.read_mb, strict=True):
            if status.ms_per_step <= 0 or read_mb <= 0:
                continue
            speed = status.ms_per_step / read_mb
            kind, known = _kind(request, planned.device), stage_speeds(self._known(planned.device_id))
            if abs(speed - known.get(kind, 0.0)) > NEWS * speed:
                self._remember(planned.device_id, {**known, kind: speed})

    def _known(self, device_id: str) -> dict[str, Any]:
        record = self._registry.devices.find(DeviceId(device_id))
        return {} if record is None else record.facts

    def _remember(self, device_id: str, measurements: dict[str, float]) -> None:
        self._registry.sightings.note([Sighting(DeviceId(device_id), facts={STAGES_FACT: measurements})])


def _measured(
    facts: AgentFacts, known: Mapping[str, Any], device: Device, openvino: str, *, request: DeployRequest, digest: str
) -> AgentFacts:
    """Add what was measured of a PC and its link."""
    found = find_speed(
        measurements_of(known),
        device,
        openvino,
        engine=request.engine,
        numerics=request.numerics,
        library_digest=digest,
    )
    round_trip, down = round_trip_of(known), down_of(known)
    return msgspec.structs.replace(
        facts,
        ms_per_mb=stage_speeds(known).get(_kind(request, device.name)),
        speed=None if found is None else _speed(found, digest),
        rtt_ms=None if round_trip is None else round_trip.value,
        bytes_per_s=None if down is None else down.value,
    )


def _speed(found: Found, library_digest: str) -> Speed:
    """Say it as the planner takes it: the ends are a model's own."""
    measurement, speed = found
    is_own = measurement.library_digest == library_digest
    return Speed(
        layer_bytes=measurement.layer_bytes,
        layer_ms=speed.layer_ms,
        layer_ms_8=speed.layer_ms_8,
        fixed_ms=speed.fixed_ms,
        embed_ms=speed.embed_ms if is_own else None,
        head_ms=speed.head_ms if is_own else None,
        head_ms_8=speed.head_ms_8 if is_own else None,
    )


def _kind(request: DeployRequest, device: str) -> str:
    return f"{request.engine}/{request.numerics}/{device}"


def _device_for(devices: Sequence[Device], engine: EngineChoice) -> Device | None:
    """Choose the PC's device for an engine; None when the PC cannot run it."""
    able = {device.name: device for device in devices if engine == "auto" or engine in device.engines}
    for name in _PREFERRED[engine]:
        if name in able:
            return able[name]
    return next(iter(able.values()), None)
