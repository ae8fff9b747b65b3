"""Offers PCs the releases they are to have, and says what of their answers is kept. Event loop only.

A PC is told when it joins, when it asks, and whenever what it should have has changed. It believes only the release's
own signatures, so this can hold a release back or bring it to somebody too early, and nothing worse.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from agent.link.identity import DeviceId
from agent.link.messages import AskRelease, Hello, OfferRelease, UpdateState
from agent.update.releases import Here
from console.fleet.events import AgentJoined, AgentLost, AgentTold, FleetEvent
from console.fleet.hub import Hub
from console.fleet.rollout import Pc, choose
from console.registry.records import ReleaseRecord
from console.registry.registry import Registry

log = logging.getLogger(__name__)

UPDATE_FACT = "update"
"""Key in a device's facts: an UpdateState as plain JSON."""
LOOK_S = 60.0
"""Releases expire, tags change, and so does what other consoles of a shared registry are told."""
LONGEST_ANSWER = 500


class ReleasePost:
    """Subscribe `on_fleet_event` to the hub, and `start` it.

    `serves` says whether this console has the archive of a SHA-256; what only another one has is offered there.
    """

    def __init__(
        self, registry: Registry, hub: Hub, serves: Callable[[str], bool], now: Callable[[], float] = time.time
    ) -> None:
        self._registry, self._hub, self._serves, self._now = registry, hub, serves, now
        self._releases: list[ReleaseRecord] = []
        self._tags: Mapping[DeviceId, list[str]] = {}
        """Those of all PCs, as they were last read: who joins is not looked up on the event loop."""
        self._offered: dict[str, str] = {}
        """The release that each connected PC was last offered."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look now and then for what changed."""
        self._task = asyncio.create_task(self._run(), name="releases")

    async def stop(self) -> None:
        """End looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self.publish()
            except SQLAlchemyError as error:
                log.warning(
                    "The releases cannot be read now (%s); PCs are offered what is known.", type(error).__name__
                )
            await asyncio.sleep(LOOK_S)

    async def publish(self) -> None:
        """Offer what changed to the PCs that are connected."""
        self._releases, self._tags = await self._registry.ask(self._read)
        for agent in self._hub.agents():
            self._offer(agent.device_id, agent.hello, again=False)

    def on_fleet_event(self, event: FleetEvent) -> None:
        """Offer a PC that joined, or asks, what it is to have."""
        if isinstance(event, AgentJoined):
            self._offer(event.agent.device_id, event.agent.hello, again=False)
        elif isinstance(event, AgentLost):
            self._offered.pop(event.device_id, None)
        elif isinstance(event, AgentTold) and isinstance(event.message, AskRelease):
            for agent in self._hub.agents():
                if agent.device_id == event.device_id:
                    self._offer(agent.device_id, agent.hello, again=True)

    def _read(self) -> tuple[list[ReleaseRecord], Mapping[DeviceId, list[str]]]:
        return self._registry.releases.list(), self._registry.devices.tags()

    def _offer(self, device_id: str, hello: Hello, *, again: bool) -> None:
        if not hello.platform:
            return
        here = Here("agent", hello.version, hello.platform, hello.channel)
        pc = Pc(device_id, here, self._tags.get(DeviceId(device_id), ()))
        chosen = choose([record for record in self._releases if self._serves(record.sha256)], pc, self._now())
        offered = "" if chosen is None else f"{chosen.release_id} {chosen.sequence}"
        if again or offered != self._offered.get(device_id, ""):
            self._hub.offer(device_id, OfferRelease(b"" if chosen is None else chosen.signed))
            self._offered[device_id] = offered


def update_fact(state: UpdateState) -> dict[str, Any]:
    """Return what is kept of how far a PC's update is."""
    kept = UpdateState(state.phase[:20], state.version[:40], state.problem[:LONGEST_ANSWER])
    return {UPDATE_FACT: msgspec.to_builtins(kept)}


def _kept(facts: Mapping[str, Any]) -> UpdateState:
    try:
        return msgspec.convert(facts.get(UPDATE_FACT), UpdateState)
    except msgspec.ValidationError:
        return UpdateState("none")


def update_phase(facts: Mapping[str, Any]) -> tuple[str, str]:
    """Return the phase of a PC's update and the version it is to."""
    state = _kept(facts)
    return state.phase, state.version


def update_note(facts: Mapping[str, Any]) -> str:
    """Say in a few words how far a PC's update is; empty: nothing is to be said."""
    state = _kept(facts)
    if state.phase in ("none", "done"):
        return ""
    about = " ".join(filter(None, (state.phase, state.version if state.phase not in ("off", "refused") else "")))
    return f"{about}: {state.problem}" if state.problem else about
