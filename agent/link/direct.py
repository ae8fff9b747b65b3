"""Direct stage links: one agent's STEP frames straight to the next agent, over mutual TLS. Event loop only.

Frames follow each other on a TLS 1.3 stream, with no protocol around them. The sender dials and begins with a TICKET;
the receiver answers TAKEN, which is also the probe's answer, or NACK and closes. Then STEP frames go one way and TAKEN
the other. TLS proves who is at the other end, the ticket that it may be there, and every frame is compared with the
ticket: pipeline, epoch and stage. Until the ticket a stranger may send a kilobyte and has a few seconds.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from agent.link.cutter import FrameCutter
from agent.link.errors import TicketRefused
from agent.link.frames import HEADER, MAX_FRAME_BYTES, Frame, FrameError, FrameType, Peek, decode, encode, peek
from agent.link.hop import Hop
from agent.link.identity import DeviceId, device_uri
from agent.link.tickets import MAX_TICKET_BYTES, RouteTicket
from agent.stage.types import Epoch, Nack, PipelineId

log = logging.getLogger(__name__)

TICKET_WAIT_S = 5.0
CONFIRM_S = 0.1
"""How long a receiver may collect steps before it confirms them: far below a sender's patience."""
_STRANGER_BYTES = HEADER.size + MAX_TICKET_BYTES
_MAX_ANSWER_BYTES = HEADER.size + 4096


class Gate(Protocol):
    """The receiving agent, as far as a link knows it."""

    fleet_id: str

    def now_s(self) -> float:
        """Return the console's Unix time."""
        ...

    def greet(self, link: Inbound) -> bool:
        """Note a link that passed TLS; False: too many wait for their ticket already, close it unread."""
        ...

    def check(self, ticket: bytes) -> RouteTicket:
        """Check a ticket's signature, time, receiver and stage. Raises TicketRefused."""
        ...

    def admit(self, link: Inbound, ticket: RouteTicket) -> int:
        """Take a link whose ticket and peer are right; return the stage's last step (-1: none). May raise too."""
        ...

    def take(self, link: Inbound, header: Peek, data: bytes) -> asyncio.Future[None] | None:
        """Take a STEP of the link's stage; a future: nothing more, please, until it is done."""
        ...

    def left(self, link: Inbound) -> None:
        """Forget a link, admitted or not."""
        ...


