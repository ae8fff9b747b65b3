"""What travels on /admin/v1/plans: plans that nobody carries out. Sizes are bytes, times milliseconds or Unix time."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from console.api.admin.types import DeployRequest, Name
from console.planner.types import Plan, Standby
from console.planner.whatif import Answer


class PlanRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask how a model would be deployed now: `pipelines` times, with up to `standbys` PCs standing by for each."""

    request: DeployRequest
    pipelines: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1
    standbys: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    standby_kind: Literal["warm", "hot"] = "warm"


class PlannedPipeline(msgspec.Struct, frozen=True):
    """One pipeline, and who would stand by for its stages."""

    plan: Plan
    standbys: list[Standby]


class Plans(msgspec.Struct, frozen=True):
    """What would be deployed; `missing` says why it is fewer pipelines than were asked for (empty: it is not)."""

    model: str
    pipelines: list[PlannedPipeline]
    reasons: list[str]
    missing: str = ""


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask which models the fleet can run from `at_s` on for `for_s`, with so much certainty.

    PCs that do not tell when they rest count as resting with `unknown_percent`. `models` empty: all there are.
    """

    at_s: float
    for_s: Annotated[float, msgspec.Meta(gt=0, le=7 * 86_400)] = 3600.0
    certainty_percent: Annotated[float, msgspec.Meta(gt=0, le=100)] = 95.0
    unknown_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
    models: list[Name] = []
    context: Annotated[int, msgspec.Meta(ge=16, le=1 << 20)] = 2048
    streams: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8


class Answers(msgspec.Struct, frozen=True):
    """One answer for each model, each as if it had the fleet for itself: the largest that runs surely comes first."""

    answers: list[Answer]
