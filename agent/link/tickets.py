"""Tickets: the console's short-lived word that one agent may feed another, or fetch from it. Pure: time is a number.

A ticket is an Ed25519 signature over a purpose and a msgpack body, then the body. The console makes its key when it
starts and tells the agents the public half in `Welcome`, over their own verified link; so nothing on any disk can sign
a ticket, and the tickets of a console end with it. Times are the console's Unix time.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from agent.link.errors import TicketRefused
from agent.link.parsing import UNREADABLE
from agent.stage.types import Epoch, PipelineId

LIFE_S = 300.0
MAX_TICKET_BYTES = 1024
_SIGNATURE_BYTES = 64


class RouteTicket(msgspec.Struct, frozen=True, array_like=True):
    """`sender` may send the STEP frames of `pipeline` for `stage` in `epoch` to `receiver` until `expires_s`."""

    pipeline: PipelineId
    epoch: Epoch
    stage: int
    """The receiver's; the sender holds the one before it."""
    sender: str
    receiver: str
    expires_s: float


class FileTicket(msgspec.Struct, frozen=True, array_like=True):
    """`reader` may fetch model files from `holder` until `expires_s`."""

    reader: str
    holder: str
    expires_s: float


Ticket = TypeVar("Ticket", RouteTicket, FileTicket)

_PURPOSES: dict[type, bytes] = {
    RouteTicket: b"fallow route ticket 1\0",
    FileTicket: b"fallow file ticket 1\0",
}
"""Signed with every ticket, so that none can pass for one of another kind, nor anything else the key may sign."""


def seal(ticket: RouteTicket | FileTicket, key: Ed25519PrivateKey) -> bytes:
    """Sign a ticket."""
    body = msgspec.msgpack.encode(ticket)
    return key.sign(_PURPOSES[type(ticket)] + body) + body


def unseal(data: bytes, public_key: bytes, now_s: float, kind: type[Ticket]) -> Ticket:
    """Check a ticket's signature and time, before anything of it is parsed. Raises TicketRefused."""
    if not _SIGNATURE_BYTES < len(data) <= MAX_TICKET_BYTES:
        raise TicketRefused(f"A ticket cannot have {len(data)} bytes.", "malformed")
    signature, body = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES:]
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, _PURPOSES[kind] + body)
        ticket = msgspec.msgpack.decode(body, type=kind)
    except (InvalidSignature, ValueError, *UNREADABLE):
        raise TicketRefused("The ticket is not signed by this console.", "signature") from None
    # The upper bound keeps a ticket that was made with a wrong clock from living for ever.
    if not now_s <= ticket.expires_s <= now_s + 2 * LIFE_S:
        raise TicketRefused("The ticket has expired.", "expired")
    return ticket
