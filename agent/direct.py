"""A session's direct stage links: in for the stages this PC serves, out for those it feeds. Event loop only.

The port is open only while a stage is served that the console wants to be reached directly, and only on the address
this PC talks to its console from. Nothing here is needed for an answer: whatever fails, the relay carries the steps.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from agent.link.direct import Inbound, Outbound, dial
from agent.link.errors import IdentityError, LinkError, TicketRefused
from agent.link.frames import FrameMalformed, Peek
from agent.link.identity import DeviceId, Identity, client_context, device_hostname, peer_server_context
from agent.link.messages import CutDirect, DirectRoute, DirectState, FromAgent, LoadStage, Welcome
from agent.link.tickets import RouteTicket, unseal
from agent.live import LiveStage
from agent.settings import AgentSettings

log = logging.getLogger(__name__)

DIAL_S = 3.0
FIRST_RETRY_S, LONGEST_RETRY_S = 5.0, 60.0
_DIAL_FAILURES = (OSError, TimeoutError, LinkError, ValueError)
MAX_STRANGERS = 16
"""Links without a ticket at once: more are closed unread."""


@dataclass(frozen=True)
class DirectSetup:
    """What direct links need and outlives a session. `identity` returns the present one: certificates are renewed."""

    identity: Callable[[], Identity]
    settings: AgentSettings


class DirectLinks:
    """`find` returns the live stage of a pipeline; `say` sends a control message without waiting. Implements Gate."""

    def __init__(
        self,
        setup: DirectSetup,
        welcome: Welcome,
        host: str,
        find: Callable[[int], LiveStage | None],
        say: Callable[[FromAgent], None],
    ) -> None:
        self.fleet_id = setup.identity().fleet_id
        self._device_id = setup.identity().device_id
        self._setup = setup
        self._route_key = welcome.route_key
        self._ahead_s = welcome.now_s - time.monotonic()
        self._host = host
        self._find = find
        self._say = say
        self._listeners: set[int] = set()
        """The pipelines whose stage here may be reached."""
        self._server: asyncio.Server | None = None
        self._starting = asyncio.Lock()
        self._inbound: set[Inbound] = set()
        self._strangers: set[Inbound] = set()
        self._keepers: dict[int, _Keeper] = {}
        self._unfinished: set[asyncio.Task[None]] = set()

    # The receiver's side

    async def listen(self, request: LoadStage) -> list[str]:
        """Be reachable for a stage; returns the addresses to tell (none: not allowed, or no port is free)."""
        settings = self._setup.settings
        if not (request.direct and request.stage > 0 and settings.direct_links and self._route_key):
            return []
        self._listeners.add(request.pipeline)
        async with self._starting:
            if self._server is None:
                self._server = await self._open_port()
        if not self._listeners:  # the last stage ended while the port was opened
            self._close_port()
        if self._server is None:
            return []
        if settings.direct_address:
            return [settings.direct_address]
        port = self._server.sockets[0].getsockname()[1]
        return [f"[{self._host}]:{port}" if ":" in self._host else f"{self._host}:{port}"]

    async def _open_port(self) -> asyncio.Server | None:
        first, last = self._setup.settings.direct_ports
        try:
            tls = await asyncio.to_thread(peer_server_context, self._setup.identity())
        except IdentityError as error:
            log.warning("No direct links for now: %s", error)
            return None
        for port in range(first, last + 1):
            try:
                return await asyncio.get_running_loop().create_server(
                    lambda: Inbound(self),
                    self._host,
                    port,
                    ssl=tls,
                    ssl_handshake_timeout=DIAL_S,
                    ssl_shutdown_timeout=1.0,
                )
            except OSError as error:
                log.debug("Port %d cannot be opened for direct links: %s", port, error)
        log.info("No port of %d to %d is free on %s for direct links; the relay is used.", first, last, self._host)
        return None

    def now_s(self) -> float:
        """Return the console's Unix time: the Welcome's, carried on by this PC's steady clock."""
        return self._ahead_s + time.monotonic()

    def greet(self, link: Inbound) -> bool:
        """Note a link that passed TLS; False: too many wait for their ticket already."""
        self._strangers.add(link)
        return len(self._strangers) <= MAX_STRANGERS

    def check(self, ticket: bytes) -> RouteTicket:
        """Check a ticket's signature, time, receiver and stage. Raises TicketRefused."""
        found = unseal(ticket, self._route_key, self.now_s(), RouteTicket)
        if found.receiver != self._device_id:
            raise TicketRefused("The route ticket is for another receiver.", "other_device")
        live = self._find(found.pipeline)
        if live is None or not live.holds(found.pipeline, found.epoch, found.stage):
            raise TicketRefused("The route ticket is for a stage that this PC does not hold now.", "other_stage")
        return found

    def admit(self, link: Inbound, ticket: RouteTicket) -> int:
        """Take a link for its stage; a former one makes room."""
        live = self._find(ticket.pipeline)
        if live is None:
            raise TicketRefused("The stage has ended.", "other_stage")
        self._strangers.discard(link)
        self._inbound.add(link)
        if live.inbound is not None:
            live.inbound.abort()
        live.inbound = link
        log.info("Stage %d of pipeline %d is fed directly by %s.", ticket.stage, ticket.pipeline, ticket.sender)
        return live.taken

    def take(self, link: Inbound, header: Peek, data: bytes) -> asyncio.Future[None] | None:
        """Feed a stage with what came on its link."""
        live = self._find(header.pipeline)
        if live is None or live.inbound is not link:
            raise FrameMalformed("The stage of this link has ended.")
        return live.feed(header, data)

    def left(self, link: Inbound) -> None:
        """Forget a link."""
        self._strangers.discard(link)
        self._inbound.discard(link)
        for pipeline in self._listeners:
            live = self._find(pipeline)
            if live is not None and live.inbound is link:
                live.inbound = None

    # The sender's side

    def set_route(self, route: DirectRoute) -> None:
        """Reach the next stage directly from now on, or go on with a fresh ticket."""
        live = self._find(route.pipeline)
        if live is None or not live.holds(route.pipeline, route.epoch, route.stage - 1):
            return
        if not self._setup.settings.direct_links:
            self._say(_down(route, "direct links are switched off on this PC"))
            return
        keeper = self._keepers.get(route.pipeline)
        if keeper is not None and keeper.follows(live, route):
            return
        if keeper is not None:
            keeper.stop()
        self._keepers[route.pipeline] = keeper = _Keeper(self._setup, live, route, self._say)
        self._unfinished.add(keeper.task)
        keeper.task.add_done_callback(self._unfinished.discard)

    # Both

    def cut(self, message: CutDirect) -> None:
        """Close a pipeline's direct links at once."""
        keeper = self._keepers.pop(message.pipeline, None)
        if keeper is not None:
            keeper.stop()
        live = self._find(message.pipeline)
        if live is not None:
            _close_links(live)

    def release(self, live: LiveStage) -> None:
        """Close the links of a stage that ends; the port closes with the last of them."""
        pipeline = live.request.pipeline
        keeper = self._keepers.get(pipeline)
        if keeper is not None and keeper.live is live:
            del self._keepers[pipeline]
            keeper.stop()
        _close_links(live)
        self._listeners.discard(pipeline)
        if not self._listeners:
            self._close_port()

    async def close(self) -> None:
        """Close everything."""
        self._keepers.clear()
        for task in self._unfinished:
            task.cancel()
        self._close_port()
        await asyncio.gather(*self._unfinished, return_exceptions=True)

    def _close_port(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for link in [*self._inbound, *self._strangers]:
            link.abort()


class _Keeper:
    """Keeps one outgoing link up while its tickets are renewed, and tells the console how it is."""

    def __init__(
        self, setup: DirectSetup, live: LiveStage, route: DirectRoute, say: Callable[[FromAgent], None]
    ) -> None:
        self.live = live
        self._setup = setup
        self._route = route
        self._say = say
        self._link: Outbound | None = None
        self._renewed = asyncio.Event()
        self.task = asyncio.create_task(self._keep(), name=f"direct-{route.pipeline}")

    def follows(self, live: LiveStage, route: DirectRoute) -> bool:
        """Take a fresh ticket for the same stage on the same PC; False: it is another route."""
        known = self._route
        if live is not self.live or (known.stage, known.device_id) != (route.stage, route.device_id):
            return False
        self._route = route
        self._renewed.set()
        if self._link is not None:
            self._link.renew(route.ticket)
        return True

    def stop(self) -> None:
        """Give the link up; the relay carries on."""
        self.task.cancel()

    async def _keep(self) -> None:
        wait_s = FIRST_RETRY_S
        while True:
            self._renewed.clear()
            try:
                link = await self._dial()
            except _DIAL_FAILURES as error:
                self._say(_down(self._route, _why(error)))
            else:
                wait_s = FIRST_RETRY_S
                await self._hold(link)
                self._say(_down(self._route, link.reason))
            try:
                async with asyncio.timeout(wait_s):
                    await self._renewed.wait()
            except TimeoutError:
                wait_s = min(2 * wait_s, LONGEST_RETRY_S)

    async def _hold(self, link: Outbound) -> None:
        self._link = link
        try:
            route = self._route
            round_trip_ms = 1000 * link.accepted.result()
            self._say(DirectState(route.pipeline, route.epoch, route.stage, up=True, round_trip_ms=round_trip_ms))
            await link.ended
        finally:
            self._link = None
            self.live.hop.lost(link)

    async def _dial(self) -> Outbound:
        """Try the addresses in order. Raises what the last one failed with."""
        route, identity = self._route, self._setup.identity()
        tls = await asyncio.to_thread(client_context, identity)
        peer_name = device_hostname(identity.fleet_id, DeviceId(route.device_id))
        failed: Exception = TicketRefused("The next PC told no address.", "no_address")
        for address in route.addresses:
            try:
                return await dial(
                    address,
                    lambda: Outbound(self.live.hop, route.pipeline, route.epoch, route.stage, route.ticket),
                    tls,
                    peer_name,
                    DIAL_S,
                )
            except _DIAL_FAILURES as error:
                failed = error
        raise failed


def _close_links(live: LiveStage) -> None:
    live.hop.close()
    if live.inbound is not None:
        live.inbound.abort()
        live.inbound = None


def _down(route: DirectRoute, reason: str) -> DirectState:
    return DirectState(route.pipeline, route.epoch, route.stage, up=False, reason=reason)


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"what answers there is not the next PC ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return "the next PC does not answer on its port"
    if isinstance(error, LinkError):
        return str(error)
    return "the next PC cannot be reached on its port"
