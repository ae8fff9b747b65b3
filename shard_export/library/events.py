"""What a build reports while it runs; each event is one JSON object with its `type`."""

from __future__ import annotations

import msgspec


class BuildStarted(msgspec.Struct, frozen=True, tag="started", tag_field="type"):
    """The checkpoint is open and its tensors are accounted for.

    `estimated_bytes` is the library's size, `estimated_memory_bytes` the peak of the process. `finished_layers` were
    made by an earlier build; `restarted_because` says why one was not continued (empty: there was none, or it was).
    `notes` says how the source is read where that is not plain.
    """

    model_id: str
    family: str
    layer_count: int
    estimated_bytes: int
    ignored_tensors: dict[str, str] = {}
    estimated_memory_bytes: int = 0
    estimated_seconds: float = 0.0
    finished_layers: int = 0
    restarted_because: str = ""
    notes: list[str] = []


class LayerDone(msgspec.Struct, frozen=True, tag="layer", tag_field="type"):
    """A layer is written. `eta_s` is the time the remaining layers will take."""

    index: int
    layer_count: int
    seconds: float
    eta_s: float
    fp32_error: float
    compressed_error: float


class BuildPublished(msgspec.Struct, frozen=True, tag="published", tag_field="type"):
    """The library is complete at its place; `library_digest` is the SHA-256 of its manifest."""

    folder: str
    library_digest: str
    size_bytes: int
    seconds: float
    top1_agreement: float
    mean_kl: float


class BuildAdvice(msgspec.Struct, frozen=True, tag="advice", tag_field="type"):
    """What another package (`transformers`, `torch`) says about the model: for programmers, seldom for users."""

    package: str
    message: str


class BuildFailed(msgspec.Struct, frozen=True, tag="failed", tag_field="type"):
    """The build ended without a library; `error` is the exception's class, `message` its sentence."""

    error: str
    message: str
    exit_code: int


BuildEvent = BuildStarted | BuildAdvice | LayerDone | BuildPublished | BuildFailed
