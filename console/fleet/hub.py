"""The hub: the one TLS port every agent dials, and what the rest of the console may ask of the fleet.

Paths: `/enrol` (no certificate), `/control`, `/data` and `/bulk` (certificate and registry look-up on each accept).
An agent is a pair of links: it has joined when both are up and is lost as soon as one drops, its heartbeats stop, or
a newer session of the same device takes over. Everything runs on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from websockets.asyncio.server import Server, serve

from agent.link.bulk import Find
from agent.link.closing import CloseCode, close_reason
from agent.link.messages import FromConsole, Goodbye, Keep, LayerRange, OfferRelease, VolunteerPolicy
from agent.link.sockets import MAX_UNSENT_BYTES, SERVER_SETTINGS
from agent.link.stage_messages import AdvanceEpoch, LoadStage, UnloadStage
from agent.stage.types import Epoch, PipelineId, StageReport
from console.fleet import accepting
from console.fleet.clones import CloneWatch
from console.fleet.direct import DirectLinks, StageLink
from console.fleet.doorkeeper import Authorise, Doorkeeper
from console.fleet.events import AgentLost, AgentView, FleetEvent
from console.fleet.lately import Lately
from console.fleet.linkwatch import LinkWatch
from console.fleet.orders import ADVANCE_S, DELIVERY_S, LOAD_STALL_S, Orders, Sign
from console.fleet.peers import Peers
from console.fleet.reception import Handler, Reception, check_path
from console.fleet.relay import OnFrame, OnPass, Relay, StageBytes
from console.fleet.session import OnProgress
from console.fleet.sessions import Listener, Sessions
from console.fleet.uplink_gate import UplinkGate
from console.fleet.uplinks import Uplink, switching

log = logging.getLogger(__name__)
# Port scanners and cut handshakes are everyday noise on an open port; ours are the logs that matter.
_websockets_log = logging.getLogger(f"{__name__}.websockets")
_websockets_log.setLevel(logging.CRITICAL + 1)

HEARTBEAT_S = 2.0


class Hub:
    """Agents' links, liveness, loading and relay.

    `authorise` turns a peer's certificate (DER, None without one) into its record or raises NotAuthorised, at once or
    after a while (see `doorkeeper`); `enrol` serves one connection; `files` finds what bulk links may fetch; `sign`
    gives the console's word for a library's digest to those who load it. `clones` finds two PCs with one identity;
    without it the newest of two sessions wins. `hands_over` promises that somebody unloads what leaving agents hold.
    Listeners are called on the event loop and must not block.
    """

    def __init__(
        self,
        authorise: Authorise,
        *,
        enrol: Handler,
        files: Find,
        sign: Sign = lambda digest: b"",
        clones: CloneWatch | None = None,
        heartbeat_s: float = HEARTBEAT_S,
        max_unsent_bytes: int = MAX_UNSENT_BYTES,
        direct_links: bool = False,
        hands_over: bool = False,
    ) -> None:
        self._sessions = Sessions(heartbeat_s)
        self.lately = Lately(self._sessions)
        """How each PC was in the last hour, and what it logged."""
        self._relay = Relay(
            self._sessions.data_link,
            self._sessions.uplink,
            self._sessions.lose_stalled,
            max_unsent_bytes,
        )
        # Made anew at each start and told to agents in Welcome: nothing on any disk can sign a ticket.
        key = Ed25519PrivateKey.generate()
        doorkeeper = Doorkeeper(authorise)
        self._uplink_gate = UplinkGate(doorkeeper, self._sessions, self._relay)
        self._direct = DirectLinks(self._say_to, key, allowed=direct_links)
        self._peers = Peers(key, allowed=direct_links)
        self._orders = Orders(self._sessions, sign, direct=self._direct.allowed)
        self._clones = clones
        self._reception = Reception(
            doorkeeper,
            enrol,
            files,
            clones,
            sessions=self._sessions,
            relay=self._relay,
            direct=self._direct,
            peers=self._peers,
            heartbeat_s=heartbeat_s,
            hands_over=hands_over,
        )
        self._sessions.subscribe(self._on_fleet_event)
        self._server: Server | None = None
        self._workers: list[asyncio.Task[None]] = []

    async def start(self, host: str, port: int, tls: ssl.SSLContext) -> int:
        """Listen; return the port (useful with port 0). Raises OSError when it is taken."""
        self._server = await serve(
            self._reception.handle,
            host,
            port,
            ssl=tls,
            process_request=check_path,
            create_connection=switching(lambda: Uplink(self._uplink_gate)),
            logger=_websockets_log,
            backlog=accepting.backlog(),
            **SERVER_SETTINGS,
        )
        accepting.lengthen_queue(self._server.sockets)
        links = LinkWatch(self._sessions)
        works = {
            "watch": self._sessions.watch(self._is_covered),
            "tickets": self._direct.renew_for_ever(),
            "links": links.watch(),
            "lately": self.lately.watch(),
        }
        self._workers = [asyncio.create_task(work, name=f"hub-{name}") for name, work in works.items()]
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Say goodbye to every agent, close all links with 4503 and stop listening."""
        if self._server is None:
            return
        for session in self._sessions:
            self._sessions.say(session, Goodbye("draining", "The console is restarting."))
            self._sessions.lose(session, "the console stops", CloseCode.DRAINING, "draining")
        self._server.close(code=CloseCode.DRAINING, reason=close_reason("draining", "The console is restarting."))
        await self._server.wait_closed()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self._sessions.closed()
        if self._clones is not None:
            await self._clones.stop()
        self._server = None

    # What the console asks of the fleet

    def agents(self) -> list[AgentView]:
        """List the agents that have joined."""
        return [session.view() for session in self._sessions if session.data is not None]

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event from now on; the result ends that."""
        return self._sessions.subscribe(listener)

    async def load(
        self,
        device_id: str,
        request: LoadStage,
        on_progress: OnProgress | None = None,
        stall_s: float = LOAD_STALL_S,
    ) -> StageReport:
        """Let an agent fetch and load a stage; return once it passed its own probe. See Orders.load."""
        return await self._orders.load(device_id, request, on_progress, stall_s)

    def advances(self, device_id: str) -> bool:
        """Whether an agent knows `advance`; a stage of an older one is loaded anew."""
        session = self._sessions.find(device_id)
        return session is not None and session.hello.advances

    async def advance(self, device_id: str, order: AdvanceEpoch, wait_s: float = ADVANCE_S) -> StageReport:
        """Let a loaded stage go on in another epoch; its route must be set. See Orders.advance."""
        return await self._orders.advance(device_id, order, wait_s)

    async def unload(self, device_id: str, pipeline: PipelineId) -> None:
        """As `unload_soon`; a place for those to wait who take something down."""
        self.unload_soon(device_id, pipeline)

    def unload_soon(self, device_id: str, pipeline: PipelineId) -> None:
        """Tell an agent to end a pipeline's stage. An agent that is not connected holds none: nothing to do."""
        session = self._sessions.find(device_id)
        if session is not None:
            session.fail_load(pipeline, "replaced", "it was unloaded meanwhile.")
            self._sessions.say(session, UnloadStage(pipeline))

    def disconnect(self, device_id: str, close_code: CloseCode, code: str, message: str) -> None:
        """Close every link of a device at once (revoked: NOT_APPROVED, `revoked`). Also right if it has none."""
        self._reception.disconnect(device_id, close_code, code, message)

    async def deliver(self, device_id: str, layers: LayerRange, timeout_s: float = DELIVERY_S) -> None:
        """Let a PC fetch layers into its store. Raises DeliveryFailed."""
        await self._orders.deliver(device_id, layers, timeout_s)

    def linked(self) -> list[str]:
        """List the devices that have any link, also those that have not joined."""
        return self._reception.linked()

    def has_files(self, device_id: str, sha256: Sequence[str]) -> bool:
        """Whether a connected PC said that it has all of these model files."""
        return self._peers.holds(device_id, sha256)

    def keep(self, device_id: str, ranges: Sequence[LayerRange]) -> None:
        """Tell a PC which layers live plans count on being in its store."""
        self._say_to(device_id, Keep(list(ranges)))

    def tell(self, device_id: str, policy: VolunteerPolicy) -> None:
        """Give a PC the administrator's wishes; it answers with an AgentTold."""
        self._say_to(device_id, policy)

    def offer(self, device_id: str, release: OfferRelease) -> None:
        """Offer a PC a release, or none; it answers with an AgentTold."""
        self._say_to(device_id, release)

    # Routing

    def set_frame_handler(self, on_frame: OnFrame, pipeline: int | None = None) -> None:
        """Register who gets TOKENS and NACK frames, of one pipeline or of all others. See Relay.set_handler."""
        self._relay.set_handler(on_frame, pipeline)

    def set_pass_handler(self, on_pass: OnPass, pipeline: int) -> None:
        """Register who hears of a pipeline's steps that go on to the next stage. See Relay.set_pass_handler."""
        self._relay.set_pass_handler(on_pass, pipeline)

    def set_route(self, pipeline: int, epoch: int, device_ids: Sequence[str]) -> None:
        """Let stage k of `pipeline` be `device_ids[k]`. Frames of other epochs are dropped from now on."""
        self._relay.set_route(pipeline, epoch, device_ids)
        self._direct.set_route(PipelineId(pipeline), Epoch(epoch), device_ids)

    def set_standby(self, pipeline: int, device_id: str, epoch: int, stage: int) -> None:
        """Let a PC that is not on the route have that stage loaded, for the day it is needed: see `advance`."""
        self._relay.set_standby(pipeline, device_id, epoch, stage)

    def drop_standby(self, pipeline: int, device_id: str) -> None:
        """A PC has no stage in reserve any more, or has it on the route."""
        self._relay.drop_standby(pipeline, device_id)

    def _is_covered(self, device_id: str) -> bool:
        """Say whether a PC serves, and each of its stages is loaded on another one, too."""
        reserves = self._relay.reserves(device_id)
        has_loaded = self._sessions.has_loaded
        return bool(reserves) and all(any(has_loaded(one, at) for one in others) for at, others in reserves.items())

    def clear_route(self, pipeline: int) -> None:
        """Drop every further frame of `pipeline`."""
        self._relay.clear_route(pipeline)
        self._direct.clear_route(PipelineId(pipeline))

    def stage_links(self, pipeline: int) -> list[StageLink]:
        """Say how steps reach each stage of a route: from the console, relayed or directly."""
        return self._direct.links(PipelineId(pipeline))

    def submit(self, pipeline: int, frame_bytes: bytes) -> None:
        """Send an encoded STEP to stage 0, without waiting. Raises NoRoute; a lost stage answers NACK `gone`."""
        self._relay.submit(pipeline, frame_bytes)

    def stage_bytes(self, pipeline: int) -> StageBytes:
        """Count the bytes of a pipeline's steps that went through here, by stage."""
        return self._relay.bytes_of(pipeline)

    @property
    def bulk_bytes(self) -> int:
        """Count the bytes of model files that PCs fetched from here."""
        return self._reception.bulk_bytes

    def round_trip_s(self, device_id: str) -> float | None:
        """How long the last ping of a PC's control link took; None: it is not connected, or none came back yet."""
        link = self._sessions.control_link(device_id)
        return link.latency if link is not None and link.latency > 0 else None

    @property
    def dropped_frames(self) -> dict[str, int]:
        """Count frames nobody wanted, by cause."""
        return dict(self._relay.dropped)

    def _say_to(self, device_id: str, message: FromConsole) -> None:
        session = self._sessions.find(device_id)
        if session is not None:
            self._sessions.say(session, message)

    def _on_fleet_event(self, event: FleetEvent) -> None:
        if isinstance(event, AgentLost):
            self._direct.left(event.device_id)
