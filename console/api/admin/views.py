"""Joins what the registry remembers of a PC with what the hub sees of it now. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from agent.link.messages import Resting
from agent.volunteer.availability import likely
from console.api.admin.types import Agent
from console.fleet.events import AgentView
from console.fleet.measured import down_of, round_trip_of
from console.fleet.policies import RESTING_FACT
from console.fleet.releases import update_note
from console.registry.records import DeviceRecord

LOOK_AHEAD_S = 8 * 3600.0
NOWHERE: Mapping[str, str] = MappingProxyType({})


def agent_views(
    records: Sequence[DeviceRecord],
    connected: Sequence[AgentView],
    elsewhere: Mapping[str, str] = NOWHERE,
    *,
    now_s: float,
) -> list[Agent]:
    """Describe every known PC; one that is not connected keeps what it said last.

    `elsewhere` names the console of those that are connected to another one; `now_s` is Unix time.
    """
    live = {agent.device_id: agent for agent in connected}
    machines: dict[str, list[str]] = {}
    for record in records:
        if record.machine_sha256 and record.state != "retired":
            machines.setdefault(record.machine_sha256, []).append(record.device_id)
    views = []
    for record in records:
        view = _connected(record, live[record.device_id]) if record.device_id in live else _offline(record)
        same = [other for other in machines.get(record.machine_sha256, []) if other != record.device_id]
        rests = _rests_percent(record.facts.get(RESTING_FACT), now_s)
        trip, down = round_trip_of(record.facts), down_of(record.facts)
        view = msgspec.structs.replace(
            view,
            tags=record.tags,
            update=update_note(record.facts),
            same_machine=same,
            rests_percent=rests,
            round_trip_ms=None if trip is None else trip.value,
            down_bytes_per_s=None if down is None else down.value,
        )
        if view.link == "offline" and record.device_id in elsewhere:
            view = msgspec.structs.replace(view, link="connected", console=elsewhere[record.device_id])
        views.append(view)
    return views


def _rests_percent(fact: object, now_s: float) -> int | None:
    if fact is None:
        return None
    told = msgspec.convert(fact, Resting)
    chance = likely(told.blocks, now_s, told.utc_offset_s, LOOK_AHEAD_S)
    return None if chance is None else round(100 * chance)


def _connected(record: DeviceRecord, view: AgentView) -> Agent:
    hello, heartbeat = view.hello, view.heartbeat
    return Agent(
        device_id=record.device_id,
        name=view.name,
        state=record.state,
        reason=record.reason,
        device_code=record.device_code,
        link="connected",
        seen_s=record.seen_s,
        os=hello.os,
        version=hello.version,
        memory_bytes=hello.memory_bytes,
        memory_free_bytes=heartbeat.memory_free_bytes if heartbeat else 0,
        devices=[device.name for device in hello.devices],
        volunteering=heartbeat.state if heartbeat else "available",
        held_because=heartbeat.reasons if heartbeat else [],
        key_protection=hello.key_protection,
    )


def _offline(record: DeviceRecord) -> Agent:
    facts = record.facts
    memory = facts.get("memory_bytes", 0)
    return Agent(
        device_id=record.device_id,
        name=record.name,
        state=record.state,
        reason=record.reason,
        device_code=record.device_code,
        link="offline",
        seen_s=record.seen_s,
        os=str(facts.get("os", "")),
        version=str(facts.get("version", "")),
        memory_bytes=memory if isinstance(memory, int) else 0,
        key_protection=record.key_protection,
    )
