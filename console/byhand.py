"""Plans made by hand: from what a request says to what the planner makes of it, and to what is deployed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from console.api.admin.types import DeployRequest
from console.errors import DeployRefused
from console.libraries import LoadedLibrary
from console.planner.given import NOBODY, CheckedPlan, GivenStage, check_given
from console.planner.types import AgentFacts, ModelFacts, Plan
from console.standing import rules_of

MOST_SAID = 3
"""How many faults a refusal names."""


def checked(
    library: LoadedLibrary,
    request: DeployRequest,
    agents: Sequence[AgentFacts],
    *,
    current: Sequence[Plan] = (),
    names: Mapping[str, str] = NOBODY,
) -> CheckedPlan:
    """Check a request's plan; its PCs are ids already. See `check_given`."""
    return check_given(
        ModelFacts.from_manifest(library.manifest, request.numerics),
        agents,
        [[GivenStage(one.device, one.first, one.last) for one in stages] for stages in request.plan],
        context_tokens=request.context,
        streams=request.streams,
        rules=rules_of(request),
        current=current,
        names=names,
    )


def refuse_faults(found: CheckedPlan) -> None:
    """Raise DeployRefused for a plan that must not be deployed, with what is wrong with it."""
    if not found.faults:
        return
    said = " ".join(fault.text for fault in found.faults[:MOST_SAID])
    more = len(found.faults) - MOST_SAID
    raise DeployRefused(said if more <= 0 else f"{said} And {more} more; see: fallow-console plan check FILE")


def made_by_hand(library: LoadedLibrary, request: DeployRequest, agents: Sequence[AgentFacts], number: int) -> Plan:
    """Return one pipeline of a request's plan as it is deployed. Raises DeployRefused for one that must not be."""
    rules = msgspec.structs.replace(request.rules, pins=[])  # those of the other pipelines are not here
    alone = msgspec.structs.replace(request, plan=[request.plan[number]], replicas=1, rules=rules)
    found = checked(library, alone, agents)
    refuse_faults(found)
    plan = found.pipelines[0].plan
    assert plan is not None  # noqa: S101 - without faults every layer is on a PC that is there
    return plan


def left_to_the_planner(request: DeployRequest) -> DeployRequest:
    """Return a request without its plan: what is done when that is not possible any more, so that somebody answers."""
    return msgspec.structs.replace(request, plan=[])


def as_possible(request: DeployRequest, number: int, device_ids: Sequence[str], failures: int) -> DeployRequest:
    """Return what is tried when nobody asks: the plan only while it did not fail and pipeline `number` has its PCs."""
    if request.plan and not failures and {stage.device for stage in request.plan[number]} <= set(device_ids):
        return request
    return left_to_the_planner(request)


def meant_for_others(request: DeployRequest, number: int) -> set[str]:
    """Return the PCs that a plan gives to the model's pipelines other than `number`, which may not be up yet."""
    return {stage.device for other, stages in enumerate(request.plan) if other != number for stage in stages}
