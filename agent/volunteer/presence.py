"""Whether somebody is at the PC. Pure.

Being back takes one sign; being away takes a whole time without any. What is not known counts as presence.
"""

from __future__ import annotations

import math

import msgspec

from agent.volunteer.facts import Facts, Reading
from agent.volunteer.policy import Policy

TRUST_S = 3.0
"""An older answer of the presence probe is no answer."""
SAME_INPUT_S = 1.0
"""Two answers that put the last input closer together than this mean the same input: the sources round."""
LONGEST_IDLE_S = 10 * 365 * 86_400.0
"""More is a broken source."""


class Presence(msgspec.Struct, frozen=True):
    """`input_s` is the last sign of somebody, `since_s` the first one of this stay, or None while away."""

    input_s: float
    since_s: float | None
    locked: bool = False
    known: bool = True
    source: str = ""


def is_resting(facts: Facts) -> bool:
    """Say whether the PC is locked or dark, which takes a deliberate act to undo."""
    return facts.locked.within(TRUST_S) is True or facts.displays_off.within(TRUST_S) is True


def seen(presence: Presence, now_s: float, source: str) -> Presence:
    """Somebody is here, now."""
    since_s = presence.since_s if presence.since_s is not None else now_s
    return msgspec.structs.replace(presence, input_s=max(now_s, presence.input_s), since_s=since_s, source=source)


def observe(presence: Presence, facts: Facts, now_s: float, needed_s: float, policy: Policy) -> Presence:
    """Take a snapshot into account; `needed_s` without input make somebody away."""
    idle_s = _idle_s(facts.idle_s)
    locked = facts.locked.within(TRUST_S)
    if presence.locked and locked is False:
        presence = seen(presence, now_s, facts.locked.source)
    if idle_s is not None:
        input_s = min(facts.at_s - facts.idle_s.age_s - idle_s, now_s)
        if input_s > presence.input_s + SAME_INPUT_S:
            presence = seen(presence, now_s, facts.idle_s.source)
            presence = msgspec.structs.replace(presence, input_s=input_s)
    presence = msgspec.structs.replace(
        presence,
        locked=presence.locked if locked is None else locked,
        known=idle_s is not None or policy.unattended,
    )
    if presence.since_s is not None and presence.known and now_s - presence.input_s >= needed_s:
        return msgspec.structs.replace(presence, since_s=None)
    return presence


def _idle_s(reading: Reading[float]) -> float | None:
    idle_s = reading.within(TRUST_S)
    if idle_s is None or not math.isfinite(idle_s) or idle_s > LONGEST_IDLE_S:
        return None
    return max(idle_s, 0.0)
