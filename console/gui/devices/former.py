"""Which record of a machine that was enrolled anew ends, and which goes on. Pure; no Qt here."""

from __future__ import annotations

import math
from collections.abc import Mapping

from console.api.admin import types as wire

MAY_END = frozenset({"active", "suspended", "expired", "evicted"})
"""States of a record that another may take over from."""


def former_of(agent: wire.Agent, by_id: Mapping[str, wire.Agent]) -> wire.Agent | None:
    """Return the record, of all that are known, that a PC may take over from; None: there is none.

    It is the one that was in use last, of those of the same machine that are not in use any more: never one that is
    connected or was not seen yet, and, if the PC is not connected either, none that was seen after it. So of two
    records at most one may take over from the other.
    """
    if agent.state != "active":
        return None
    others = [other for device in agent.same_machine if (other := by_id.get(device)) is not None]
    before_s = math.inf if agent.link == "connected" else agent.seen_s or 0.0
    ended = [
        (other.seen_s, other.device_id)
        for other in others
        if other.state in MAY_END and other.link != "connected" and other.seen_s is not None and other.seen_s < before_s
    ]
    return by_id[max(ended)[1]] if ended else None
