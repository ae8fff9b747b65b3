"""What travels on /admin/v1/builds and /folders. Times are Unix seconds, sizes bytes, paths of the console's PC."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

LayerMode = Literal["auto", "gguf", "int4_gptq", "int4_asym", "int4_sym", "int8_asym"]
EndMode = Literal["auto", "gguf", "int8_asym", "int4_asym"]
PlaceText = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
BuildState = Literal["queued", "running", "stopping", "paused", "interrupted", "failed", "cancelled", "built"]
"""`interrupted`: the service ended meanwhile. `built` is the end: the library is there."""
Phase = Literal["opening", "preparing", "layers", "finishing", "evaluating", "done"]
PHASES: tuple[Phase, ...] = ("opening", "preparing", "layers", "finishing", "evaluating", "done")
EntryKind = Literal["folder", "checkpoint", "gguf", "library", "file"]


class BuildRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Make a library at `out` from the Hugging Face folder or `.gguf` file `source`: see `fallow-export build`.

    `draft_for` is the model id of a library whose vocabulary a draft must share (empty: it is no draft). `evaluate`:
    measure the library against its source at the end; `publish`: then make it one that can be deployed.
    """

    source: PlaceText
    out: PlaceText
    layers: LayerMode = "auto"
    ends: EndMode = "auto"
    group_size: Annotated[int, msgspec.Meta(ge=1, le=65_536)] | None = None
    int8_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    context: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] = 0
    draft_for: Annotated[str, msgspec.Meta(max_length=200)] = ""
    replace: bool = False
    evaluate: bool = False
    publish: bool = True


class BuildEstimate(msgspec.Struct, frozen=True):
    """What a build will need and what there is; `problems` are why it would be refused now, each with what to do.

    `library_bytes` is the whole library, `kept_bytes` of it are there already in `kept_layers` finished layers.
    """

    model_id: str
    family: str
    layer_count: int
    source_bytes: int
    library_bytes: int
    kept_layers: int
    kept_bytes: int
    disk_free_bytes: int
    memory_bytes: int
    memory_free_bytes: int
    evaluate_memory_bytes: int
    seconds: float
    problems: list[str] = []
    notes: list[str] = []


class Evaluation(msgspec.Struct, frozen=True):
    """A library against its source, as `fallow-export evaluate` measured it: `mean_kl` in nats."""

    layer_mode: str
    layer_bits_per_weight: float
    positions: int
    top1_agreement: float
    mean_kl: float
    source_perplexity: float
    library_perplexity: float


class Gate(msgspec.Struct, frozen=True):
    """How far the build's own check found the library from its source."""

    top1_agreement: float
    mean_kl: float


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """A build, as it is now.

    `message` says what happened where it does not go on: the cause, what is kept, what to do. `layer` layers of
    `layer_count` are finished, of which `kept_layers` were when it was begun or resumed. `left_s` is the time it will
    still take (None: not known yet); `stalled`: nothing was heard for far longer than a layer takes.
    """

    build_id: str
    request: BuildRequest
    target: str = ""
    """The folder of the library that `draft_for` names."""
    model_id: str
    state: BuildState = "queued"
    phase: Phase = "opening"
    message: str = ""
    error: str = ""
    """What kind of failure it was: the exporter's name of it."""
    by: str = ""
    """Who asked for it."""
    family: str = ""
    layer: int = 0
    layer_count: int = 0
    kept_layers: int = 0
    layer_s: float = 0.0
    """How long a layer takes."""
    left_s: float | None = None
    stalled: bool = False
    created_s: float = 0.0
    begun_s: float | None = None
    """When it was begun or resumed the last time."""
    news_s: float | None = None
    """When the exporter said something the last time."""
    ended_s: float | None = None
    spent_s: float = 0.0
    """How long it worked, all attempts together."""
    memory_bytes: int = 0
    memory_peak_bytes: int = 0
    estimated_memory_bytes: int = 0
    estimated_bytes: int = 0
    estimated_s: float = 0.0
    evaluate_memory_bytes: int = 0
    """What evaluating it is expected to need."""
    notes: list[str] = []
    digest: str = ""
    size_bytes: int = 0
    gate: Gate | None = None
    evaluation: Evaluation | None = None
    evaluation_problem: str = ""
    published: bool = False
    process_id: int = 0
    process_started_s: float = 0.0

    @property
    def goes_on(self) -> bool:
        """Whether it works or waits for its turn."""
        return self.state in {"queued", "running", "stopping"}

    @property
    def resumable(self) -> bool:
        """Whether it can be taken up where it ended."""
        return self.state in {"paused", "interrupted", "failed"}


class Builds(msgspec.Struct, frozen=True):
    """All builds, the latest first; `missing` says what to install where the exporter is not (empty: it is)."""

    builds: list[Build]
    missing: str = ""


class BuildDetail(msgspec.Struct, frozen=True):
    """One build and the end of its log."""

    build: Build
    log: list[str]


class CancelBuild(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """End a build for good; `discard`: remove the layers it finished, which the same build could go on from."""

    discard: bool = False


class Entry(msgspec.Struct, frozen=True):
    """Something in a folder; `size_bytes` of a folder is that of the weights in it, if it is a checkpoint."""

    name: str
    kind: EntryKind
    size_bytes: int = 0


class Folder(msgspec.Struct, frozen=True):
    """What is in a folder of the console's PC; `parent` is empty at the `root`, above which nothing is shown.

    `kind` is what the path itself is; nothing is in a file.
    """

    root: str
    path: str
    parent: str
    entries: list[Entry]
    kind: EntryKind = "folder"
    more: bool = False
    """Whether there is more than fits into an answer."""
