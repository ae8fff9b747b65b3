"""The PCs a plan can be made of, as rows of a table. No Qt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from console.api.admin import types as wire
from console.gui.plans import words
from console.gui.plans.model import Edited, Place
from console.planner.given import CheckedPlan, UsablePc

HEADERS = ("PC", "In the plan", "Memory", "ms a layer", "Place")


class PcRow(NamedTuple):
    """One PC: `texts` are the cells, `keys` what they are sorted by."""

    device_id: str
    texts: tuple[str, ...]
    keys: tuple[str | float, ...]


def pc_rows(plan: Edited | None, found: CheckedPlan | None, agents: Sequence[wire.Agent]) -> list[PcRow]:
    """Describe every PC of the fleet, by name: what it does in the plan, or why it cannot."""
    usable = {} if found is None else {pc.device_id: pc for pc in found.usable}
    used = {} if plan is None else plan.used
    active = [agent for agent in agents if agent.state == "active"]
    rows = [
        _row(agent, plan, usable.get(agent.device_id), used.get(agent.device_id), known=found is not None)
        for agent in active
    ]
    return sorted(rows, key=lambda row: (row.texts[0].casefold(), row.device_id))


def free_pcs(plan: Edited, found: CheckedPlan | None) -> list[UsablePc]:
    """Return who may get a stage: has none, may be used; those with most memory and then the fastest first."""
    pcs = [] if found is None else [pc for pc in found.usable if pc.device_id not in plan.used]
    return sorted(pcs, key=lambda pc: (-pc.budget_bytes, pc.layer_ms, pc.name))


def _row(agent: wire.Agent, plan: Edited | None, pc: UsablePc | None, at: Place | None, *, known: bool) -> PcRow:
    use = _use(agent, plan, pc, at, known=known)
    memory = pc.budget_bytes if pc is not None else 0
    speed = pc.layer_ms if pc is not None else 0.0
    place = "" if pc is None else ", ".join(part for part in (pc.site, pc.network) if part)
    measured = "" if pc is None or pc.measured else " (not measured)"
    texts = (agent.name, use, words.size(memory) if memory else "", f"{speed:.2f}{measured}" if speed else "", place)
    return PcRow(agent.device_id, texts, (agent.name.casefold(), use, memory, speed, place))


def _use(agent: wire.Agent, plan: Edited | None, pc: UsablePc | None, place: Place | None, *, known: bool) -> str:
    """Say what a PC does; whether it can be used is `known` once the service was asked."""
    marks = []
    stage = None if plan is None or place is None else plan.at(place)
    if stage is not None and place is not None:
        marks.append(f"pipeline {place.pipeline + 1}, {words.layers(stage.first, stage.last)}")
    if plan is not None and agent.device_id in plan.excluded:
        marks.append("left out")
    elif pc is None:
        marks += [_why_not(agent)] if known or agent.link == "offline" else []
    elif stage is None:
        marks.append("free")
    if plan is not None and agent.device_id in plan.pinned:
        marks.append("pinned")
    return ", ".join(marks)


def _why_not(agent: wire.Agent) -> str:
    if agent.link == "offline":
        return "away"
    if agent.volunteering != "available":
        return f"not available ({', '.join(agent.held_because).replace('_', ' ') or agent.volunteering})"
    return "cannot be used for it"
