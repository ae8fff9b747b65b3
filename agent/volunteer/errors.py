"""Errors of policies and settings. `str(error)` is one sentence: what happened and what to do.

VolunteerError
 ├─ WishRefused          a value is not possible for its row of the policy
 ├─ PolicyRefused        an administrator's policy is not taken; the last good one stays
 └─ SettingsUnreadable   the owner's settings cannot be read or kept
"""

from __future__ import annotations


class VolunteerError(Exception):
    """Base of the tree."""


class WishRefused(VolunteerError):
    """A value is not possible for its row of the policy."""


class PolicyRefused(VolunteerError):
    """An administrator's policy is not taken. `code` is a short reason for programs.

    Codes: `size`, `signature`, `malformed`, `schema`, `fleet`, `device`, `value`, `future`, `expired`, `revision`,
    `disk`.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class SettingsUnreadable(VolunteerError):
    """The owner's settings cannot be read or kept."""
