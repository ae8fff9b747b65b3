"""What travels on /admin/v1, shared by the routes and their clients. Times are Unix seconds, sizes bytes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from agent.stage.types import CacheChoice, EngineChoice, Numerics
from agent.volunteer.wishes import PlainValue
from console.fleet.direct import StageLink
from console.pipeline.types import Ending, QueuedAnswer, SpeculationStatus, StageStatus
from console.planner.types import Crossing
from console.registry.records import ApiKey, AuditEntry, InviteRecord, LibraryRecord, Quota, Role, Scope, User

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Password = Annotated[str, msgspec.Meta(max_length=1024)]
ReasonText = Annotated[str, msgspec.Meta(max_length=400)]
TagList = Annotated[list[Annotated[str, msgspec.Meta(min_length=1, max_length=64)]], msgspec.Meta(max_length=32)]
Link = Literal["connected", "offline"]


class NewInvite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask for an invite usable by `uses` PCs for `hours`."""

    uses: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    hours: Annotated[float, msgspec.Meta(gt=0, le=24 * 30)] = 24.0
    auto_approve: bool = False
    hint: Annotated[str, msgspec.Meta(max_length=200)] = ""
    tags: TagList = []
    """Given to the PCs that use the invite."""
    networks: Annotated[list[Name], msgspec.Meta(max_length=64)] = []
    """With `names` and `keyring` the rule of automatic approval: see ApprovalRule."""
    names: Annotated[list[Name], msgspec.Meta(max_length=64)] = []
    keyring: bool = False


class Invite(msgspec.Struct, frozen=True):
    """A new invite. `text` holds the secret and is shown only this once."""

    token_id: str
    text: str
    expires_s: float


class Invites(msgspec.Struct, frozen=True):
    """All invites, without their secrets."""

    invites: list[InviteRecord]


class Agent(msgspec.Struct, frozen=True):
    """A PC as the admin sees it: its record and, while connected, what it said last."""

    device_id: str
    name: str
    state: str
    reason: str
    device_code: str
    link: Link
    seen_s: float | None
    os: str = ""
    version: str = ""
    memory_bytes: int = 0
    memory_free_bytes: int = 0
    devices: list[str] = []
    volunteering: str = ""
    held_because: list[str] = []
    key_protection: str = ""
    tags: list[str] = []
    console: str = ""
    """The console it is connected to, of several that share a registry; empty: this one."""
    same_machine: list[str] = []
    """Other records that seem to be of the same machine: candidates for a merge."""
    rests_percent: int | None = None
    """How likely it rests in the next hours, by its habits; None: it does not tell."""


class Agents(msgspec.Struct, frozen=True):
    """The fleet."""

    agents: list[Agent]


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a PC is denied or suspended; its user reads it."""

    reason: ReasonText = ""


class Revocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Take a PC out of the fleet; a banned one (`ban`, or `how`) cannot enrol again with any key it had."""

    ban: bool = False
    how: Literal["evict", "ban", "retire"] = "evict"
    reason: ReasonText = ""


class Tags(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A PC's tags from now on."""

    tags: TagList


class Merge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Let a PC that was enrolled anew take over from its `former` record (id or code)."""

    former: Name


class AuthorityView(msgspec.Struct, frozen=True):
    """The fleet's certificate authority. `pin` is in new invites; `roots` are serial numbers, the signing one first.

    `phase`: `steady`; `announced` (PCs learn the next root); `switched` (the former one is still trusted).
    `next_step_s` is when the next step comes by itself.
    """

    fleet_id: str
    fleet_name: str
    pin: str
    phase: Literal["steady", "announced", "switched"]
    next_step_s: float
    roots: list[str]
    key_protection: str


class Rotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Announce the next root; `at_once`: let it sign at once, because the present one's key may be stolen."""

    at_once: bool = False


class NewLibrary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Register a library folder on the console's own disk."""

    folder: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class Library(msgspec.Struct, frozen=True):
    """A registered library; `problem` says why it cannot be used now (empty: it can)."""

    digest: str
    model_id: str
    folder: str
    added_s: float
    layer_count: int = 0
    size_bytes: int = 0
    context_tokens: int = 0
    problem: str = ""
    role: str = "target"

    @staticmethod
    def unreadable(record: LibraryRecord, problem: str) -> Library:
        return Library(record.digest, record.model_id, record.folder, record.added_s, problem=problem)


class Libraries(msgspec.Struct, frozen=True):
    """All registered libraries."""

    libraries: list[Library]


StandbyKind = Literal["hot", "warm"]
"""A hot standby has a stage loaded, a warm one has the units on its disk."""


class PinnedPc(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A PC that has to be part of a plan; with both of `first` and `last` it runs exactly these layers."""

    device: Name
    first: Annotated[int, msgspec.Meta(ge=0, le=100_000)] | None = None
    last: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None = None

    def __post_init__(self) -> None:
        if (self.first is None) != (self.last is None) or (self.first or 0) >= (self.last or 1):
            raise ValueError("A pin has both of first and last, the first one smaller, or none of them")


class LimitedPc(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most one PC gives to this model, whatever it could."""

    device: Name
    memory_mb: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] | None = None
    layers: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None = None


class PlanRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a plan has to obey: see `console.planner.types.Rules`. PCs are ids, beginnings of ids, or device codes."""

    exclude: Annotated[list[Name], msgspec.Meta(max_length=10_000)] = []
    pins: Annotated[list[PinnedPc], msgspec.Meta(max_length=256)] = []
    limits: Annotated[list[LimitedPc], msgspec.Meta(max_length=10_000)] = []
    crossing: Crossing = "none"
    tokens_per_second: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    least_stay_percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 50


class DeployRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask for a model to be served. `stages` None: the planner chooses; `devices` empty: any PC may be used.

    `cache` is how keys and values are kept, `cache_mb` the memory for them on each PC (0: `streams` of `context`).
    `draft` says where guesses of the next tokens come from: `lookup`, `none`, or the model id of a draft's library.
    `rules` are what the plan has to obey.
    """

    model: Name
    stages: Annotated[int, msgspec.Meta(ge=1, le=256)] | None = None
    numerics: Numerics = "fast"
    engine: EngineChoice = "auto"
    context: Annotated[int, msgspec.Meta(ge=16, le=1 << 20)] = 2048
    streams: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    devices: list[str] = []
    cache: CacheChoice = "auto"
    cache_mb: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] = 0
    draft: Name = "lookup"
    standbys: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """How many more PCs are kept to take a lost stage over."""
    standby: StandbyKind = "warm"
    recover_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 60.0
    """How long answers wait for other PCs after a loss before they end with an error."""
    rules: PlanRules = PlanRules()
    replicas: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """How many pipelines serve it side by side, each on PCs of its own; every answer goes to one of them."""


class DeliveryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bring a model's layers to PCs before they are needed, 5 % of them first, then 50 %, then all.

    `last` None: to the end; `devices` empty: every PC that is connected.
    """

    model: Name
    first: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    last: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None = None
    devices: list[str] = []


class DeliveryView(msgspec.Struct, frozen=True):
    """A delivery under way: layers `first <= i < last`; of `total` PCs so many have them, and so many failed."""

    model: str
    first: int
    last: int
    total: int
    delivered: int
    failed: int
    begun_s: float


class Deliveries(msgspec.Struct, frozen=True):
    """All deliveries under way."""

    deliveries: list[DeliveryView]


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


class PolicyScope(msgspec.Struct, frozen=True):
    """What the administrator wants of the PCs with `tag`, or of all (empty): only rows that say something."""

    tag: str
    values: dict[str, PlainValue]
    revision: int
    updated_s: float


class PolicyRefusal(msgspec.Struct, frozen=True):
    """A PC that does not take the policy: the revision it keeps, and its sentence."""

    device_id: str
    name: str
    revision: int
    message: str


class PolicyView(msgspec.Struct, frozen=True):
    """What is wanted of volunteering PCs. `built_in` is what holds where nobody says anything."""

    scopes: list[PolicyScope]
    refusals: list[PolicyRefusal]
    built_in: dict[str, PlainValue]


class PolicyChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Set rows for all PCs (`tag` empty) or those with a tag; null takes a row back."""

    values: Annotated[dict[str, PlainValue], msgspec.Meta(min_length=1, max_length=100)]
    tag: Annotated[str, msgspec.Meta(max_length=64)] = ""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a key may use; None and [] mean no limit."""

    streams: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    tokens_per_day: Annotated[int, msgspec.Meta(ge=0, le=1 << 50)] | None = None
    models: Annotated[list[Name], msgspec.Meta(max_length=100)] = []

    def quota(self) -> Quota:
        return Quota(self.streams, self.tokens_per_day, self.models)


class NewKey(Limits, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Ask for an API key; `days` None: it does not expire. `user`: whose it is (empty: nobody's)."""

    name: Name
    scope: Scope = "chat"
    days: Annotated[float, msgspec.Meta(gt=0, le=3650)] | None = None
    user: Annotated[str, msgspec.Meta(max_length=64)] = ""


class Key(msgspec.Struct, frozen=True):
    """A new key; `secret` is shown only this once."""

    key: ApiKey
    secret: str


class Keys(msgspec.Struct, frozen=True):
    """All keys, without their secrets."""

    keys: list[ApiKey]


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Log in."""

    name: Name
    password: Password

    def __repr__(self) -> str:
        return f"Login(name={self.name!r})"


class Me(msgspec.Struct, frozen=True):
    """Who the sender of a token is and what it may do; `user` is empty for a key of nobody's."""

    key_id: str
    user: str
    scopes: list[Scope]
    quota: Quota = Quota()


class Session(msgspec.Struct, frozen=True):
    """A login. `token` is sent like an API key and shown only this once."""

    token: str
    expires_s: float
    me: Me


class OwnPassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Change one's own password; every session ends, this one too."""

    password: Password
    new_password: Password

    def __repr__(self) -> str:
        return "OwnPassword()"


class NewUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Add a user; without a password they cannot log in, but may own keys."""

    name: Name
    role: Role = "user"
    password: Password | None = None

    def __repr__(self) -> str:
        return f"NewUser(name={self.name!r})"


class UserChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Change what is given; a password of null takes it away."""

    role: Role | msgspec.UnsetType = msgspec.UNSET
    password: Password | msgspec.UnsetType | None = msgspec.UNSET
    disabled: bool | msgspec.UnsetType = msgspec.UNSET

    def __repr__(self) -> str:
        return "UserChange()"


class Users(msgspec.Struct, frozen=True):
    """All users."""

    users: list[User]


class Audit(msgspec.Struct, frozen=True):
    """Entries of the audit log, newest first."""

    entries: list[AuditEntry]


class VerifyAudit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Check the audit log, and that entry `sequence` still has the `hash` noted before (empty: none was)."""

    sequence: Annotated[int, msgspec.Meta(ge=0)] = 0
    hash: Annotated[str, msgspec.Meta(max_length=64)] = ""


class Done(msgspec.Struct, frozen=True):
    """A change was made."""

    done: bool = True
    detail: dict[str, Any] = {}
