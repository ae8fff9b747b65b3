"""Messages of the control link: msgpack of tagged Structs, one per websocket message.

`decode_from_agent` and `decode_from_console` accept only their own direction. Unknown fields are ignored, so a peer
one version newer is understood; unknown messages raise `MessageError`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from agent.link.parsing import UNREADABLE
from agent.link.stage_messages import (
    AdvanceEpoch,
    CutDirect,
    DirectRoute,
    DirectState,
    LoadStage,
    StageFailed,
    StageProgress,
    StageReady,
    UnloadStage,
)
from agent.stage.speeds import Measurement
from agent.stage.types import EngineName, Epoch, PipelineId

PROTOCOL, OLDEST_PROTOCOL = 2, 1
"""A console understands agents of the version before; agents are updated after their console.

2: an agent may be held, and may yield.
"""
CONTROL_PATH, DATA_PATH, BULK_PATH, ENROL_PATH = "/control", "/data", "/bulk", "/enrol"
STAGE_PROTOCOL = "fallow-stage/1"
"""ALPN name of a stage's own link, on the same port: frames on the TLS stream, no websocket around them."""
MAX_CONTROL_BYTES = 256 * 1024
"""Manifests do not travel here: a LoadStage names the library by digest and the agent fetches it like any file."""

MAX_NAMED_FILES = 2000
"""In one message, so that it stays far below `MAX_CONTROL_BYTES`; the rest follows in others."""


class MessageError(Exception):
    """The bytes are not a message this side understands; the link is closed with code 4400."""


VolunteerState = Literal["available", "held"]
"""Whether plans may count on the PC: not while it is held, for `reasons` of agent.volunteer.reasons.ReasonCode."""


class Device(msgspec.Struct, frozen=True):
    """One OpenVINO device of a PC; `engines` run on it, the preferred one first. `driver` is its driver's version."""

    name: str
    full_name: str
    memory_bytes: int
    engines: list[EngineName]
    driver: str = ""


