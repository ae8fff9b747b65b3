"""A session's door for other PCs: they may fetch from here what this PC holds. Event loop only.

The port is open while the session lasts, if the console lets PCs talk to each other and this PC's settings do, on the
address that leads to the console. Mutual TLS says who dials, a ticket of the console that they may; and whoever is let
in can fetch model files by hash and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from agent.link.bulk import PC_SAYS, Holder, serve_files
from agent.link.closing import CloseCode, close_reason
from agent.link.errors import IdentityError, TicketRefused
from agent.link.fetch import Fetcher
from agent.link.frames import Frame, FrameError, FrameType, decode, encode
from agent.link.identity import DeviceId, Identity, client_context, device_hostname, device_uri, peer_server_context
from agent.link.messages import BULK_PATH, MAX_NAMED_FILES, FromAgent, Holding, Welcome
from agent.link.pace import Pace
from agent.link.sockets import SERVER_SETTINGS, client_settings, tune
from agent.link.store import Store
from agent.link.tickets import FileTicket, unseal
from agent.settings import AgentSettings

log = logging.getLogger(__name__)
# Port scanners and cut handshakes are everyday noise on an open port; ours are the logs that matter.
_websockets_log = logging.getLogger(f"{__name__}.websockets")
_websockets_log.setLevel(logging.CRITICAL + 1)

TICKET_WAIT_S = 5.0
DIAL_S = 3.0
MAX_READERS = 4
"""At once; more would take the PC's uplink from its owner."""


@dataclass(frozen=True)
class DirectSetup:
    """What links between PCs need and outlives a session; `identity` returns the present one, for it is renewed."""

    identity: Callable[[], Identity]
    settings: AgentSettings


class PeerDialler:
    """Opens bulk links to other PCs. `setup.identity` returns the present identity."""

    def __init__(self, setup: DirectSetup) -> None:
        self._setup = setup

    async def dial(self, holder: Holder) -> ClientConnection:
        """Open a link and show the ticket; nothing stays open when that fails.

        Raises OSError, TimeoutError, LinkError or WebSocketException.
        """
        identity = self._setup.identity()
        tls = await asyncio.to_thread(client_context, identity)
        failed: Exception = TicketRefused("The PC told no address.", "no_address")
        for address in holder.addresses:
            settings = {**client_settings(BULK_PATH), "open_timeout": DIAL_S}
            name = device_hostname(identity.fleet_id, DeviceId(holder.device_id))
            try:
                link = await connect(f"wss://{address}{BULK_PATH}", ssl=tls, server_hostname=name, **settings)
            except (OSError, TimeoutError) as error:
                failed = error
                continue
            try:
                await link.send(encode(Frame(FrameType.TICKET, 0, 0, 0, 0, 0, holder.ticket, None)))
            except BaseException:  # nobody else knows of the link yet
                await link.close()
                raise
            return link
        raise failed


class _Spared(Exception):
    """This PC's owner is to be spared transfers from now on."""


