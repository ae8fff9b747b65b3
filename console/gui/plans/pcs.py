"""The PCs a plan can be made of, as rows of a table. No Qt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agent.volunteer.clauses import told
from console.api.admin import types as wire
from console.gui.plans import words
from console.gui.plans.model import Edited
from console.gui.times import ZERO, size_text
from console.planner.given import CheckedPlan, UsablePc


class PcRow(NamedTuple):
    """One PC: `texts` are the cells, `keys` what they are sorted by."""

    device_id: str
    texts: tuple[str, ...]
    keys: tuple[str | float, ...]


def pc_rows(plan: Edited | None, found: CheckedPlan | None, agents: Sequence[wire.Agent]) -> list[PcRow]:
    """Describe every PC of the fleet, by name: what it does in the plan, or why it cannot."""
    looked = _Looked(plan, found)
    rows = [looked.row(agent) for agent in agents if agent.state == "active"]
    return sorted(rows, key=lambda row: (row.keys[0], row.device_id))


def free_pcs(plan: Edited, found: CheckedPlan | None) -> list[UsablePc]:
    """Return who may get a stage: has none, may be used; those with most memory and then the fastest first."""
    pcs = [] if found is None else [pc for pc in found.usable if pc.device_id not in plan.used]
    return sorted(pcs, key=lambda pc: (-pc.budget_bytes, pc.layer_ms, pc.name))


class _Looked:
    """What is looked up for a thousand PCs, once."""

    def __init__(self, plan: Edited | None, found: CheckedPlan | None) -> None:
        self._plan, self._known = plan, found is not None
        self._usable = {} if found is None else {pc.device_id: pc for pc in found.usable}
        self._used = {} if plan is None else plan.used
        self._pinned = frozenset[str]() if plan is None else plan.pinned
        self._excluded = frozenset[str]() if plan is None else plan.excluded

    def row(self, agent: wire.Agent) -> PcRow:
        pc = self._usable.get(agent.device_id)
        use = self._use(agent, pc)
        if pc is None:
            return PcRow(agent.device_id, (agent.name, use, "", "", ""), (agent.name.casefold(), use, 0, 0.0, ""))
        place = ", ".join(part for part in (pc.site, pc.network) if part)
        speed = f"{pc.layer_ms:.2f}" if pc.measured else f"{pc.layer_ms:.2f} (not measured)"
        texts = (agent.name, use, size_text(pc.budget_bytes, ZERO), speed, place)
        return PcRow(agent.device_id, texts, (agent.name.casefold(), use, pc.budget_bytes, pc.layer_ms, place))

    def _use(self, agent: wire.Agent, pc: UsablePc | None) -> str:
        """Say what a PC does; whether it can be used is known once the service was asked."""
        marks = []
        place = self._used.get(agent.device_id)
        stage = None if self._plan is None or place is None else self._plan.at(place)
        if stage is not None and place is not None:
            marks.append(f"pipeline {place.pipeline + 1}, {words.layers(stage.first, stage.last)}")
        if agent.device_id in self._excluded:
            marks.append("left out")
        elif pc is None:
            marks += [_why_not(agent)] if self._known or agent.link == "offline" else []
        elif stage is None:
            marks.append("free")
        if agent.device_id in self._pinned:
            marks.append("pinned")
        return ", ".join(marks)


def _why_not(agent: wire.Agent) -> str:
    if agent.link == "offline":
        return "away"
    if agent.volunteering != "available":
        return f"not available ({told(agent.held_because) or agent.volunteering})"
    return "cannot be used for it"
