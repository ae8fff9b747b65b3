"""The administrator's policy as a signed document: made by the console, judged by the agent. Pure: time is a number.

The body is JSON, the signature of `agent.link.signatures` lies beside it. A document is for one device of one fleet.
Its revision only grows: an older one is refused however well it is signed, and one of the same revision if it says
something else and was not issued later. A document that is refused changes nothing; the last good one stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from cryptography import x509

from agent.link.errors import SignatureRefused
from agent.link.parsing import UNREADABLE
from agent.link.signatures import check_policy
from agent.volunteer.errors import PolicyRefused, WishRefused
from agent.volunteer.policy import Wishes
from agent.volunteer.wishes import check_wishes

SCHEMA = 1
MAX_BODY_BYTES = 192 * 1024
"""More than the longest possible list of programs, and still one control message."""
MAX_REVISION = 2**53
FUTURE_S = 3600.0
"""How far the console's clock may be ahead of what this PC takes for it."""
LIFE_S = 90 * 86_400.0
LONGEST_LIFE_S = 400 * 86_400.0


class PolicyBody(msgspec.Struct, frozen=True):
    """What is signed. Times are the console's Unix time."""

    schema: int
    fleet: str
    device: str
    revision: int
    issued_s: float
    expires_s: float
    wishes: Wishes = Wishes()


class PolicyDocument(msgspec.Struct, frozen=True):
    """A body as it was signed, byte for byte, and its signature."""

    body: bytes
    signature: bytes


def encode_body(body: PolicyBody) -> bytes:
    """Write a body. Only what is well within the limits is ever made: see `check_wishes`."""
    return msgspec.json.encode(body, order="sorted")


def judge_document(
    document: PolicyDocument,
    *,
    fleet: str,
    device: str,
    authorities: Sequence[x509.Certificate],
    now_s: float,
    last: PolicyBody | None,
    kept: bool = False,
) -> PolicyBody:
    """Return what the document says, or raise PolicyRefused.

    A document that was `kept` on this PC may have outlived the certificate it was signed with, and may have expired:
    what it restrains still counts.
    """
    if len(document.body) > MAX_BODY_BYTES:
        raise PolicyRefused(
            f"The policy has {len(document.body)} bytes, and {MAX_BODY_BYTES} at most are read; ask for a shorter one.",
            "size",
        )
    try:
        body = msgspec.json.decode(document.body, type=PolicyBody) if kept else None
        signed_s = now_s if body is None else body.issued_s
        check_policy(document.signature, document.body, authorities, signed_s)
        body = msgspec.json.decode(document.body, type=PolicyBody)
    except SignatureRefused as error:
        raise PolicyRefused(str(error), "signature") from None
    except UNREADABLE as error:
        raise PolicyRefused(f"The policy cannot be read ({error}); update the console.", "malformed") from None
    _check_place(body, fleet, device)
    _check_time(body, now_s, kept=kept)
    try:
        body = msgspec.structs.replace(body, wishes=check_wishes(body.wishes))
    except WishRefused as error:
        raise PolicyRefused(f"The policy is not taken: {error}", "value") from None
    _check_revision(body, last)
    return body


def _check_place(body: PolicyBody, fleet: str, device: str) -> None:
    if body.schema != SCHEMA:
        raise PolicyRefused(
            f"The policy has schema {body.schema}, this agent reads {SCHEMA}; update the older of the two.", "schema"
        )
    if body.fleet != fleet:
        raise PolicyRefused("The policy is of another fleet and is not taken; tell the administrator.", "fleet")
    if body.device != device:
        raise PolicyRefused("The policy is for another PC and is not taken; tell the administrator.", "device")


def _check_time(body: PolicyBody, now_s: float, *, kept: bool) -> None:
    if not 0 <= body.issued_s < body.expires_s <= body.issued_s + LONGEST_LIFE_S:
        raise PolicyRefused("The policy's times make no sense; check the console's clock.", "malformed")
    if kept:
        return
    if body.issued_s > now_s + FUTURE_S:
        raise PolicyRefused("The policy was issued in the future; check this PC's clock and the console's.", "future")
    if body.expires_s <= now_s:
        raise PolicyRefused("The policy has expired; check this PC's clock, then tell the administrator.", "expired")


def _check_revision(body: PolicyBody, last: PolicyBody | None) -> None:
    if not 0 < body.revision <= MAX_REVISION:
        raise PolicyRefused(f"The policy's revision {body.revision} is not possible; tell the administrator.", "value")
    if last is None or body.revision > last.revision:
        return
    # A PC that got another tag gets other wishes of the same revision.
    newer = body.wishes == last.wishes or body.issued_s > last.issued_s
    if body.revision < last.revision or not newer:
        raise PolicyRefused(
            f"The policy's revision {body.revision} is older than {last.revision}, which this PC keeps; change any row "
            "of the policy at the console to get a newer one.",
            "revision",
        )
