"""Brings the administrator's wishes to the PCs, signed, and says what of their answers is kept. Event loop only.

A PC is told when it joins and whenever the wishes change. What it answers, and when it tends to rest, lie among the
device's facts in the registry (`whereabouts.py` writes them), where the planner finds them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from agent.link.identity import DeviceId
from agent.link.messages import PolicyKept, Resting, VolunteerPolicy
from agent.volunteer.availability import is_coarse
from agent.volunteer.documents import LIFE_S, SCHEMA, PolicyBody, encode_body
from console.fleet.events import AgentJoined, AgentLost, AgentTold, FleetEvent
from console.fleet.hub import Hub
from console.registry.policies import combined
from console.registry.records import PolicyRecord
from console.registry.registry import Registry

log = logging.getLogger(__name__)

POLICY_FACT, RESTING_FACT = "volunteer_policy", "resting"
"""Keys in a device's facts: a PolicyKept and a Resting as plain JSON."""

LOOK_S = 1.0
"""How soon after PCs joined, or the registry did not answer, all is read anew."""
LONGEST_ANSWER = 500
"""Letters of a PC's sentence that are kept."""


class PolicyPost:
    """Subscribe `on_fleet_event` to the hub, and `start` it before that listens. `sign` is the console's word.

    A PC that joins is told at once by what was read last and by the tags it was let in with, before others who hear of
    it may give it work; then both are read anew in a thread, and it is told again should one of them be another. All
    that is read is told in the order in which it was read.
    """

    def __init__(
        self,
        registry: Registry,
        hub: Hub,
        fleet_id: str,
        sign: Callable[[bytes], bytes],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._registry = registry
        self._hub = hub
        self._fleet_id = fleet_id
        self._sign = sign
        self._now = now
        self._wanted: Sequence[PolicyRecord] = ()
        """What was wanted when it was read last."""
        self._told: dict[str, tuple[int, list[str]]] = {}
        """For which revision and which tags each connected PC was last told."""
        self._reading = asyncio.Lock()
        self._wake = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read what is wanted, and begin to look for changes whenever there may be some. Raises SQLAlchemyError."""
        await self.catch_up()
        self._task = asyncio.create_task(self._run(), name="policies")

    async def stop(self) -> None:
        """End looking."""
        if self._later is not None:
            self._later.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def on_fleet_event(self, event: FleetEvent) -> None:
        """Tell a PC that joined what is wanted of it. Never blocks."""
        if isinstance(event, AgentJoined) and event.agent.hello.takes_policy:
            if self._wanted:
                self._post(self._wanted, DeviceId(event.agent.device_id), event.agent.tags)
            self._look_soon()
        elif isinstance(event, AgentLost):
            self._told.pop(event.device_id, None)

    def publish(self) -> None:
        """Tell those connected PCs for which the wishes, or their tags, have changed, as soon as that is read."""
        self._wake.set()

    async def catch_up(self) -> None:
        """Tell what has changed, also by another console of a shared registry. Raises SQLAlchemyError."""
        async with self._reading:
            wanted, tags = await self._registry.ask(self._read)
            self._wanted = wanted
            self._tell(wanted, tags)

    def _look_soon(self) -> None:
        # Not for each of a thousand that join within a second: it reads the tags of all.
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._later = None
        self._wake.set()

    async def _run(self) -> None:
        failed = False
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.catch_up()
            except SQLAlchemyError as error:
                # The disk may be full or the database away for a while.
                if not failed:
                    log.warning("The policy cannot be read now (%s); it is tried again.", type(error).__name__)
                failed = True
                self._look_soon()
            except Exception:  # the edge of a task nobody awaits: the next change must be told all the same
                log.exception("The policy cannot be told; the next change is.")
            else:
                failed = False

    def _read(self) -> tuple[list[PolicyRecord], dict[DeviceId, list[str]]]:
        """Read once for all PCs: what is wanted, and who has which tags. Any thread."""
        wanted = self._registry.policies.list()
        return wanted, self._registry.devices.tags() if wanted else {}

    def _tell(self, wanted: Sequence[PolicyRecord], tags: Mapping[DeviceId, list[str]]) -> None:
        revision, _ = combined(wanted, ())
        for agent in self._hub.agents():
            device_id = DeviceId(agent.device_id)
            known = agent.hello.takes_policy and device_id in tags
            if known and self._told.get(device_id) != (revision, tags[device_id]):
                self._post(wanted, device_id, tags[device_id])

    def _post(self, wanted: Sequence[PolicyRecord], device_id: DeviceId, tags: list[str]) -> None:
        revision, wishes = combined(wanted, tags)
        now_s = self._now()
        body = encode_body(PolicyBody(SCHEMA, self._fleet_id, device_id, revision, now_s, now_s + LIFE_S, wishes))
        self._hub.tell(device_id, VolunteerPolicy(body, self._sign(body)))
        self._told[device_id] = revision, tags


def fact_of(told: AgentTold) -> dict[str, Any]:
    """Return what is kept of what an agent says; nothing of what cannot be."""
    message = told.message
    if isinstance(message, PolicyKept):
        if message.code:
            log.warning("Device %s does not take the policy: %s", told.device_id, message.message[:LONGEST_ANSWER])
        return {
            POLICY_FACT: {
                "revision": message.revision,
                "code": message.code[:LONGEST_ANSWER],
                "message": message.message[:LONGEST_ANSWER],
            }
        }
    if isinstance(message, Resting) and is_coarse(message.blocks) and abs(message.utc_offset_s) <= 86_400:
        return {RESTING_FACT: msgspec.structs.asdict(message)}
    log.warning("Device %s says when it rests in a way that cannot be; it is not kept.", told.device_id)
    return {}