class Inbound(asyncio.Protocol):
    """The receiver's end."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._cutter = FrameCutter(self._on_frame, _STRANGER_BYTES)
        self._ticket: RouteTicket | None = None
        self._taken = -1
        self._deadline: asyncio.TimerHandle | None = None
        self._confirming: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a TLS server makes
        self._transport = transport
        self._deadline = self._loop.call_later(TICKET_WAIT_S, self.abort)
        if not self._gate.greet(self):
            self.abort()

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        try:
            self._cutter.feed(data)
        except FrameError as error:
            log.warning("Closed a direct link of %s: %s", self._peer_name(), error)
            self._refuse("bad_frame", str(error))
        except TicketRefused as error:
            log.warning("Refused a direct link of %s: %s", self._peer_name(), error)
            self._refuse(error.code, str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        for handle in (self._deadline, self._confirming):
            if handle is not None:
                handle.cancel()
        self._gate.left(self)

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def confirm(self, taken: int) -> None:
        """Tell the sender that every step up to `taken` was taken, whichever way it came."""
        self._taken = taken
        self._confirm()

    def _on_frame(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        header, ticket = peek(data), self._ticket
        if header.type is FrameType.STEP and ticket is not None:
            if (header.pipeline, header.epoch, header.stage) != (ticket.pipeline, ticket.epoch, ticket.stage):
                raise TicketRefused("A frame on the direct link is not for the ticket's stage.", "other_stage")
            self._take(header, data)
        elif header.type is FrameType.TICKET:
            self._on_ticket(decode(data).table)
        else:
            raise TicketRefused(f"A {header.type.name} frame came without a ticket for it.", "no_ticket")

    def _take(self, header: Peek, data: bytes) -> None:
        full = self._gate.take(self, header, data)
        self._taken = max(self._taken, header.step)
        if self._confirming is None:
            self._confirming = self._loop.call_later(CONFIRM_S, self._confirm)
        if full is not None:
            self._transport.pause_reading()
            full.add_done_callback(self._read_on)

    def _read_on(self, _: asyncio.Future[None]) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _on_ticket(self, data: bytes) -> None:
        ticket = self._gate.check(data)
        if self._peer_uris() != [device_uri(self._gate.fleet_id, DeviceId(ticket.sender))]:
            raise TicketRefused("The route ticket was given to another device.", "other_device")
        former = self._ticket
        if former is None:
            self._taken = self._gate.admit(self, ticket)
            self._cutter.max_bytes = MAX_FRAME_BYTES
        elif (former.pipeline, former.epoch, former.stage) != (ticket.pipeline, ticket.epoch, ticket.stage):
            raise TicketRefused("The new route ticket is for another stage.", "other_stage")
        self._ticket = ticket
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(ticket.expires_s - self._gate.now_s(), self.abort)
        self._confirm()

    def _confirm(self) -> None:
        if self._confirming is not None:
            self._confirming.cancel()
            self._confirming = None
        ticket = self._ticket
        if ticket is not None and not self._transport.is_closing():
            # TAKEN has no room for "none": step 0 is never a step's id, so it says the same.
            route = (ticket.pipeline, ticket.epoch, ticket.stage)
            self._transport.write(_control(FrameType.TAKEN, route, step=max(0, self._taken)))

    def _refuse(self, code: str, message: str) -> None:
        nack = Frame(FrameType.NACK, 0, 0, 0, 0, 0, msgspec.msgpack.encode(Nack(0, code, message)), None)
        self._transport.write(encode(nack))
        self._transport.close()

    def _peer_uris(self) -> list[str]:
        certificate = self._transport.get_extra_info("peercert") or {}
        return [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]

    def _peer_name(self) -> str:
        return ", ".join(self._peer_uris()) or str(self._transport.get_extra_info("peername"))


class Outbound(asyncio.Protocol):
    """The sender's end: it opens `hop` to the direct way once the receiver accepts, and gives it back when it ends."""

    def __init__(self, hop: Hop, pipeline: PipelineId, epoch: Epoch, stage: int, ticket: bytes) -> None:
        """`stage` is the receiver's."""
        self._hop = hop
        self._route = (pipeline, epoch, stage)
        self._ticket = ticket
        self._cutter = FrameCutter(self._on_frame, _MAX_ANSWER_BYTES)
        self._loop = asyncio.get_running_loop()
        self._watch: asyncio.TimerHandle | None = None
        self._asked_s = 0.0
        self.reason = ""
        """Why it ended."""
        self.accepted: asyncio.Future[float] = self._loop.create_future()
        """The probe's round trip in seconds; never set for a link that ends before."""
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a TLS client makes
        self._transport = transport
        self._asked_s = self._loop.time()
        self.renew(self._ticket)

    def data_received(self, data: bytes) -> None:
        try:
            self._cutter.feed(data)
        except FrameError as error:
            self.reason = f"the next PC sent what cannot be read ({error})"
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self.reason = self.reason or "the next PC closed the link"
        self._hop.lost(self)
        if not self.ended.done():
            self.ended.set_result(None)

    def renew(self, ticket: bytes) -> None:
        """Show a ticket: the first, or a fresh one before the last expires."""
        self.write(_control(FrameType.TICKET, self._route, table=ticket))

    def write(self, data: bytes) -> None:
        """Send one STEP frame without waiting; one that is closing already has its steps relayed when it ends."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def abort(self) -> None:
        """Close at once; what was not confirmed goes by the relay."""
        self._transport.abort()

    def _on_frame(self, data: bytes) -> None:
        frame = decode(data)
        if frame.type is FrameType.TAKEN:
            if self.accepted.done():
                self._hop.confirm(self, frame.step)
                return
            self._hop.open(self, frame.step)
            self.accepted.set_result(self._loop.time() - self._asked_s)
            self._look()
        elif frame.type is FrameType.NACK:
            self.reason = _refusal(frame)
            self.abort()
        else:
            self.reason = f"the next PC sent a {frame.type.name} frame"
            self.abort()

    def _look(self) -> None:
        """Once a second: is the receiver still there?"""
        if self._hop.is_overdue(self._loop.time()):
            self.reason = "the next PC does not confirm what it is sent"
            self._hop.lost(self)
            return
        self._watch = self._loop.call_later(1.0, self._look)


def _control(type_: FrameType, route: tuple[int, int, int], *, step: int = 0, table: bytes = b"") -> bytes:
    pipeline, epoch, stage = route
    return encode(Frame(type_, pipeline, epoch, step, 0, stage, table, None))


def _refusal(frame: Frame) -> str:
    try:
        return msgspec.msgpack.decode(frame.table, type=Nack).message
    except msgspec.MsgspecError:
        return "the next PC refused the link"


async def dial(
    address: str, make: Callable[[], Outbound], tls: ssl.SSLContext, peer_name: str, timeout_s: float
) -> Outbound:
    """Open a link to `host:port`; returns once it is accepted. Raises OSError, TimeoutError or TicketRefused."""
    host, _, port = address.rpartition(":")
    link: Outbound | None = None
    try:
        async with asyncio.timeout(timeout_s):
            _, link = await asyncio.get_running_loop().create_connection(
                make, host.strip("[]"), int(port), ssl=tls, server_hostname=peer_name, ssl_handshake_timeout=timeout_s
            )
            either: set[asyncio.Future[Any]] = {link.accepted, link.ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    except BaseException:
        if link is not None:
            link.abort()
        raise
    if not link.accepted.done():
        raise TicketRefused(link.reason, "refused")
    return link
