"""What is known of the PCs for planning: what they offer now, and what their stages were measured to take."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from agent.link.identity import DeviceId
from agent.link.messages import Device, Hello
from agent.stage.types import EngineChoice
from console.api.admin.types import DeployRequest
from console.deployments.live import LivePipeline
from console.errors import DeployRefused
from console.fleet.hub import Hub
from console.planner.types import AgentFacts
from console.registry.errors import NotFound
from console.registry.registry import Registry
from console.registry.sightings import Sighting

log = logging.getLogger(__name__)

MEASURED = "ms_per_mb"
"""Key in a device's facts: measured milliseconds of one decode step per MB of weights, by engine, numerics, device."""
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

    def __init__(self, registry: Registry, hub: Hub) -> None:
        self._registry = registry
        self._hub = hub

    def resolve(self, wanted: Sequence[str]) -> list[str]:
        """Turn ids, beginnings of ids and device codes into ids, each PC once. Raises DeployRefused."""
        try:
            return list(dict.fromkeys(self._registry.devices.resolve(text).device_id for text in wanted))
        except NotFound as error:
            raise DeployRefused(str(error)) from None

    def available(self, request: DeployRequest) -> list[str]:
        """List the PCs that may be used for a request and are willing now."""
        return [
            agent.device_id
            for agent in self._hub.agents()
            if (not request.devices or agent.device_id in request.devices)
            and (agent.heartbeat is None or agent.heartbeat.state == "available")
            and _device_for(agent.hello, request.engine) is not None
        ]

    def collect(
        self, request: DeployRequest, device_ids: Sequence[str], others: Sequence[LivePipeline]
    ) -> list[AgentFacts]:
        """Describe these PCs for the planner; what other models use of their memory is taken off."""
        facts = []
        for agent in self._hub.agents():
            device = _device_for(agent.hello, request.engine)
            if agent.device_id not in device_ids or device is None:
                continue
            held = [live.held[agent.device_id] for live in others if agent.device_id in live.held]
            used = sum(one.stage.memory_bytes for one in held)
            facts.append(
                AgentFacts(
                    device_id=agent.device_id,
                    name=agent.name,
                    memory_budget_bytes=max(0, device.memory_bytes - used),
                    ms_per_mb=self._measurements(agent.device_id).get(_kind(request, device.name)),
                    device=device.name,
                    engine=request.engine,
                )
            )
        return facts

    def measured(self, live: LivePipeline, request: DeployRequest) -> None:
        """Save what the stages were measured to take, for the next plan."""
        stages = live.coordinator.status().stages
        for planned, status, read_mb in zip(live.plan.stages, stages, live.read_mb, strict=True):
            if status.ms_per_step <= 0 or read_mb <= 0:
                continue
            speed = status.ms_per_step / read_mb
            kind, known = _kind(request, planned.device), self._measurements(planned.device_id)
            if abs(speed - known.get(kind, 0.0)) > NEWS * speed:
                self._remember(planned.device_id, {**known, kind: speed})

    def _measurements(self, device_id: str) -> dict[str, float]:
        record = self._registry.devices.find(DeviceId(device_id))
        found: Any = record.facts.get(MEASURED) if record is not None else None
        return found if isinstance(found, dict) else {}

    def _remember(self, device_id: str, measurements: dict[str, float]) -> None:
        self._registry.sightings.note([Sighting(DeviceId(device_id), facts={MEASURED: measurements})])


def _kind(request: DeployRequest, device: str) -> str:
    return f"{request.engine}/{request.numerics}/{device}"


def _device_for(hello: Hello, engine: EngineChoice) -> Device | None:
    """Choose the PC's device for an engine; None when the PC cannot run it."""
    able = {device.name: device for device in hello.devices if engine == "auto" or engine in device.engines}
    for name in _PREFERRED[engine]:
        if name in able:
            return able[name]
    return next(iter(able.values()), None)
