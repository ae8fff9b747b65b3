"""Errors of invites, identities, enrolment, tickets and signatures.

`str(error)` is one sentence that says what happened and what to do. No secret is ever part of it.

LinkError
 ├─ InviteError               an invite cannot be used
 │   ├─ InviteDamaged         the text is not a whole invite
 │   ├─ InviteWrongVersion    made by a newer (or much older) console
 │   ├─ InviteExpired         its time is over
 │   ├─ InviteUsedUp          every use is taken
 │   └─ InviteRefused         unknown to this console, or revoked
 ├─ IdentityError             this PC's identity cannot be used
 │   ├─ IdentityMissing       this PC is not enrolled
 │   ├─ IdentityUnreadable    its files are damaged, or the passphrase does not open the key
 │   ├─ IdentityCopied        it was made on another PC or by another user
 │   └─ KeyLocked             the keyring does not give out the passphrase now
 ├─ TicketRefused             a ticket does not allow a link between agents
 ├─ SignatureRefused          a library is not signed by this fleet's console
 └─ EnrolmentError            enrolling did not succeed
     ├─ ConsoleUnreachable    none of the invite's addresses answers
     ├─ PinMismatch           something answers that is not the invite's fleet
     ├─ TlsInspected          a device between this PC and the console replaces certificates
     ├─ ClockWrong            this PC's clock is too far off to check certificates
     ├─ ProtocolMismatch      the console speaks another protocol version, or not ours at all
     └─ EnrolmentDenied       the console or its administrator said no
"""

from __future__ import annotations


class LinkError(Exception):
    """Base of the tree: `exit_code` is what a command line program ends with."""

    exit_code = 1


class InviteError(LinkError):
    """An invite cannot be used."""

    exit_code = 10


class InviteDamaged(InviteError):
    """The text is not a whole invite."""


class InviteWrongVersion(InviteError):
    """The invite was made by a console of another version."""


class InviteExpired(InviteError):
    """The invite's time is over."""


class InviteUsedUp(InviteError):
    """Every use of the invite is taken."""


class InviteRefused(InviteError):
    """The console does not know the invite, or it was revoked."""


class IdentityError(LinkError):
    """This PC's identity cannot be used."""

    exit_code = 11


class IdentityMissing(IdentityError):
    """This PC is not enrolled."""


class IdentityUnreadable(IdentityError):
    """Files of the identity are damaged, or the passphrase does not open the key."""


class IdentityCopied(IdentityError):
    """The identity was made on another PC or by another user."""


class KeyLocked(IdentityError):
    """The keyring does not give out the passphrase now; trying again later may work."""


class SignatureRefused(LinkError):
    """A library is not signed by this fleet's console."""


class TicketRefused(LinkError):
    """A ticket does not allow a link between agents; `code` is a short reason for programs."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class EnrolmentError(LinkError):
    """Enrolling did not succeed."""

    exit_code = 12


class ConsoleUnreachable(EnrolmentError):
    """None of the invite's addresses answers."""


class PinMismatch(EnrolmentError):
    """Something answers at the invite's address that is not the invite's fleet."""


class TlsInspected(EnrolmentError):
    """A device between this PC and the console replaces certificates."""


class ClockWrong(EnrolmentError):
    """This PC's clock is too far off to check certificates."""


class ProtocolMismatch(EnrolmentError):
    """The console speaks another protocol version, or does not speak ours at all."""


class EnrolmentDenied(EnrolmentError):
    """The console or its administrator said no; `code` is the console's short reason."""

    def __init__(self, message: str, code: str = "denied") -> None:
        super().__init__(message)
        self.code = code