class Hello(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console, first message: who I am beside my certificate, what I have, what I already hold."""

    protocol: int
    version: str
    host: str
    os: str
    cores: int
    memory_bytes: int
    """What a stage may use here, in all."""
    devices: list[Device]
    openvino: str
    key_protection: Literal["credential", "keyring", "file"]
    held_sha256: list[str] = []
    mark: str = ""
    """What the console last asked this PC to remember (see MarkKept)."""
    takes_policy: bool = False
    """Whether VolunteerPolicy may be sent here; older agents do not know it."""
    advances: bool = False
    """Whether AdvanceEpoch may be; else a stage is loaded anew."""
    tells_log: bool = False
    """Whether SendLog may be sent here."""
    state: VolunteerState = "available"
    reasons: list[str] = []
    platform: str = ""
    """What releases for this PC are for, such as `linux-x86_64`; empty: OfferRelease must not be sent here."""
    channel: str = "stable"
    """Which releases it takes."""


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """Console -> agent: the link is open; `now_s` is the console's Unix time."""

    device_id: str
    now_s: float
    heartbeat_s: float
    mark: str = ""
    """Save this, say MarkKept, and show it in the next Hello: two PCs with copies of one folder cannot both."""
    route_key: bytes = b""
    """Public half of the key that signs this console's route tickets (Ed25519); empty: direct links are off."""
    hands_over: bool = False
    """Whether a PC that leaves by its own will may wait until others have taken its stages over: it says that it is
    held, without a Yield, and goes once they are unloaded."""
    offers_releases: bool = False
    """Whether AskRelease and UpdateState may be sent here."""


class MarkKept(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: the mark of Welcome is on disk."""

    mark: str


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console, every `heartbeat_s`, and at once when the state changes; more often while it serves a stage."""

    memory_free_bytes: int
    state: VolunteerState = "available"
    reasons: list[str] = []
    next_s: float = 0.0
    """How soon the next one comes; the PC is taken for lost when several of these have passed (0: unsaid)."""


class Yield(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: this PC goes back to its owner. It computes nothing more and is held from now on.

    `epochs` are the (pipeline, epoch) of all its stages; their memory is given back without waiting for anybody.
    """

    epochs: list[tuple[PipelineId, Epoch]]
    reasons: list[str]


class Holding(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: model files that came or went since Hello, and where other PCs may fetch them (`host:port`)."""

    addresses: list[str]
    added: list[str] = []
    removed: list[str] = []


class LayerRange(msgspec.Struct, frozen=True, array_like=True):
    """Layers `first <= i < last` of a library, and what belongs to them."""

    library_digest: str
    first: int
    last: int


class FetchLayers(msgspec.Struct, frozen=True, tag=True):
    """Console -> agent: bring these layers into the store and load nothing; answer LayersFetched."""

    layers: LayerRange
    signature: bytes


class LayersFetched(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: a FetchLayers is done, or why it failed (`problem`)."""

    layers: LayerRange
    problem: str = ""


class Keep(msgspec.Struct, frozen=True, tag=True):
    """Console -> agent: live plans count on these ranges being here; whatever else is held may make room."""

    ranges: list[LayerRange]


class VolunteerPolicy(msgspec.Struct, frozen=True, tag=True):
    """Console -> agent: what the administrator wants, see `agent.volunteer.documents`; answer PolicyKept."""

    body: bytes
    signature: bytes


class PolicyKept(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: the revision that counts here now, and why the last VolunteerPolicy was not taken, if so."""

    revision: int
    code: str = ""
    message: str = ""


class Resting(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console, if its policy allows: how likely this PC rests, in percent for each three hours of its week.

    56 values from Monday 00:00 local time, or none: nothing is known, or nothing told any more.
    """

    blocks: list[int]
    utc_offset_s: float


class Measurements(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: all that was measured here, after Welcome and whenever there is more.

    `down_bytes_per_s` is what the link to the console was last seen to carry (0: not known), at Unix time `down_at_s`
    of the console.
    """

    units: list[Measurement]
    down_bytes_per_s: float = 0.0
    down_at_s: float = 0.0


class SendLog(msgspec.Struct, frozen=True, tag=True):
    """Console -> agent: an administrator wants to see the last lines of the log, at most `lines`; answer LogLines."""

    lines: int


class LogLines(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: what was logged about links, stages and deliveries, the oldest first; nothing of its owner."""

    lines: list[str]


class OfferRelease(msgspec.Struct, frozen=True, tag=True):
    """Console -> agent: the newest release for this PC (see `agent.update.releases`), or none; answer UpdateState.

    Its archive is fetched like any file, by SHA-256. The console's word is worth nothing here: the release is signed.
    """

    signed: bytes = b""


class AskRelease(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: somebody at the PC asks for the newest release; answered by OfferRelease."""


class UpdateState(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: how far an update to `version` is, whenever that changes; `problem` is a sentence."""

    phase: str
    """`off`, `refused`, or one of `agent.update.progress.Phase`."""
    version: str = ""
    problem: str = ""


class Goodbye(msgspec.Struct, frozen=True, tag=True):
    """Either side: the link is about to close, for this reason."""

    code: str
    message: str


FromAgent = (
    Hello
    | Holding
    | LayersFetched
    | MarkKept
    | Heartbeat
    | Yield
    | StageProgress
    | StageReady
    | StageFailed
    | DirectState
    | PolicyKept
    | Resting
    | Measurements
    | LogLines
    | AskRelease
    | UpdateState
    | Goodbye
)
FromConsole = (
    Welcome
    | Keep
    | FetchLayers
    | LoadStage
    | AdvanceEpoch
    | UnloadStage
    | DirectRoute
    | CutDirect
    | VolunteerPolicy
    | SendLog
    | OfferRelease
    | Goodbye
)

_encoder = msgspec.msgpack.Encoder()
_from_agent = msgspec.msgpack.Decoder(FromAgent)
_from_console = msgspec.msgpack.Decoder(FromConsole)


def encode_message(message: FromAgent | FromConsole) -> bytes:
    """Serialise one control message."""
    return _encoder.encode(message)


def decode_from_agent(data: bytes) -> FromAgent:
    """Parse a message an agent sent. Raises MessageError."""
    try:
        return _from_agent.decode(data)
    except UNREADABLE as error:
        raise MessageError(f"The agent sent a message this console does not understand: {error}.") from None


def decode_from_console(data: bytes) -> FromConsole:
    """Parse a message the console sent. Raises MessageError."""
    try:
        return _from_console.decode(data)
    except UNREADABLE as error:
        raise MessageError(f"The console sent a message this agent does not understand: {error}.") from None
