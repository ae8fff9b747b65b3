"""Whether somebody is at the PC. Pure.

Being back takes one sign; being away takes a whole time without any. What is not known counts as presence.
"""

from __future__ import annotations

import math

import msgspec

from agent.volunteer.facts import Facts, Reading

TRUST_S = 3.0
"""An older answer of the presence probe is no answer."""
SAME_INPUT_S = 1.0
"""Two answers that put the last input closer together than this mean the same input: the sources round."""
LAST_MOVE_S = 2.0
"""Who locks a PC or lets go of the mouse may be seen a moment after the lock."""
LONGEST_IDLE_S = 10 * 365 * 86_400.0
"""More is a broken source."""


class Presence(msgspec.Struct, frozen=True):
    """`input_s` is the last sign of somebody, `since_s` the first one of this stay, or None while away.

    `rest_since_s` is since when the PC is locked or dark, None while it is neither.
    """

    input_s: float
    since_s: float | None
    rest_since_s: float | None = None
    locked: bool = False
    known: bool = True
    source: str = ""


def is_resting(presence: Presence) -> bool:
    """Say whether the PC is locked or dark and nobody has touched it since.

    A probe that says "dark" while somebody types is wrong, so an input afterwards takes its word away.
    """
    return presence.rest_since_s is not None and presence.input_s <= presence.rest_since_s + LAST_MOVE_S


def seen(presence: Presence, now_s: float, source: str) -> Presence:
    """Somebody is here, now."""
    since_s = presence.since_s if presence.since_s is not None else now_s
    return msgspec.structs.replace(presence, input_s=max(now_s, presence.input_s), since_s=since_s, source=source)


def observe(presence: Presence, facts: Facts, now_s: float, *, unattended: bool = False) -> Presence:
    """Take a snapshot's signs of somebody into account."""
    idle_s = _idle_s(facts.idle_s)
    locked = facts.locked.within(TRUST_S)
    if presence.locked and locked is False:
        presence = seen(presence, now_s, facts.locked.source)
    if idle_s is not None:
        input_s = min(facts.at_s - facts.idle_s.age_s - idle_s, now_s)
        if input_s > presence.input_s + SAME_INPUT_S:
            presence = seen(presence, now_s, facts.idle_s.source)
            presence = msgspec.structs.replace(presence, input_s=input_s)
    resting = locked is True or facts.displays_off.within(TRUST_S) is True
    rest_since_s = now_s if presence.rest_since_s is None else presence.rest_since_s
    return msgspec.structs.replace(
        presence,
        locked=presence.locked if locked is None else locked,
        rest_since_s=rest_since_s if resting else None,
        known=idle_s is not None or unattended,
    )


def leave(presence: Presence, now_s: float, needed_s: float) -> Presence:
    """Count somebody as away after `needed_s` without a sign."""
    if presence.known and now_s - presence.input_s >= needed_s:
        return msgspec.structs.replace(presence, since_s=None)
    return presence


def _idle_s(reading: Reading[float]) -> float | None:
    idle_s = reading.within(TRUST_S)
    if idle_s is None or not math.isfinite(idle_s) or idle_s > LONGEST_IDLE_S:
        return None
    return max(idle_s, 0.0)
