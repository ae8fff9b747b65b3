"""Errors of the registry and the certificate authority.

RegistryError
 ├─ RegistryUnreadable   the database or the authority's files cannot be opened or are damaged
 ├─ RegistryTooNew       written by a newer console
 ├─ NotFound             no such device, invite, user, key or library
 ├─ WrongState           the record's state does not allow the change
 ├─ PasswordUnfit        a new password is too short or too long
 ├─ AuditBroken          the audit log was changed: `sequence` is the first entry that is not as it was written
 ├─ InviteNotUsable      an invite cannot be redeemed; `code` says why
 ├─ RequestRefused       a certificate request is not acceptable
 ├─ Cloned               two PCs use one device's identity
 └─ NotAuthorised        a peer may not use a link; `close_code` is 4401 or 4403
"""

from __future__ import annotations

from typing import Literal

InviteProblem = Literal["unknown", "expired", "used_up", "revoked"]


class RegistryError(Exception):
    """Base of the package: `str(error)` is one sentence saying what happened and what to do."""

    exit_code = 20


class RegistryUnreadable(RegistryError):
    """The database or the authority's files cannot be opened or are damaged."""


class RegistryTooNew(RegistryError):
    """The database was written by a newer console."""


class NotFound(RegistryError):
    """There is no such record."""

    exit_code = 21


class WrongState(RegistryError):
    """The record's state does not allow the change."""

    exit_code = 22


class PasswordUnfit(RegistryError):
    """A new password is too short or too long."""


class AuditBroken(RegistryError):
    """The audit log was changed: `sequence` is the first entry that is not as it was written."""

    exit_code = 23

    def __init__(self, message: str, sequence: int) -> None:
        super().__init__(message)
        self.sequence = sequence


class InviteNotUsable(RegistryError):
    """An invite cannot be redeemed."""

    def __init__(self, code: InviteProblem, message: str) -> None:
        super().__init__(message)
        self.code: InviteProblem = code


class RequestRefused(RegistryError):
    """A certificate request is not acceptable."""


class Cloned(RegistryError):
    """Two PCs use one device's identity; `evidence` is a clause about the later one."""

    def __init__(self, evidence: str) -> None:
        super().__init__(f"Two PCs use one identity: {evidence}; enrol the copy anew.")
        self.evidence = evidence


class NotAuthorised(RegistryError):
    """A peer may not use a link.

    `close_code` is the websocket close code: 4401 (who this is could not be established) or 4403 (known, but not
    allowed). `code` is a short reason for programs, `str(error)` the sentence for people. `device_id` names the
    device that was recognised and must have no links (4403).
    """

    def __init__(self, close_code: Literal[4401, 4403], code: str, message: str, device_id: str = "") -> None:
        super().__init__(message)
        self.device_id = device_id
        self.close_code: Literal[4401, 4403] = close_code
        self.code = code
