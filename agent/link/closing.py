"""Why a link was closed or refused: close codes, the reason text, and the typed errors made of them. No I/O here.

LinkError
 └─ LinkDown                 the link is not usable
     ├─ LinkCut              the network or the other program went away; trying again is right
     ├─ LinkStalled          4408: one side stopped reading or answering
     ├─ LinkDraining         4503: the console is restarting
     ├─ ConsoleNotTrusted    what answers has no certificate of this fleet
     └─ LinkRefused          trying again at once cannot help
         ├─ FrameRefused     4400 or 1009: the console could not read what we sent
         ├─ NotRecognised    4401: the console does not know this certificate
         ├─ NotApproved      4403: known but not allowed: pending, suspended, revoked
         ├─ DuplicateSession 4409: another program runs with this identity
         └─ UpgradeNeeded    4426: the console speaks a newer protocol
"""

from __future__ import annotations

import enum

from agent.link.errors import LinkError

MAX_REASON_BYTES = 123
"""What a websocket close frame has room for."""


class CloseCode(enum.IntEnum):
    """Application close codes, the same on both sides."""

    GOING_AWAY = 1001
    BAD_FRAME = 4400
    NOT_RECOGNISED = 4401
    NOT_APPROVED = 4403
    STALLED = 4408
    DUPLICATE = 4409
    UPGRADE = 4426
    DRAINING = 4503


class LinkDown(LinkError):
    """A link is not usable; `code` is a short reason for programs."""

    exit_code = 13

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class LinkCut(LinkDown):
    """The network or the other program went away."""


class LinkStalled(LinkDown):
    """One side stopped reading or answering."""


class LinkDraining(LinkDown):
    """The console is restarting."""


class ConsoleNotTrusted(LinkDown):
    """What answers at the console's address has no certificate of this fleet."""


class LinkRefused(LinkDown):
    """The console does not want this link as it is."""

    exit_code = 14


class FrameRefused(LinkRefused):
    """The console could not read what this agent sent."""


class NotRecognised(LinkRefused):
    """The console does not know this certificate."""


class NotApproved(LinkRefused):
    """The console knows this PC but does not let it in (pending, suspended, revoked)."""


class DuplicateSession(LinkRefused):
    """Another program runs with this identity."""


class UpgradeNeeded(LinkRefused):
    """The console speaks a newer protocol."""


_ERRORS: dict[int, tuple[type[LinkDown], str]] = {
    CloseCode.BAD_FRAME: (FrameRefused, "The console could not read what this agent sent; update the agent."),
    1009: (FrameRefused, "The console refused a message as too large; update the agent."),
    CloseCode.NOT_RECOGNISED: (NotRecognised, "The console does not know this PC; enrol it again with a new invite."),
    CloseCode.NOT_APPROVED: (NotApproved, "The console does not let this PC in; ask its administrator."),
    CloseCode.STALLED: (LinkStalled, "The link stalled and was closed; it is dialled again."),
    CloseCode.DUPLICATE: (
        DuplicateSession,
        "Another agent runs with this PC's identity; stop it, or enrol this copy with a new invite.",
    ),
    CloseCode.UPGRADE: (UpgradeNeeded, "The console speaks a newer protocol; update the agent."),
    CloseCode.DRAINING: (LinkDraining, "The console is restarting; the link is dialled again."),
}


def close_reason(code: str, message: str) -> str:
    """Build a close reason that fits its frame: `code: message`, cut at a character border."""
    return f"{code}: {message}".encode()[:MAX_REASON_BYTES].decode("utf-8", errors="ignore")


def error_of(close_code: int | None, reason: str | None) -> LinkDown:
    """Turn how a link ended into an error. The console's own sentence wins over the general one."""
    kind, sentence = _ERRORS.get(
        close_code or 0, (LinkCut, "The connection to the console was lost; it is dialled again.")
    )
    code, separator, message = (reason or "").partition(": ")
    if not separator or kind is LinkCut:
        return kind(sentence, code if separator else "")
    return kind(message if message.endswith((".", "!", "?")) else f"{sentence[:-1]} ({message}).", code)
