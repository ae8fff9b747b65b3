"""Messages of the control link about one stage: loading it, keeping it through a new plan, its direct links, its end.

They are part of what `messages.py` encodes and decodes. Plain data.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from agent.stage.types import CacheChoice, EngineChoice, Epoch, Numerics, PipelineId, StageReport


class LoadStage(msgspec.Struct, frozen=True, tag=True):
    """Console -> agent: fetch what you lack, load this range, answer StageReady or StageFailed."""

    pipeline: PipelineId
    epoch: Epoch
    stage: int
    library_digest: str
    """SHA-256 of the manifest's bytes: fetched first, by that name, on the bulk link."""
    first: int
    last: int
    engine: EngineChoice
    numerics: Numerics
    device: str
    context_tokens: int
    streams: int
    cache: CacheChoice = "auto"
    kv_bytes: int = 0
    """Memory for the cache; 0: as much as `streams` of `context_tokens` take."""
    direct: bool = False
    """Whether this PC may listen for the stage before it, while it serves this one."""
    signature: bytes = b""
    """The console's word for `library_digest`, see `agent.link.signatures`."""


class AdvanceEpoch(msgspec.Struct, frozen=True, tag=True):
    """Console -> agent: the plan changed around a stage you hold in epoch `former`: keep it, as `stage` of `epoch`.

    Its streams are forgotten, what it has not computed yet is dropped. Answer StageReady or StageFailed.
    """

    pipeline: PipelineId
    former: Epoch
    epoch: Epoch
    stage: int


class UnloadStage(msgspec.Struct, frozen=True, tag=True):
    """Console -> agent: end this pipeline's stage and free its memory."""

    pipeline: PipelineId


class DirectRoute(msgspec.Struct, frozen=True, tag=True):
    """Console -> agent: send the STEP frames for `stage` straight to `device_id`, if it can be reached.

    Said again with a fresh `ticket` before the old one expires. `addresses` are `host:port`, the likeliest first.
    """

    pipeline: PipelineId
    epoch: Epoch
    stage: int
    """The receiver's."""
    device_id: str
    addresses: list[str]
    ticket: bytes


class CutDirect(msgspec.Struct, frozen=True, tag=True):
    """Console -> agent: close this pipeline's direct links at once, in and out; the relay carries its frames."""

    pipeline: PipelineId


class DirectState(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console, from the sender: whether its direct link to `stage` is up, and why not."""

    pipeline: PipelineId
    epoch: Epoch
    stage: int
    up: bool
    reason: str = ""
    round_trip_ms: float = 0.0


class StageProgress(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: how far a LoadStage is. `done` and `total` are bytes while fetching, 0/1 while loading."""

    pipeline: PipelineId
    epoch: Epoch
    stage: int
    phase: Literal["fetch", "load"]
    done: int
    total: int


class StageReady(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: the stage is loaded and passed its own probe, or is in its new epoch."""

    pipeline: PipelineId
    epoch: Epoch
    stage: int
    report: StageReport


class StageFailed(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: the stage could not be loaded, or its child process ended.

    Codes: `unsigned`, `fetch`, `damaged`, `memory`, `load`, `mismatch`, `died`, `held` (this PC is not available),
    `stale` (there is no stage that could go on in another epoch).
    """

    pipeline: PipelineId
    epoch: Epoch
    stage: int
    code: str
    message: str
