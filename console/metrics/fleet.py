"""What is counted of the fleet: PCs by state and reason, those that yield or are lost, what their links carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import get_args

from agent.volunteer.reasons import ReasonCode
from console.fleet.events import AgentLost, AgentView, AgentYielded, FleetEvent, StageDied
from console.metrics.scrape import Scrape
from console.registry.records import DeviceState

OTHER = "other"
_KNOWN = frozenset(str(code) for code in ReasonCode)


def reason_kind(reason: str) -> str:
    """Return a reason's code if it is one of ours: what an agent of another version says must not become a label."""
    return reason if reason in _KNOWN else OTHER


class FleetCounts:
    """Counts what happens to PCs; subscribe `on_fleet_event` to the hub. Event loop only."""

    def __init__(self) -> None:
        self.yields: Counter[str] = Counter()
        """By the first reason."""
        self.lost = self.stages_died = 0

    def on_fleet_event(self, event: FleetEvent) -> None:
        """Hear about PCs. Never blocks."""
        if isinstance(event, AgentYielded) and event.epochs:
            self.yields[reason_kind(event.reasons[0] if event.reasons else "")] += 1
        elif isinstance(event, AgentLost):
            self.lost += 1
        elif isinstance(event, StageDied):
            self.stages_died += 1


def agents_by_state(
    known: Mapping[DeviceState, int],
    connected: Sequence[AgentView],
    *,
    serving: Collection[str],
    reserve: Collection[str],
    elsewhere: int,
) -> Counter[str]:
    """Count every PC once. `known` are the registry's states; an active PC is told apart by what it does.

    `serving`, `standby`, `held` or `available` here, `elsewhere` on another console of the registry, or `offline`.
    """
    # All of them, also at 0: a sum over states of which there are none yet is no number, and no alert compares it.
    found: Counter[str] = Counter(dict.fromkeys(("serving", "standby", "held", "available"), 0))
    found.update({state: known.get(state, 0) for state in get_args(DeviceState) if state != "active"})
    for agent in connected:
        if agent.device_id in serving:
            found["serving"] += 1
        elif agent.device_id in reserve:
            found["standby"] += 1
        else:
            held = agent.heartbeat is not None and agent.heartbeat.state != "available"
            found["held" if held else "available"] += 1
    found["elsewhere"] = elsewhere
    # A PC may be known and gone a moment later: never less than none.
    found["offline"] = max(0, known.get("active", 0) - len(connected) - elsewhere)
    return found


def held_by_reason(connected: Sequence[AgentView]) -> Counter[str]:
    """Count the reasons of the PCs that are held, each once a PC."""
    found: Counter[str] = Counter()
    for agent in connected:
        if agent.heartbeat is not None and agent.heartbeat.state != "available":
            found.update({reason_kind(reason) for reason in agent.heartbeat.reasons})
    return found


def collect_counts(counts: FleetCounts, scrape: Scrape) -> None:
    """Add what happened."""
    for reason in sorted({*_KNOWN, OTHER}):
        scrape.add("fallow_agent_yields", counts.yields[reason], reason)
    scrape.add("fallow_agents_lost", counts.lost)
    scrape.add("fallow_stages_died", counts.stages_died)
