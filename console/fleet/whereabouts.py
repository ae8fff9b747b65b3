"""Who comes and goes, for the registry: gathered on the event loop and written every second, all in one transaction.

When a switch restarts, hundreds of PCs leave and come back within a second; a transaction for each would hold up every
answer that runs meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import Any

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from agent.link.identity import DeviceId
from agent.link.messages import AskRelease, Measurements, UpdateState
from console.fleet.events import AgentJoined, AgentLost, AgentTold, AgentView, FleetEvent, LinkTimed
from console.fleet.measured import measured_facts, round_trip_fact
from console.fleet.policies import fact_of
from console.fleet.releases import update_fact
from console.fleet.upkeep import stopped_within
from console.registry.registry import Registry
from console.registry.sightings import Sighting

log = logging.getLogger(__name__)

EVERY_S = 1.0


class Whereabouts:
    """Hears the hub's events. Stop it after the hub, so that the last ones are written, too."""

    def __init__(self, registry: Registry, *, every_s: float = EVERY_S) -> None:
        self._registry = registry
        self._every_s = every_s
        self._unwritten: dict[str, Sighting] = {}
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.create_task(self._run(), name="whereabouts")

    async def stop(self) -> None:
        """Write what is left and end."""
        if self._task is not None:
            # Not cancelled: its thread would go on with a database that is closed meanwhile.
            self._stopping.set()
            await self._task
            self._task = None

    def on_fleet_event(self, event: FleetEvent) -> None:
        """Note who came or went, and what else PCs say of themselves. Never blocks."""
        if isinstance(event, AgentJoined):
            self._add(_introduction(event.agent))
        elif isinstance(event, AgentLost):
            self._add(Sighting(DeviceId(event.device_id)))
        elif isinstance(event, AgentTold):
            facts = _facts_of(event)
            self._add(Sighting(DeviceId(event.device_id), facts=facts))
        elif isinstance(event, LinkTimed):
            self._add(Sighting(DeviceId(event.device_id), facts=round_trip_fact(event.round_trip_ms, time.time())))

    async def write(self) -> None:
        """Write what was noted so far. Raises SQLAlchemyError; nothing is lost then."""
        noted, self._unwritten = self._unwritten, {}
        if not noted:
            return
        try:
            await self._registry.ask(partial(self._registry.sightings.note, noted.values()))
        except SQLAlchemyError:
            later, self._unwritten = self._unwritten, noted
            for seen in later.values():
                self._add(seen)
            raise

    def _add(self, seen: Sighting) -> None:
        before = self._unwritten.get(seen.device_id)
        self._unwritten[seen.device_id] = seen if before is None else before.followed_by(seen)

    async def _run(self) -> None:
        failed = stopped = False
        while not stopped:
            stopped = await stopped_within(self._stopping, self._every_s)
            try:
                await self.write()
            except SQLAlchemyError as error:
                # The disk may be full or the database away for a while.
                if not failed:
                    log.warning("Who came and went cannot be written (%s); it is tried again.", type(error).__name__)
                failed = True
            except Exception:  # the edge of a task nobody awaits: the others' news must go on being written
                log.exception("Who came and went cannot be written; this news is lost.")
            else:
                failed = False


def _facts_of(told: AgentTold) -> dict[str, Any]:
    if isinstance(told.message, Measurements):
        return measured_facts(told.message)
    if isinstance(told.message, UpdateState):
        return update_fact(told.message)
    return {} if isinstance(told.message, AskRelease) else fact_of(told)


def _introduction(agent: AgentView) -> Sighting:
    """What a PC says about itself, without what changes with every session."""
    said = msgspec.to_builtins(agent.hello)
    del said["held_sha256"], said["mark"]
    return Sighting(DeviceId(agent.device_id), agent.name, said, agent.hello.key_protection)