class Seeding:
    """Serves the store to other PCs and keeps the console's list of it right. Use `run` as a task of the session."""

    def __init__(
        self,
        setup: DirectSetup,
        welcome: Welcome,
        host: str,
        store: Store,
        fetcher: Fetcher,
        *,
        say: Callable[[FromAgent], None],
        pace: Pace,
        spared: Callable[[], str] = lambda: "",
    ) -> None:
        """`spared` says why nothing should be transferred now; empty: it may."""
        self._setup = setup
        self._fleet_id = setup.identity().fleet_id
        self._device_id = setup.identity().device_id
        self._route_key = welcome.route_key
        self._ahead_s = welcome.now_s - time.monotonic()
        self._host = host
        self._store = store
        self._fetcher = fetcher
        self._say = say
        self._pace = pace
        self._spared = spared
        self._addresses: list[str] = []
        self._readers = 0

    async def run(self) -> None:
        """Serve until cancelled."""
        self._fetcher.on_files = self._changed
        allowed = bool(self._route_key) and self._setup.settings.direct_links
        # Before the first wait: a session may begin with a stage to load.
        self._fetcher.peers = PeerDialler(self._setup) if allowed else None
        server: Server | None = None
        try:
            server = await self._open_port() if allowed else None
            held = await asyncio.to_thread(self._store.held)
            self._changed(held[MAX_NAMED_FILES:], [])  # Hello had room for the others
            await asyncio.Event().wait()
        finally:
            self._fetcher.peers = None
            self._fetcher.on_files = lambda _added, _removed: None
            if server is not None:
                server.close(code=CloseCode.GOING_AWAY)
                await server.wait_closed()

    def _changed(self, added: Sequence[str], removed: Sequence[str]) -> None:
        for start in range(0, max(len(added), len(removed), 1), MAX_NAMED_FILES):
            end = start + MAX_NAMED_FILES
            self._say(Holding(self._addresses, list(added[start:end]), list(removed[start:end])))

    async def _open_port(self) -> Server | None:
        first, last = self._setup.settings.direct_ports
        try:
            tls = await asyncio.to_thread(peer_server_context, self._setup.identity())
        except IdentityError as error:
            log.warning("Other PCs cannot fetch from here for now: %s", error)
            return None
        # The first port is for stage links: something may forward to it.
        for port in range(last, first, -1) if last else (0,):
            try:
                server = await serve(
                    self._handle, self._host, port, ssl=tls, process_request=_check_path, logger=_websockets_log,
                    **SERVER_SETTINGS,
                )  # fmt: skip
            except OSError as error:
                log.debug("Port %d cannot be opened for other PCs: %s", port, error)
                continue
            bound = server.sockets[0].getsockname()[1]
            self._addresses = [f"[{self._host}]:{bound}" if ":" in self._host else f"{self._host}:{bound}"]
            return server
        log.info("No port of %d to %d is free on %s for other PCs to fetch from.", first, last, self._host)
        return None

    async def _handle(self, link: ServerConnection) -> None:
        try:
            async with asyncio.timeout(TICKET_WAIT_S):
                self._check(link, decode(await link.recv(decode=False)))
        except (TicketRefused, FrameError) as error:
            log.warning("Another PC was refused files: %s", error)
            await link.close(CloseCode.NOT_APPROVED, close_reason("ticket", str(error)))
            return
        except (ConnectionClosed, TimeoutError):
            await link.close(CloseCode.STALLED, close_reason("silent", "Nothing was said in time."))
            return
        await self._serve(link)

    async def _serve(self, link: ServerConnection) -> None:
        if self._spared():
            await self._send_away(link)
            return
        if self._readers >= MAX_READERS:
            await link.close(CloseCode.DRAINING, close_reason("busy", "Enough PCs fetch from here now."))
            return
        self._readers += 1
        try:
            await serve_files(
                link,
                self._store.find,
                before_sending=self._wait,
                chunk_bytes=self._pace.chunk_bytes,
                says=PC_SAYS,
            )
        except FrameError as error:
            log.warning("Closed a bulk link of another PC: %s", error)
            await link.close(CloseCode.BAD_FRAME, close_reason("bad_frame", str(error)))
        except ConnectionClosed:
            pass
        except _Spared:
            await self._send_away(link)
        except Exception:  # the edge of a connection's task
            log.exception("Serving another PC failed.")
            await link.close(1011, "")
        finally:
            self._readers -= 1

    async def _send_away(self, link: ServerConnection) -> None:
        # Why is nobody's business but the owner's and the console's; what is lacking comes from elsewhere.
        await link.close(CloseCode.DRAINING, close_reason("busy", "That PC gives no files now."))

    async def _wait(self, size_bytes: int) -> None:
        if self._spared():
            raise _Spared
        await asyncio.sleep(self._pace.wait_s(size_bytes, asyncio.get_running_loop().time()))

    def _check(self, link: ServerConnection, frame: Frame) -> None:
        """Raise TicketRefused unless the console lets this PC fetch from here now."""
        if frame.type is not FrameType.TICKET:
            raise TicketRefused(f"A {frame.type.name} frame came without a ticket.", "no_ticket")
        ticket = unseal(frame.table, self._route_key, self._ahead_s + time.monotonic(), FileTicket)
        if ticket.holder != self._device_id:
            raise TicketRefused("The ticket is for another holder.", "other_device")
        tls: ssl.SSLObject = link.transport.get_extra_info("ssl_object")
        certificate: dict[str, Any] = tls.getpeercert() or {}
        uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
        if uris != [device_uri(self._fleet_id, DeviceId(ticket.reader))]:
            raise TicketRefused("The ticket was given to another device.", "other_device")


def _check_path(link: ServerConnection, request: Request) -> Response | None:
    if request.path != BULK_PATH:
        return link.respond(HTTPStatus.NOT_FOUND, "There is nothing here.\n")
    tune(link, request.path)
    return None
