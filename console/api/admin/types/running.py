"""What is heard of a deployment on its way, and how the service is. Times are Unix seconds, sizes bytes."""

from __future__ import annotations

from typing import Literal

import msgspec

from console.api.admin.types.models import DeployRequest, StandbyKind
from console.fleet.direct import StageLink
from console.pipeline.parts import StageTime, TimeParts
from console.pipeline.types import Ending, QueuedAnswer, SpeculationStatus, StageStatus


class PlannedStage(msgspec.Struct, frozen=True):
    """Layers `first <= i < last` on a PC."""

    stage: int
    device_id: str
    device_name: str
    first: int
    last: int


class Planned(msgspec.Struct, frozen=True, tag="planned"):
    """The plan and its reasons."""

    stages: list[PlannedStage]
    reasons: list[str]
    epoch: int


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    """How far a stage is: bytes in phase `fetch`, 0 of 1 in `load`."""

    stage: int
    device_name: str
    phase: str
    done: int
    total: int


class StageUp(msgspec.Struct, frozen=True, tag="stage_up"):
    """A stage is loaded and said what it is."""

    stage: int
    device_name: str
    engine: str
    fused: bool
    load_ms: float
    memory_bytes: int
    note: str = ""


class Note(msgspec.Struct, frozen=True, tag="note"):
    """Something whoever deploys should know."""

    message: str


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The model answers: a real token came through all stages in `probe_ms`."""

    model: str
    probe_ms: float


class Broken(msgspec.Struct, frozen=True, tag="failed"):
    """The deployment failed and nothing of it is left; `device_name` names the PC when one is the cause.

    What was served before is served on, or comes back by itself if it had to make room.
    """

    code: str
    message: str
    device_id: str = ""
    device_name: str = ""


DeployEvent = Planned | Loading | StageUp | Note | Ready | Broken


class Probe(msgspec.Struct, frozen=True):
    """The last real one-token probe through all stages: `age_s` ago; never done when `age_s` is None."""

    ok: bool = False
    age_s: float | None = None
    ms: float = 0.0
    message: str = "No probe has run yet."


DeploymentState = Literal["waiting", "deploying", "ready", "recovering", "failed"]
"""`recovering`: a PC was lost, others take over, and the answers wait for them."""


class StandbyView(msgspec.Struct, frozen=True):
    """A PC in reserve for layers `first <= i < last`; `ready`: it has them."""

    device_id: str
    device_name: str
    kind: StandbyKind
    first: int
    last: int
    ready: bool = True


class PipelineView(msgspec.Struct, frozen=True):
    """A deployment: what was asked, how it is, who serves it. Speeds are over the last seconds.

    `endings` counts the answers since it was deployed by how they ended. `pace` says how the running
    answers share the stages, and why; `queue` is who waits, in order, and `kept` how many finished answers are cached.
    """

    model: str
    state: DeploymentState
    message: str
    epoch: int
    probe: Probe
    request: DeployRequest
    stages: list[StageStatus] = []
    links: list[StageLink] = []
    """How steps reach each stage."""
    tokens_per_second: float = 0.0
    overhead_ms: float = 0.0
    running: int = 0
    queued: int = 0
    endings: dict[Ending, int] = {}
    pace: str = ""
    queue: list[QueuedAnswer] = []
    kept: int = 0
    speculation: SpeculationStatus = SpeculationStatus()
    standbys: list[StandbyView] = []
    number: int = 0
    """Which of the model's `request.replicas` pipelines this is."""


class Status(msgspec.Struct, frozen=True):
    """The whole service at a glance."""

    version: str
    started_s: float
    api_url: str
    agents_urls: list[str]
    agents_connected: int
    agents_known: int
    pipelines: list[PipelineView]


class ModelPerformance(msgspec.Struct, frozen=True):
    """How fast a model answered, as whoever asked saw it: 95 of 100 times were at most as long; None: there were none.

    The first three are of the last five minutes; the lists have a value for each of `Performances.bucket_s`, the oldest
    first, up to the one that is not over yet.
    """

    model: str
    answers: int
    first_token_ms: float | None
    between_tokens_ms: float | None
    tokens_per_second: list[float]
    first_token_ms_then: list[float | None]
    between_tokens_ms_then: list[float | None]


class Performances(msgspec.Struct, frozen=True):
    """How fast each model answered in the last quarter of an hour."""

    bucket_s: float
    models: list[ModelPerformance]


AnswerOrder = Literal["slowest", "newest"]


class AnswerTime(msgspec.Struct, frozen=True):
    """An answer that ended at Unix time `ended_s`, and where its time went: nothing of what was asked or said.

    `code` is that of the error it ended with. `stages` are the PCs' shares of the steps after the prompt, `slowest`
    says in a sentence what took longest. An answer that ended before its first token has that time as `first_token_ms`.
    """

    ended_s: float
    request_id: str
    key_id: str
    model: str
    pipeline: int
    ending: Ending
    code: str
    prompt_tokens: int
    cached_tokens: int
    answer_tokens: int
    first_token_ms: float
    total_ms: float
    parts: TimeParts
    stages: list[StageTime]
    pcs: list[str]
    drafted: int
    accepted: int
    slowest: str


class AnswerTimes(msgspec.Struct, frozen=True):
    """Answers of the last hour, of the last thousand."""

    answers: list[AnswerTime]
