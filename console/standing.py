"""What planning wants to know of a PC beside its speed: where it stands, when it rests, which units it holds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, TypeVar

import msgspec

from agent.link.messages import Resting
from agent.volunteer.availability import is_coarse, likely
from console.api.admin import types as wire
from console.fleet.policies import RESTING_FACT
from console.planner.types import EMBED, HEAD, AgentFacts, Limit, Pin, Rules
from console.registry.records import DeviceRecord
from shard_export.library.manifest import Manifest

SITE_TAG, NETWORK_TAG = "site:", "network:"
"""Tags that say where a PC stands, as in `site:oslo` and `network:floor-2`."""
STAYS_FOR_S = 3600.0
"""How long a PC had better stay, by its habits, for a plan to count on it."""

Named = TypeVar("Named", wire.PinnedPc, wire.LimitedPc, wire.GivenStage)


def standing(facts: AgentFacts, record: DeviceRecord, now_s: float) -> AgentFacts:
    """Add what a PC's record says; `now_s` is Unix time. One that does not tell its habits counts as one that stays."""
    told = _resting(record.facts.get(RESTING_FACT))
    stay = None if told is None else likely(told.blocks, now_s, told.utc_offset_s, STAYS_FOR_S)
    return msgspec.structs.replace(
        facts,
        site=_tagged(record.tags, SITE_TAG),
        network=_tagged(record.tags, NETWORK_TAG),
        rests=tuple(told.blocks) if told is not None else (),
        utc_offset_s=told.utc_offset_s if told is not None else 0.0,
        stay=1.0 if stay is None else stay,
    )


def units_held(manifest: Manifest, has_files: Callable[[Sequence[str]], bool]) -> frozenset[int]:
    """Return which units of a library a PC has, as the planner names them; `has_files` tells it of files' SHA-256."""
    ends = {"embed": EMBED, "head": HEAD}
    return frozenset(
        unit.index if unit.kind == "layer" else ends[unit.kind]
        for unit in manifest.units
        if (unit.kind == "layer" or unit.kind in ends) and has_files([unit.xml.sha256, unit.bin.sha256])
    )


def rules_of(request: wire.DeployRequest) -> Rules:
    """Return what a request asks of its plan; its PCs are ids already (see `resolved`)."""
    asked = request.rules
    return Rules(
        pins=tuple(Pin(pin.device, pin.first, pin.last) for pin in asked.pins),
        excluded=frozenset(asked.exclude),
        limits={
            limit.device: Limit(None if limit.memory_mb is None else limit.memory_mb * 1_000_000, limit.layers)
            for limit in asked.limits
        },
        crossing=asked.crossing,
        target_tokens_per_second=asked.tokens_per_second,
        least_stay=asked.least_stay_percent / 100,
    )


def resolved(request: wire.DeployRequest, resolve: Callable[[Sequence[str]], list[str]]) -> wire.DeployRequest:
    """Return a request that names PCs by their ids alone. Raises what `resolve` does for one that nobody knows.

    `resolve` is asked once, for all names, and answers with an id for each.
    """
    asked = request.rules
    parts: list[wire.PinnedPc | wire.LimitedPc | wire.GivenStage] = [*asked.pins, *asked.limits, *chain(*request.plan)]
    names = list(dict.fromkeys([*request.devices, *asked.exclude, *(part.device for part in parts)]))
    ids = dict(zip(names, resolve(names), strict=True))

    def by_id(items: Iterable[Named]) -> list[Named]:
        return [msgspec.structs.replace(item, device=ids[item.device]) for item in items]

    rules = msgspec.structs.replace(
        asked,
        exclude=list(dict.fromkeys(ids[name] for name in asked.exclude)),
        pins=by_id(asked.pins),
        limits=by_id(asked.limits),
    )
    devices = list(dict.fromkeys(ids[name] for name in request.devices))
    plan = [by_id(pipeline) for pipeline in request.plan]
    return msgspec.structs.replace(request, devices=devices, rules=rules, plan=plan)


def _resting(fact: Any) -> Resting | None:
    try:
        told = None if fact is None else msgspec.convert(fact, Resting)
    except msgspec.ValidationError:
        return None
    return told if told is not None and told.blocks and is_coarse(told.blocks) else None


def _tagged(tags: Sequence[str], beginning: str) -> str:
    return next((tag.removeprefix(beginning) for tag in sorted(tags) if tag.startswith(beginning)), "")
