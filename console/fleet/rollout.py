"""Which release which PC is offered. Pure: no I/O; time is a number.

    held → canary → early → broad

A ring holds those before it: PCs with the tag `canary`; those with the tag `early` and a share of all others; a larger
share of all. Who belongs to a share follows from the PC's id and the version alone, so a share that grows only adds
PCs, and it is not the same ones that are the first every time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from agent.update.errors import ReleaseRefused
from agent.update.releases import SHARE_OF_ALL, Here, judge_description, parse_version
from console.registry.records import ReleaseRecord, Ring

CANARY_TAG, EARLY_TAG = "canary", "early"
EARLY_PERCENT = 10


class Pc(msgspec.Struct, frozen=True):
    """A connected PC: what runs there, and its tags."""

    device_id: str
    here: Here
    tags: Sequence[str] = ()


def choose(releases: Sequence[ReleaseRecord], pc: Pc, now_s: float) -> ReleaseRecord | None:
    """Return the newest release that this PC is offered; None: it has what it should have."""
    fitting = [record for record in releases if is_offered(record, pc, now_s)]
    return max(fitting, key=lambda record: (parse_version(record.description.version), record.sequence), default=None)


def is_offered(record: ReleaseRecord, pc: Pc, now_s: float) -> bool:
    """Say whether a release may go to a PC now."""
    if record.withdrawn_s is not None or record.expires_s <= now_s:
        return False
    try:
        judge_description(record.description, pc.here)
    except ReleaseRefused:
        return False
    return is_in_ring(record.ring, record.percent, pc, record.description.version)


def is_in_ring(ring: Ring, percent: int, pc: Pc, version: str) -> bool:
    """Say whether a PC is in a ring, of which `percent` of all PCs are at most."""
    if ring == "held":
        return False
    if CANARY_TAG in pc.tags:
        return True
    if ring == "canary":
        return False
    if EARLY_TAG in pc.tags:
        return True
    return place(pc.device_id, version) < (min(percent, EARLY_PERCENT) if ring == "early" else percent)


def place(device_id: str, version: str) -> float:
    """Return where in a roll-out of a version a PC has its place: 0 to below 100, even over all PCs."""
    digest = hashlib.sha256(f"{version} {device_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 * SHARE_OF_ALL
