"""Counts of the fleet and of what it serves, from what the service says. Pure; no Qt here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from console.api.admin import types as wire
from console.gui.devices.fleet import Status, counts, parts_of, status_of

CONNECTED: tuple[Status, ...] = ("available", "serving", "held")


@dataclass(frozen=True, slots=True)
class Totals:
    """The fleet in numbers, each PC where the page of the PCs has it; memory in bytes, of the connected ones."""

    known: int = 0
    connected: int = 0
    available: int = 0
    serving: int = 0
    held: int = 0
    memory_free_bytes: int = 0
    models_ready: int = 0
    models: int = 0
    tokens_per_second: float = 0.0
    running: int = 0
    queued: int = 0


def count(agents: Sequence[wire.Agent], pipelines: Sequence[wire.PipelineView]) -> Totals:
    """Count PCs and pipelines."""
    parts = parts_of(pipelines)
    numbers = counts(agents, parts)
    connected = sum(numbers[status] for status in CONNECTED)
    free = [
        agent.memory_free_bytes for agent in agents if status_of(agent, parts.get(agent.device_id, ())) in CONNECTED
    ]
    models = {pipeline.model for pipeline in pipelines}
    ready = {pipeline.model for pipeline in pipelines if pipeline.state == "ready"}
    return Totals(
        known=connected + numbers["offline"],
        connected=connected,
        available=numbers["available"],
        serving=numbers["serving"],
        held=numbers["held"],
        memory_free_bytes=sum(free),
        models_ready=len(ready),
        models=len(models),
        tokens_per_second=sum(pipeline.tokens_per_second for pipeline in pipelines),
        running=sum(pipeline.running for pipeline in pipelines),
        queued=sum(pipeline.queued for pipeline in pipelines),
    )
