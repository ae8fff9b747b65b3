"""Messages of the local control socket, between the running agent and the tray or the command line of the same user.

    client                              service
    Greeting             ──────────►
                         ◄──────────    Greeting, or Refused and the end of the connection (another protocol)
    Subscribe            ──────────►
                         ◄──────────    Status now, and again whenever it changes
    any other order      ──────────►
                         ◄──────────    Told*, then one of the other answers with the order's id

A message is a little-endian length of four bytes and a tagged Struct as msgpack. Unknown fields are ignored, so a tray
one version older or newer is understood; unknown messages and those over the limit are refused and end the connection.
Plain data, no I/O. Times `..._s` that name no clock are Unix seconds; the durations are called `in_s` or `for_s`.
"""

from __future__ import annotations

import struct
from typing import Literal, TypeVar

import msgspec

from agent.control.log_orders import LogLevels, SetLogLevel
from agent.control.status import PolicyValue, Status
from agent.link.parsing import UNREADABLE

PROTOCOL = 1
LENGTH = struct.Struct("<I")
MAX_REQUEST_BYTES = 128 * 1024
"""An order with the longest invite or policy value is far below."""
MAX_ANSWER_BYTES = 1024 * 1024
"""A year of history by the day is 40 KB."""

RefusalCode = Literal["protocol", "bad_message", "not_allowed", "not_now", "unknown", "bad_value", "failed", "denied"]


class ControlProtocolError(Exception):
    """The bytes are not a message of this protocol; the connection ends."""


class Greeting(msgspec.Struct, frozen=True, tag=True):
    """Both sides, first message. `who` names the program: `tray`, `cli`, `service`."""

    protocol: int
    version: str
    who: str
    process_id: int = 0


# Orders: client -> service. `id` is the client's own number for the answer.


class Subscribe(msgspec.Struct, frozen=True, tag=True):
    """Send Status now and at every change. Not answered otherwise."""

    id: int


class Pause(msgspec.Struct, frozen=True, tag=True):
    """Serve nothing: for `for_s` seconds, until tomorrow (04:00 local time), or until Resume."""

    id: int
    until: Literal["time", "tomorrow", "resumed"]
    for_s: float = 0.0
    """With `time`: between 60 and 7 days."""


class Resume(msgspec.Struct, frozen=True, tag=True):
    """End the owner's pause. A pause of the administrator stays."""

    id: int


class Release(msgspec.Struct, frozen=True, tag=True):
    """Give the memory back now: end the stages at once. Volunteering goes on when the PC rests again."""

    id: int


class ContributeNow(msgspec.Struct, frozen=True, tag=True):
    """Do not wait until the owner has been away for long enough, this once. Refused where the policy forbids it."""

    id: int


class SwitchDevice(msgspec.Struct, frozen=True, tag=True):
    """Let one device (`CPU`, `GPU.0`, `NPU`) be used, or not."""

    id: int
    device: str
    on: bool


class ChangeSetting(msgspec.Struct, frozen=True, tag=True):
    """Set what the owner wants of one policy row; None: no wish. Kept, even where something tighter wins."""

    id: int
    field: str
    value: PolicyValue


class QueryHistory(msgspec.Struct, frozen=True, tag=True):
    """Ask what this PC contributed between two times; `by` is how it is summed."""

    id: int
    from_s: float
    to_s: float
    by: Literal["hour", "day"] = "day"


class RunDoctor(msgspec.Struct, frozen=True, tag=True):
    """Examine this PC; takes up to minutes."""

    id: int


class AskProbes(msgspec.Struct, frozen=True, tag=True):
    """Ask what each probe sees now."""

    id: int


class Enrol(msgspec.Struct, frozen=True, tag=True):
    """Join a fleet with an invite. Told comes with the device code while an administrator has to approve."""

    id: int
    invite: str
    name: str = ""
    """What the console calls this PC; empty: its host name."""

    def __repr__(self) -> str:
        return f"Enrol(id={self.id}, name={self.name!r})"  # the invite is a secret


