"""Direct stage links as the console sees them: who gets a ticket for whom, and which links are up. Event loop only.

The console decides and signs; the agents dial. A link is used per hop, as soon as both its stages are loaded and the
receiver listens. It is closed at once when the route ends, when a newer epoch takes its place, or when one of its PCs
leaves or is revoked: the neighbours are told, and a ticket alone lives for five minutes at most.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent.link.messages import FromConsole
from agent.link.stage_messages import CutDirect, DirectRoute, DirectState, StageReady
from agent.link.tickets import LIFE_S, RouteTicket, seal
from agent.stage.types import Epoch, PipelineId

log = logging.getLogger(__name__)

RENEW_EVERY_S = LIFE_S / 2
MAX_ADDRESSES = 4
MAX_REASON = 200


class StageLink(msgspec.Struct, frozen=True):
    """How steps reach a stage: `console` is the first stage's; `reason` says why a relayed one is not direct."""

    stage: int
    way: Literal["console", "relay", "direct"]
    reason: str = ""
    round_trip_ms: float = 0.0


@dataclass
class _Route:
    epoch: Epoch
    devices: tuple[str, ...]
    addresses: dict[int, list[str]] = field(default_factory=dict)
    """By stage, of those that are loaded."""
    links: dict[int, StageLink] = field(default_factory=dict)
    """By receiving stage, as the sender says."""


class DirectLinks:
    """`say(device_id, message)` sends a control message without waiting; one to a PC that left goes nowhere."""

    def __init__(
        self,
        say: Callable[[str, FromConsole], None],
        key: Ed25519PrivateKey,
        *,
        allowed: bool,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`key` signs the tickets."""
        self.allowed = allowed
        self._say = say
        self._now = now
        self._key = key
        self._routes: dict[PipelineId, _Route] = {}

    @property
    def public_key(self) -> bytes:
        """What agents check tickets with; empty when direct links are off."""
        return self._key.public_key().public_bytes_raw() if self.allowed else b""

    def set_route(self, pipeline: PipelineId, epoch: Epoch, devices: Sequence[str]) -> None:
        """Begin a route; links of a former one are closed."""
        self.clear_route(pipeline)
        self._routes[pipeline] = _Route(epoch, tuple(devices))

    def clear_route(self, pipeline: PipelineId) -> None:
        """End a route and close its links."""
        route = self._routes.pop(pipeline, None)
        if route is not None and self.allowed:
            for device in dict.fromkeys(route.devices):
                self._say(device, CutDirect(pipeline))

    def ready(self, device: str, message: StageReady, sees: str) -> None:
        """A stage is loaded: link it with those of its neighbours that are. `sees` is the PC's address as seen here."""
        route = self._routes.get(message.pipeline)
        stage = message.stage
        if (
            not self.allowed
            or route is None
            or route.epoch != message.epoch
            or route.devices[stage : stage + 1] != (device,)
        ):
            return
        addresses = [address for address in message.report.addresses if is_usable(address, sees)]
        route.addresses[stage] = addresses[:MAX_ADDRESSES]
        for receiver in (stage, stage + 1):
            self._invite(message.pipeline, route, receiver)

    def state(self, device: str, message: DirectState) -> None:
        """Note what a sender says of its link; what is not its to say is ignored."""
        route = self._routes.get(message.pipeline)
        stage = message.stage
        if route is None or route.epoch != message.epoch or not 1 <= stage < len(route.devices):
            return
        if route.devices[stage - 1] != device:
            log.warning("Device %s spoke of a direct link that is not its own.", device)
            return
        way: Literal["direct", "relay"] = "direct" if message.up else "relay"
        route.links[stage] = StageLink(stage, way, message.reason[:MAX_REASON], message.round_trip_ms)

    def left(self, device: str) -> None:
        """A PC left or was revoked: its neighbours close their links to it at once."""
        for pipeline, route in self._routes.items():
            for stage, holder in enumerate(route.devices):
                if holder != device:
                    continue
                route.addresses.pop(stage, None)
                for link in (stage, stage + 1):
                    route.links.pop(link, None)
                for neighbour in (stage - 1, stage + 1):
                    if self.allowed and 0 <= neighbour < len(route.devices):
                        self._say(route.devices[neighbour], CutDirect(pipeline))

    def links(self, pipeline: PipelineId) -> list[StageLink]:
        """Describe the way into each stage; empty for a pipeline that has no route."""
        route = self._routes.get(pipeline)
        if route is None:
            return []
        return [StageLink(0, "console"), *(self._link(route, stage) for stage in range(1, len(route.devices)))]

    def _link(self, route: _Route, stage: int) -> StageLink:
        if not self.allowed:
            return StageLink(stage, "relay", "direct links are off")
        if not route.addresses.get(stage):
            return StageLink(stage, "relay", "this PC does not listen")
        return route.links.get(stage, StageLink(stage, "relay", "not probed yet"))

    async def renew_for_ever(self) -> None:
        """Send fresh tickets before the old ones expire, until cancelled."""
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            self.renew()

    def renew(self) -> None:
        """Send a fresh ticket for every link."""
        for pipeline, route in self._routes.items():
            for receiver in range(1, len(route.devices)):
                self._invite(pipeline, route, receiver)

    def _invite(self, pipeline: PipelineId, route: _Route, receiver: int) -> None:
        """Give the PC before `receiver` a ticket for it, if both stages are loaded and it listens."""
        addresses = route.addresses.get(receiver)
        if receiver < 1 or not addresses or receiver - 1 not in route.addresses:
            return
        sender, device = route.devices[receiver - 1], route.devices[receiver]
        ticket = RouteTicket(pipeline, route.epoch, receiver, sender, device, self._now() + LIFE_S)
        self._say(sender, DirectRoute(pipeline, route.epoch, receiver, device, addresses, seal(ticket, self._key)))


def is_usable(address: str, seen: str) -> bool:
    """Whether an agent may name this `host:port`: an IP address, a loopback one only from a PC seen on loopback.

    So an agent cannot send its neighbour to the services of its own machine.
    """
    host, _, port = address.rpartition(":")
    try:
        found = ipaddress.ip_address(host.strip("[]"))
        return 0 < int(port) < 65536 and (not found.is_loopback or ipaddress.ip_address(seen).is_loopback)
    except ValueError:
        return False
