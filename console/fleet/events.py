"""What the hub tells its listeners, and what it knows of an agent: plain data."""

from __future__ import annotations

import msgspec

from agent.link.messages import Heartbeat, Hello, PolicyKept, Resting


class AgentView(msgspec.Struct, frozen=True):
    """One connected agent: both its links are up. `connected_s` is Unix time; `heartbeat` is its last."""

    device_id: str
    name: str
    hello: Hello
    heartbeat: Heartbeat | None
    connected_s: float


class AgentJoined(msgspec.Struct, frozen=True):
    """An agent's control and data links are up."""

    agent: AgentView


class AgentLost(msgspec.Struct, frozen=True):
    """One of an agent's links dropped, or its heartbeats stopped: nothing it holds can be used any more."""

    device_id: str
    reason: str


class StageDied(msgspec.Struct, frozen=True):
    """A loaded stage's child process ended; its agent is still connected."""

    device_id: str
    pipeline: int
    epoch: int
    stage: int
    cause: str


class AgentTold(msgspec.Struct, frozen=True):
    """An agent answers to its policy, or says when its PC tends to rest."""

    device_id: str
    message: PolicyKept | Resting


FleetEvent = AgentJoined | AgentLost | AgentTold | StageDied
