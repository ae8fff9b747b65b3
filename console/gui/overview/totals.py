"""Counts of the fleet and of what it serves, from what the service says. Pure; no Qt here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from console.api.admin import types as wire


@dataclass(frozen=True, slots=True)
class Totals:
    """The fleet in numbers; memory in bytes, of the connected PCs."""

    known: int = 0
    connected: int = 0
    available: int = 0
    serving: int = 0
    held: int = 0
    pending: int = 0
    memory_bytes: int = 0
    memory_free_bytes: int = 0
    models_ready: int = 0
    models: int = 0
    tokens_per_second: float = 0.0
    running: int = 0
    queued: int = 0


def count(agents: Sequence[wire.Agent], pipelines: Sequence[wire.PipelineView]) -> Totals:
    """Count PCs and pipelines."""
    active = [agent for agent in agents if agent.state == "active"]
    connected = [agent for agent in active if agent.link == "connected"]
    serving = serving_ids(pipelines)
    held = [agent for agent in connected if agent.held_because]
    free = [agent for agent in connected if not agent.held_because and agent.device_id not in serving]
    models = {pipeline.model for pipeline in pipelines}
    ready = {pipeline.model for pipeline in pipelines if pipeline.state == "ready"}
    return Totals(
        known=len(active),
        connected=len(connected),
        available=len(free),
        serving=sum(agent.device_id in serving for agent in connected),
        held=len(held),
        pending=sum(agent.state == "pending" for agent in agents),
        memory_bytes=sum(agent.memory_bytes for agent in connected),
        memory_free_bytes=sum(agent.memory_free_bytes for agent in connected),
        models_ready=len(ready),
        models=len(models),
        tokens_per_second=sum(pipeline.tokens_per_second for pipeline in pipelines),
        running=sum(pipeline.running for pipeline in pipelines),
        queued=sum(pipeline.queued for pipeline in pipelines),
    )


def serving_ids(pipelines: Sequence[wire.PipelineView]) -> frozenset[str]:
    """Return the PCs that run a stage."""
    return frozenset(stage.device_id for pipeline in pipelines for stage in pipeline.stages)
