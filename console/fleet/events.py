"""What the hub tells its listeners, and what it knows of an agent: plain data."""

from __future__ import annotations

import msgspec

from agent.link.messages import AskRelease, Heartbeat, Hello, Measurements, PolicyKept, Resting, UpdateState
from agent.stage.types import Epoch, PipelineId


class AgentView(msgspec.Struct, frozen=True):
    """One connected agent: both its links are up. `connected_s` is Unix time; `heartbeat` is its last.

    `tags` are those it had when it was let in.
    """

    device_id: str
    name: str
    hello: Hello
    heartbeat: Heartbeat | None
    connected_s: float
    tags: list[str] = []


class AgentJoined(msgspec.Struct, frozen=True):
    """An agent's control and data links are up."""

    agent: AgentView


class AgentLost(msgspec.Struct, frozen=True):
    """One of an agent's links dropped, or its heartbeats stopped: nothing it holds can be used any more."""

    device_id: str
    reason: str


class AgentYielded(msgspec.Struct, frozen=True):
    """An agent gives its PC back to its owner: its stages (pipeline, epoch) compute nothing more. It is connected."""

    device_id: str
    epochs: list[tuple[PipelineId, Epoch]]
    reasons: list[str]


class AgentLeaving(msgspec.Struct, frozen=True):
    """An agent leaves by its own will: its stages work until they are unloaded, or for a few seconds."""

    device_id: str


class AgentAvailable(msgspec.Struct, frozen=True):
    """An agent that was held may be planned with again."""

    device_id: str


class StageDied(msgspec.Struct, frozen=True):
    """A loaded stage's child process ended; its agent is still connected."""

    device_id: str
    pipeline: int
    epoch: int
    stage: int
    cause: str


class AgentTold(msgspec.Struct, frozen=True):
    """An agent answers to its policy, says when its PC tends to rest, what was measured there, or of its updates."""

    device_id: str
    message: PolicyKept | Resting | Measurements | AskRelease | UpdateState


class LinkTimed(msgspec.Struct, frozen=True):
    """How long an agent's control link takes there and back, undisturbed, as its pings tell."""

    device_id: str
    round_trip_ms: float


FleetEvent = AgentJoined | AgentLost | AgentTold | AgentYielded | AgentLeaving | AgentAvailable | StageDied | LinkTimed
