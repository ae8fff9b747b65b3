"""Messages of the enrolment path: msgpack of tagged Structs, one per websocket message.

The path is open to anybody: the console proves itself by TLS, the agent by the MAC of its submission. So every
length is bounded before it is looked at.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated, Literal

import msgspec

from agent.link.authorities import Endorsement
from agent.link.messages import MessageError
from agent.link.parsing import UNREADABLE

PROTOCOL = 1
OLDEST_PROTOCOL = 1
MAX_ENROL_BYTES = 32 * 1024
_MAC_PURPOSE = b"fallow-enrol-1"
_RENEWAL_PURPOSE = b"fallow-renew-1"
_AWAIT_PURPOSE = b"fallow-await-1"

ShortText = Annotated[str, msgspec.Meta(max_length=200)]
LongText = Annotated[str, msgspec.Meta(max_length=2000)]
Nonce = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Pem = Annotated[bytes, msgspec.Meta(max_length=16 * 1024)]


class Facts(msgspec.Struct, frozen=True):
    """What a PC says about itself when it asks to join; shown to the administrator, never trusted."""

    host: ShortText
    os: ShortText
    arch: ShortText
    version: ShortText
    key_protection: Literal["credential", "keyring", "file"] = "file"
    cores: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] = 0
    memory_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 50)] = 0
    devices: Annotated[list[ShortText], msgspec.Meta(max_length=32)] = []
    machine_sha256: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """A hint whether this PC was enrolled before; see binding."""


class EnrolHello(msgspec.Struct, frozen=True, tag=True):
    """Console -> agent, first message. Until the pin is checked only `authorities_pem` is looked at."""

    protocol: int
    oldest_protocol: int
    fleet_id: ShortText
    fleet_name: ShortText
    now_s: float
    nonce: Nonce
    authorities_pem: Pem
    endorsements: Annotated[list[Endorsement], msgspec.Meta(max_length=64)] = []
    """Which of these roots vouch for which: see `agent.link.authorities`."""


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: a certificate request (DER), bound to the invite's secret and to this TLS peer by the MAC."""

    protocol: int
    token_id: Annotated[bytes, msgspec.Meta(min_length=8, max_length=8)]
    csr: Annotated[bytes, msgspec.Meta(max_length=4096)]
    nonce: Nonce
    facts: Facts
    mac: Digest


class Renew(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: certify my next key. Works after the certificate's end too, so it needs no TLS of its own.

    `certificate` (DER) is the last one this PC was given and `generation` its number; `signature` (ECDSA, SHA-256)
    over `renewal_content` proves its key.
    """

    protocol: int
    certificate: Annotated[bytes, msgspec.Meta(max_length=8192)]
    csr: Annotated[bytes, msgspec.Meta(max_length=4096)]
    generation: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
    nonce: Nonce
    signature: Annotated[bytes, msgspec.Meta(max_length=128)]


class Await(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: is there an answer to what I submitted in an earlier life? Needs no invite.

    `csr` is of the key of the submission; `signature` (ECDSA, SHA-256) over `await_content` proves its key. With
    `withdraw` this PC no longer wants in.
    """

    protocol: int
    csr: Annotated[bytes, msgspec.Meta(max_length=4096)]
    nonce: Nonce
    signature: Annotated[bytes, msgspec.Meta(max_length=128)]
    withdraw: bool = False


class Poll(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: is there an answer to what I submitted on this connection?"""


class Diagnose(msgspec.Struct, frozen=True, tag=True):
    """Agent -> console: why was my certificate (DER), or else the key with this hash, refused?"""

    certificate: Annotated[bytes, msgspec.Meta(max_length=8192)] = b""
    spki_sha256: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""


class Pending(msgspec.Struct, frozen=True, tag=True):
    """Console -> agent: an administrator must approve; ask again in about `poll_s` seconds."""

    poll_s: float


class Granted(msgspec.Struct, frozen=True, tag=True):
    """Console -> agent: the certificate, and every authority to trust from now on."""

    device_id: ShortText
    certificate_pem: Pem
    authorities_pem: Pem
    generation: int = 1
    """How many certificates this PC has been given."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Console -> agent: no. Codes: `invite_unknown`, `invite_expired`, `invite_used_up`, `invite_revoked`; `request`,
    `protocol`, `busy`, `wrong_key`, `unknown`; or the state of the device (`evicted`, `banned`, ...)."""

    code: ShortText
    message: LongText


class Diagnosis(msgspec.Struct, frozen=True, tag=True):
    """Console -> agent: why links are refused. Codes: `ok`, those of NotAuthorised, `expired`."""

    code: ShortText
    message: LongText


FromEnrollee = Submit | Renew | Await | Poll | Diagnose
FromEnroller = EnrolHello | Pending | Granted | Refused | Diagnosis

_encoder = msgspec.msgpack.Encoder()
_from_agent = msgspec.msgpack.Decoder(FromEnrollee)
_from_console = msgspec.msgpack.Decoder(FromEnroller)


def encode_enrol(message: FromEnrollee | FromEnroller) -> bytes:
    """Serialise one message."""
    return _encoder.encode(message)


def decode_from_enrollee(data: bytes | str) -> FromEnrollee:
    """Parse a message an agent sent. Raises MessageError."""
    if isinstance(data, str):
        raise MessageError("The agent sent text where a message was expected.")
    try:
        return _from_agent.decode(data)
    except UNREADABLE as error:
        raise MessageError(f"The agent sent a message this console does not understand: {error}.") from None


def decode_from_enroller(data: bytes | str) -> FromEnroller:
    """Parse a message the console sent. Raises MessageError."""
    if isinstance(data, str):
        raise MessageError("The console sent text where a message was expected.")
    try:
        return _from_console.decode(data)
    except UNREADABLE as error:
        raise MessageError(f"The console sent a message this agent does not understand: {error}.") from None


def submission_mac(
    secret_sha256: bytes, console_nonce: bytes, agent_nonce: bytes, csr: bytes, server_certificate: bytes
) -> bytes:
    """Bind a request to the invite's secret, to this conversation and to the console's certificate (DER).

    The console's nonce keeps a recorded submission from being played again; its certificate keeps one from being
    forwarded to another console.
    """
    content = console_nonce + agent_nonce + hashlib.sha256(csr).digest() + hashlib.sha256(server_certificate).digest()
    return hmac.digest(secret_sha256, _MAC_PURPOSE + content, "sha256")


def renewal_content(console_nonce: bytes, server_certificate: bytes, message: Renew) -> bytes:
    """Return what the present key signs to ask for the next: bound to this conversation and this console.

    Everything of `message` but its signature counts.
    """
    parts = (message.csr, server_certificate, message.certificate)
    digests = b"".join(hashlib.sha256(part).digest() for part in parts)
    return _RENEWAL_PURPOSE + console_nonce + message.nonce + digests + message.generation.to_bytes(8, "little")


def await_content(console_nonce: bytes, server_certificate: bytes, message: Await) -> bytes:
    """Return what the key of a submission signs to ask for its answer: bound to this conversation and this console.

    Everything of `message` but its signature counts.
    """
    digests = hashlib.sha256(message.csr).digest() + hashlib.sha256(server_certificate).digest()
    return _AWAIT_PURPOSE + console_nonce + message.nonce + digests + bytes([message.withdraw])
