"""What the table says of a PC, and which PCs a filter lets through. Pure; no Qt here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from agent.volunteer.clauses import told
from console.api.admin import types as wire
from console.gui.times import ago_text, size_text

Status = Literal["pending", "serving", "available", "held", "offline", "suspended", "gone"]
STATUSES: tuple[Status, ...] = get_args(Status)
STATUS_TEXTS: dict[Status, str] = {
    "pending": "Waiting for approval",
    "serving": "Serving",
    "available": "Available",
    "held": "Held",
    "offline": "Offline",
    "suspended": "Suspended",
    "gone": "Removed",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A stage a PC runs: layers `first <= i < last`; None: not measured."""

    model: str
    first: int
    last: int
    ms_per_layer: float | None
    round_trip_ms: float | None


Parts = Mapping[str, Sequence[Part]]
"""Stages by device id."""


def parts_of(pipelines: Iterable[wire.PipelineView]) -> dict[str, list[Part]]:
    """Find out who runs what."""
    found: dict[str, list[Part]] = {}
    for pipeline in pipelines:
        links = {link.stage: link.round_trip_ms for link in pipeline.links}
        for place, stage in enumerate(pipeline.stages):
            layers = max(1, stage.last - stage.first)
            per_layer = stage.ms_per_token / layers if stage.ms_per_token else None
            part = Part(pipeline.model, stage.first, stage.last, per_layer, links.get(place) or None)
            found.setdefault(stage.device_id, []).append(part)
    return found


def status_of(agent: wire.Agent, parts: Sequence[Part] = ()) -> Status:
    """Say in one word how a PC is."""
    if agent.state in ("pending", "suspended"):
        return "pending" if agent.state == "pending" else "suspended"
    if agent.state != "active":
        return "gone"
    if agent.link == "offline":
        return "offline"
    if parts:
        return "serving"
    return "held" if agent.held_because else "available"


def reason_of(agent: wire.Agent) -> str:
    """Say why a PC is as it is, as far as it or the console said."""
    if agent.reason:
        return agent.reason
    if agent.state not in ("active", "pending", "suspended"):
        return agent.state
    if agent.held_because:
        return told(agent.held_because)
    return f"at the console {agent.console}" if agent.console else ""


def parts_text(parts: Sequence[Part]) -> str:
    """Name stages as `model 0-11`."""
    return ", ".join(f"{part.model} {part.first}-{part.last - 1}" for part in parts)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, the text of a cell at a Unix time, and what it is sorted by."""

    heading: str
    text: Callable[[wire.Agent, Sequence[Part], float], str]
    key: Callable[[wire.Agent, Sequence[Part]], object]
    number: bool = False


def _sum_or_dash(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{max(known):.1f}" if known else "-"


def _most(values: Iterable[float | None]) -> float:
    return max((value for value in values if value is not None), default=-1.0)


def _memory(agent: wire.Agent) -> str:
    if agent.memory_free_bytes and agent.link == "connected":
        return f"{size_text(agent.memory_free_bytes)} of {size_text(agent.memory_bytes)}"
    return size_text(agent.memory_bytes)


def _rests(agent: wire.Agent) -> str:
    return "-" if agent.rests_percent is None else f"{agent.rests_percent} %"


COLUMNS: tuple[Column, ...] = (
    Column(
        "Status",
        lambda agent, parts, _: STATUS_TEXTS[status_of(agent, parts)],
        lambda agent, parts: STATUSES.index(status_of(agent, parts)),
    ),
    Column("Name", lambda agent, _, __: agent.name, lambda agent, _: agent.name.lower()),
    Column("Reason", lambda agent, _, __: reason_of(agent), lambda agent, _: reason_of(agent)),
    Column("Memory free", lambda agent, _, __: _memory(agent), lambda agent, _: agent.memory_free_bytes, number=True),
    Column("Devices", lambda agent, _, __: ", ".join(agent.devices), lambda agent, _: ", ".join(agent.devices)),
    Column("Stages", lambda _, parts, __: parts_text(parts), lambda _, parts: parts_text(parts)),
    Column(
        "ms/layer",
        lambda _, parts, __: _sum_or_dash(part.ms_per_layer for part in parts),
        lambda _, parts: _most(part.ms_per_layer for part in parts),
        number=True,
    ),
    Column(
        "RTT ms",
        lambda _, parts, __: _sum_or_dash(part.round_trip_ms for part in parts),
        lambda _, parts: _most(part.round_trip_ms for part in parts),
        number=True,
    ),
    Column(
        "Rests",
        lambda agent, _, __: _rests(agent),
        lambda agent, _: -1 if agent.rests_percent is None else agent.rests_percent,
        number=True,
    ),
    Column("Tags", lambda agent, _, __: ", ".join(agent.tags), lambda agent, _: ", ".join(agent.tags)),
    Column("Version", lambda agent, _, __: agent.version_text or "-", lambda agent, _: agent.version_text),
    Column("System", lambda agent, _, __: agent.os or "-", lambda agent, _: agent.os),
    Column(
        "Last seen",
        lambda agent, _, now_s: "now" if agent.link == "connected" else ago_text(agent.seen_s, now_s),
        lambda agent, _: float("inf") if agent.link == "connected" else agent.seen_s or 0.0,
    ),
    Column("Code", lambda agent, _, __: agent.device_code, lambda agent, _: agent.device_code),
)
NAME_COLUMN, SEEN_COLUMN = 1, 12


@dataclass(frozen=True, slots=True)
class Filter:
    """Which PCs are shown: `status` None any; every word of `words` has to be found somewhere."""

    status: Status | None = None
    words: str = ""

    def lets(self, agent: wire.Agent, parts: Sequence[Part] = ()) -> bool:
        """Whether a PC is shown. Removed ones are shown only when asked for."""
        status = status_of(agent, parts)
        if status != self.status if self.status else status == "gone" and not self.words:
            return False
        if not self.words:
            return True
        text = searched_text(agent, parts)
        return all(word in text for word in self.words.lower().split())


def searched_text(agent: wire.Agent, parts: Sequence[Part]) -> str:
    """Everything of a PC that a search looks at."""
    fields = (
        agent.name, agent.device_id, agent.device_code, agent.os, agent.version_text, agent.state, reason_of(agent),
        parts_text(parts), *agent.devices, *agent.tags,
    )  # fmt: skip
    return "\n".join(fields).lower()


def counts(agents: Iterable[wire.Agent], parts: Parts) -> Counter[Status]:
    """Count the PCs of each status."""
    return Counter(status_of(agent, parts.get(agent.device_id, ())) for agent in agents)