class CancelEnrolment(msgspec.Struct, frozen=True, tag=True):
    """Stop waiting for an administrator's approval: tell the console, forget the request."""

    id: int


class Leave(msgspec.Struct, frozen=True, tag=True):
    """Leave the fleet: tell the console, end everything, delete this PC's identity."""

    id: int


class Quit(msgspec.Struct, frozen=True, tag=True):
    """End the agent. Refused where the policy forbids it; a `reason` may be needed there."""

    id: int
    reason: str = ""


class CheckUpdate(msgspec.Struct, frozen=True, tag=True):
    """Ask the console for a newer version; `now`: install it even while somebody is at this PC."""

    id: int
    now: bool = False


Order = (
    Subscribe
    | Pause
    | Resume
    | Release
    | ContributeNow
    | SwitchDevice
    | ChangeSetting
    | QueryHistory
    | RunDoctor
    | AskProbes
    | Enrol
    | CancelEnrolment
    | Leave
    | Quit
    | CheckUpdate
    | SetLogLevel
)


# Answers: service -> client


class Done(msgspec.Struct, frozen=True, tag=True):
    """The order was carried out. `said` is a sentence for the person who gave it."""

    id: int
    said: str = ""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The order was not carried out; `message` says why and what to do. `id` 0: no order could be read."""

    id: int
    code: RefusalCode
    message: str


class Told(msgspec.Struct, frozen=True, tag=True):
    """An order that takes its time got this far. For Enrol: `phase` is its own, `text` the device code at `pending`."""

    id: int
    phase: str
    text: str = ""


class HistoryRow(msgspec.Struct, frozen=True, array_like=True):
    """What one hour or day (local time, beginning at `start_s`) contributed."""

    start_s: float
    served_s: float
    """How long stages were ready to compute."""
    tokens: int
    """Tokens that passed through this PC's stages, prompts included."""
    energy_wh: float
    """Estimated from computing time; see the settings for the figure it uses."""


class History(msgspec.Struct, frozen=True, tag=True):
    """Answer to QueryHistory: rows with something in them, oldest first."""

    id: int
    rows: list[HistoryRow]


class FindingShown(msgspec.Struct, frozen=True):
    """One line of the doctor: what was looked at, how it is, and what to do."""

    check: str
    verdict: Literal["ok", "problem", "unknown"]
    said: str
    advice: str = ""


class Findings(msgspec.Struct, frozen=True, tag=True):
    """Answer to RunDoctor."""

    id: int
    findings: list[FindingShown]


class ProbeShown(msgspec.Struct, frozen=True):
    """What one probe last saw. `value` is text for people, empty when it does not know."""

    name: str
    value: str
    source: str
    age_s: float


class Probes(msgspec.Struct, frozen=True, tag=True):
    """Answer to AskProbes."""

    id: int
    probes: list[ProbeShown]


Answer = Done | Refused | Told | History | Findings | Probes | LogLevels
FromService = Greeting | Status | Answer

_Message = TypeVar("_Message")

_encoder = msgspec.msgpack.Encoder()
_greeting = msgspec.msgpack.Decoder(Greeting)
_order = msgspec.msgpack.Decoder(Order)
_from_service = msgspec.msgpack.Decoder(FromService)


def encode(message: Greeting | Order | FromService) -> bytes:
    """Serialise one message with its length."""
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


def decode_greeting(body: bytes) -> Greeting:
    """Parse a client's first message. Raises ControlProtocolError."""
    return _decode(_greeting, body)


def decode_order(body: bytes) -> Order:
    """Parse what a client asks after its greeting. Raises ControlProtocolError."""
    return _decode(_order, body)


def decode_from_service(body: bytes) -> FromService:
    """Parse what the service says. Raises ControlProtocolError."""
    return _decode(_from_service, body)


def _decode(decoder: msgspec.msgpack.Decoder[_Message], body: bytes) -> _Message:
    try:
        return decoder.decode(body)
    except UNREADABLE as error:
        raise ControlProtocolError(f"A control message cannot be read ({error}); update the older program.") from None
