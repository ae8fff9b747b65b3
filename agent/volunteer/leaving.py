"""Taking a PC out of service without a gap: what it serves is handed over before the policy's `drain` holds. Pure."""

from __future__ import annotations

import msgspec

from agent.volunteer.policy import Policy

HAND_OVER_S = 8.0
"""How long a PC that leaves waits for others to take its stages over; its owner never does."""


class HandingOver:
    """Whether a PC that serves is being taken out of service, and until when it waits for others. One thread."""

    def __init__(self) -> None:
        self.is_on = False
        self._began_s: float | None = None

    def spare(self, policy: Policy, *, serves: bool, now_s: float) -> Policy:
        """Return the policy that holds now: without its `drain` while others take over, which begins with this call.

        Every other reason holds at once all the same.
        """
        if not policy.drain:
            self.is_on, self._began_s = False, None
            return policy
        if self._began_s is None:
            self._began_s = now_s
        self.is_on = serves and now_s - self._began_s < HAND_OVER_S
        return msgspec.structs.replace(policy, drain=False) if self.is_on else policy
