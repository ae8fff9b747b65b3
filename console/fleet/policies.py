"""Brings the administrator's wishes to the PCs, signed, and says what of their answers is kept. Event loop only.

A PC is told when it joins and whenever the wishes change. What it answers, and when it tends to rest, lie among the
device's facts in the registry (`whereabouts.py` writes them), where the planner finds them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from agent.link.identity import DeviceId
from agent.link.messages import PolicyKept, VolunteerPolicy
from agent.volunteer.availability import is_coarse
from agent.volunteer.documents import LIFE_S, SCHEMA, PolicyBody, encode_body
from console.fleet.events import AgentJoined, AgentTold, FleetEvent
from console.fleet.hub import Hub
from console.registry.policies import combined
from console.registry.records import DeviceRecord, PolicyRecord
from console.registry.registry import Registry

log = logging.getLogger(__name__)

POLICY_FACT, RESTING_FACT = "volunteer_policy", "resting"
"""Keys in a device's facts: a PolicyKept and a Resting as plain JSON."""


LONGEST_ANSWER = 500
"""Letters of a PC's sentence that are kept."""


class PolicyPost:
    """Subscribe `on_fleet_event` to the hub. `sign` is the console's word for a policy's body."""

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
        self._published = registry.policies.revision()

    def on_fleet_event(self, event: FleetEvent) -> None:
        """Tell a PC that joined what is wanted of it."""
        if isinstance(event, AgentJoined) and event.agent.hello.takes_policy:
            wanted = self._registry.policies.list()
            record = self._registry.devices.find(DeviceId(event.agent.device_id)) if wanted else None
            if record is not None:
                self._post(wanted, record)

    def publish(self) -> None:
        """Tell every connected PC: the wishes, or the tags, have changed. What cannot be read is told to nobody."""
        wanted = self._registry.policies.list()
        records = {str(record.device_id): record for record in self._registry.devices.list()} if wanted else {}
        for agent in self._hub.agents():
            if agent.hello.takes_policy and agent.device_id in records:
                self._post(wanted, records[agent.device_id])
        self._published = max((record.revision for record in wanted), default=0)

    async def catch_up(self) -> None:
        """Tell the PCs held here what another console of a shared registry was told meanwhile."""
        if await asyncio.to_thread(self._registry.policies.revision) != self._published:
            self.publish()

    def _post(self, wanted: Sequence[PolicyRecord], record: DeviceRecord) -> None:
        revision, wishes = combined(wanted, record.tags)
        now_s, device_id = self._now(), str(record.device_id)
        body = encode_body(PolicyBody(SCHEMA, self._fleet_id, device_id, revision, now_s, now_s + LIFE_S, wishes))
        self._hub.tell(device_id, VolunteerPolicy(body, self._sign(body)))


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
    if is_coarse(message.blocks) and abs(message.utc_offset_s) <= 86_400:
        return {RESTING_FACT: msgspec.structs.asdict(message)}
    log.warning("Device %s says when it rests in a way that cannot be; it is not kept.", told.device_id)
    return {}
