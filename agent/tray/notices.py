"""Which news are worth a notification. Pure.

Joining a fleet, a policy that the administrator changed, trouble with this PC's identity. Never a yield: it would come
just when somebody starts to work. None while the screen belongs to a film or a talk, and one a day of each kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from agent.control.status import Status
from agent.tray.view import screen_is_taken

Kind = Literal["approved", "denied", "policy", "identity"]

DAY_S = 86400.0
_IDENTITY_TROUBLE = frozenset({"suspended_by_admin", "revoked", "certificate", "clock", "not_approved"})


@dataclass
class Notices:
    """Looks at one Status after the other; remembers only what it said today."""

    _last: Status | None = None
    _said_s: dict[Kind, float] = field(default_factory=dict)

    def due(self, status: Status, now_s: float) -> list[Kind]:
        """Return what to notify of; `now_s` is any clock that only goes forward. Nothing is due at the first call."""
        last, self._last = self._last, status
        if last is None:
            return []
        found: list[Kind] = []
        if last.phase == "pending" and status.phase not in ("pending", "unenrolled"):
            found.append("approved")
        # The owner who ends the wait is told nothing they do not know; the administrator's no comes with its reason.
        if last.phase == "pending" and status.phase == "unenrolled" and status.link_message:
            found.append("denied")
        if status.policy_revision > last.policy_revision and last.phase != "unenrolled":
            found.append("policy")
        # A PC in no fleet has no identity to be in trouble: its owner left, or has yet to join.
        if _codes(status) & _IDENTITY_TROUBLE - _codes(last) and status.phase not in ("pending", "unenrolled"):
            found.append("identity")
        if screen_is_taken(status):
            return []
        due = [kind for kind in found if now_s - self._said_s.get(kind, -DAY_S) >= DAY_S]
        self._said_s.update(dict.fromkeys(due, now_s))
        return due


def _codes(status: Status) -> frozenset[str]:
    return frozenset(reason.code for reason in status.reasons)
