"""What needs somebody: each with its cause, what to do next, and where. Pure; no Qt here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from console.api.admin import types as wire
from console.gui.devices.former import former_of
from console.gui.times import age_text
from shard_export.library.counts import counted

Severity = Literal["bad", "wait", "hint"]
"""`bad`: something does not work; `wait`: somebody or something waits; `hint`: a step that could be next."""
OLD_PROBE_S = 60.0
LONG_QUEUE = 8


@dataclass(frozen=True, slots=True)
class Alert:
    """`page` and `what` are where it can be done (see Page.wants), `button` what the button says."""

    severity: Severity
    text: str
    step: str
    button: str
    page: str
    what: str = ""


def alerts(status: wire.Status, agents: Sequence[wire.Agent], libraries: Sequence[wire.Library] | None) -> list[Alert]:
    """List what needs somebody, the worst first. `libraries` None: not heard of yet."""
    found = [
        *(alert for pipeline in status.pipelines for alert in _of_pipeline(pipeline)),
        *_of_libraries(libraries or ()),
        *_of_agents(status, agents),
        *_first_steps(status, agents, libraries),
    ]
    order: dict[Severity, int] = {"bad": 0, "wait": 1, "hint": 2}
    return sorted(found, key=lambda alert: order[alert.severity])


def _of_pipeline(pipeline: wire.PipelineView) -> Iterator[Alert]:
    name = f"{pipeline.model} (pipeline {pipeline.number + 1})" if pipeline.number else pipeline.model
    message = pipeline.message or pipeline.probe.message
    if pipeline.state == "failed":
        yield Alert("bad", f"{name} could not be deployed. {message}", "Change what it asks for and deploy it again.",
                    "Go to the model", "models", pipeline.model)  # fmt: skip
    elif pipeline.state in ("waiting", "recovering"):
        doing = "waits for PCs" if pipeline.state == "waiting" else "lost a PC, and others take over"
        step = "It goes on by itself; connect or free PCs if it takes long."
        yield Alert("bad", f"{name} {doing}. {message}", step, "See the PCs", "devices", "offline")
    elif pipeline.state == "ready" and (pipeline.probe.age_s is None or pipeline.probe.age_s > OLD_PROBE_S):
        age = "never" if pipeline.probe.age_s is None else f"{age_text(pipeline.probe.age_s)} ago"
        yield Alert("bad", f"The last token of {name} came {age}. {message}", "Look at its stages.",
                    "Go to the model", "models", pipeline.model)  # fmt: skip
    if pipeline.queued >= LONG_QUEUE:
        yield Alert("wait", f"{counted(pipeline.queued, 'answer waits', 'answers wait')} for {name}.",
                    "Deploy it with more pipelines or more answers at once.",
                    "Go to the model", "models", pipeline.model)  # fmt: skip


def _of_libraries(libraries: Sequence[wire.Library]) -> Iterator[Alert]:
    for library in libraries:
        if library.problem:
            yield Alert("bad", f"The library {library.model_id} cannot be used: {library.problem}",
                        f"Repair or build it again in {library.folder}.", "Go to the models", "models",
                        library.model_id)  # fmt: skip


def _of_agents(status: wire.Status, agents: Sequence[wire.Agent]) -> Iterator[Alert]:
    waiting = [agent for agent in agents if agent.state == "pending"]
    if waiting:
        names = ", ".join(agent.name for agent in waiting[:3]) + (" and others" if len(waiting) > 3 else "")
        yield Alert("wait", f"{_pcs(len(waiting))} for approval: {names}.", "Compare the codes and let them in.",
                    "Approve", "devices", "pending")  # fmt: skip
    by_id = {agent.device_id: agent for agent in agents}
    anew = [(agent, former) for agent in agents if (former := former_of(agent, by_id)) is not None]
    if anew:
        agent, former = anew[0]
        yield Alert("hint", f"{agent.name} ({agent.device_code}) may be the same machine as the former record "
                    f"{former.name} ({former.device_code}).", "Let it take over from its former record.",
                    "See the PC", "devices", agent.device_id)  # fmt: skip
    other = [agent for agent in agents if agent.link == "connected" and agent.version not in ("", status.version)]
    if other:
        yield Alert("hint", f"{len(other)} connected PC{'s run' if len(other) > 1 else ' runs'} another version than "
                    f"the console's {status.version}, like {other[0].name} with {other[0].version}.",
                    "Update the older side.", "See the PC", "devices", other[0].device_id)  # fmt: skip


def _first_steps(
    status: wire.Status, agents: Sequence[wire.Agent], libraries: Sequence[wire.Library] | None
) -> Iterator[Alert]:
    if not agents:
        yield Alert("hint", "No PC is in the fleet yet.", "Invite PCs: each needs one line of text.", "Invite PCs",
                    "invites")  # fmt: skip
    if libraries is not None and not libraries:
        yield Alert("hint", "There is no model to serve yet.", "Build one from a checkpoint, or add a library.",
                    "Build a model", "models")  # fmt: skip
    elif libraries and agents and not status.pipelines:
        yield Alert("hint", "No model is served yet.", "Deploy one; the planner chooses the PCs.", "Deploy a model",
                    "models", libraries[0].model_id)  # fmt: skip


def _pcs(number: int) -> str:
    return counted(number, "PC waits", "PCs wait")
