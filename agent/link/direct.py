"""Direct stage links: what both ends say, and what the receiver lets in. No I/O here.

Frames follow each other on a TLS 1.3 stream, with no protocol around them. The sender dials and begins with a TICKET;
the receiver answers TAKEN, which is also the probe's answer, or NACK and closes. Then STEP frames go one way and TAKEN
the other. TLS proves who is at the other end, the ticket that it may be there, and every frame is compared with the
ticket: pipeline, epoch and stage. Until the ticket a stranger may send a kilobyte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from agent.link.cutter import FrameCutter
from agent.link.errors import TicketRefused
from agent.link.frames import HEADER, MAX_FRAME_BYTES, Frame, FrameType, decode, encode, peek
from agent.link.parsing import UNREADABLE
from agent.link.tickets import MAX_TICKET_BYTES, RouteTicket, unseal
from agent.stage.types import DirectSpec, Nack

STRANGER_BYTES = HEADER.size + MAX_TICKET_BYTES
MAX_ANSWER_BYTES = HEADER.size + 4096

Route = tuple[int, int, int]
"""Pipeline, epoch and the receiver's stage."""


class Door:
    """The receiver's side of one link: bytes in, steps out. Raises FrameError or TicketRefused: close the link then.

    `peer_uris` are the URIs of the certificate that the peer has shown. `on_step` gets the step's id and the frame.
    """

    def __init__(
        self,
        spec: DirectSpec,
        route: Route,
        peer_uris: Sequence[str],
        now_s: Callable[[], float],
        on_step: Callable[[int, bytes], None],
    ) -> None:
        """`now_s` returns the console's Unix time."""
        self._spec = spec
        self._route = route
        self._peer_uris = list(peer_uris)
        self._now_s = now_s
        self._on_step = on_step
        self._cutter = FrameCutter(self._on_frame, STRANGER_BYTES)
        self.ticket: RouteTicket | None = None
        """The last one shown; the link must end with it."""
        self.tickets = 0
        """How many were shown."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._cutter.feed(data)

    def _on_frame(self, data: bytes) -> None:
        header = peek(data)
        if header.type is FrameType.STEP and self.ticket is not None:
            if (header.pipeline, header.epoch, header.stage) != self._route:
                raise TicketRefused("A frame on the direct link is not for the ticket's stage.", "other_stage")
            self._on_step(header.step, data)
        elif header.type is FrameType.TICKET:
            self.ticket = self._checked(decode(data).table)
            self.tickets += 1
            self._cutter.max_bytes = MAX_FRAME_BYTES
        else:
            raise TicketRefused(f"A {header.type.name} frame came without a ticket for it.", "no_ticket")

    def _checked(self, data: bytes) -> RouteTicket:
        spec = self._spec
        ticket = unseal(data, spec.route_key, self._now_s(), RouteTicket)
        if ticket.receiver != spec.device_id:
            raise TicketRefused("The route ticket is for another receiver.", "other_device")
        if (ticket.pipeline, ticket.epoch, ticket.stage) != self._route:
            raise TicketRefused("The route ticket is for a stage that this PC does not hold now.", "other_stage")
        if self._peer_uris != [f"{spec.device_uri_prefix}{ticket.sender}"]:
            raise TicketRefused("The route ticket was given to another device.", "other_device")
        return ticket


def ticket_frame(route: Route, ticket: bytes) -> bytes:
    """Build the sender's first word, said again with every fresh ticket."""
    return _control(FrameType.TICKET, route, table=ticket)


def taken_frame(route: Route, step: int) -> bytes:
    """Build the receiver's confirmation of every step up to `step` (-1: none, which is said as 0, no step's id)."""
    return _control(FrameType.TAKEN, route, step=max(0, step))


def refusal_frame(code: str, message: str) -> bytes:
    """Build the receiver's last word."""
    return _control(FrameType.NACK, (0, 0, 0), table=msgspec.msgpack.encode(Nack(0, code, message)))


def refusal_of(frame: Frame) -> str:
    """Read why a receiver refused."""
    try:
        return msgspec.msgpack.decode(frame.table, type=Nack).message
    except UNREADABLE:
        return "the next PC refused the link"


def _control(type_: FrameType, route: Route, *, step: int = 0, table: bytes = b"") -> bytes:
    pipeline, epoch, stage = route
    return encode(Frame(type_, pipeline, epoch, step, 0, stage, table, None))
