"""How a stage's frames leave its child process: to the console, or its steps directly to the next stage.

The computing thread sends; one more thread keeps the direct link, if the console wants one. Whatever happens to that
link, no step is lost, repeated or overtaken (see agent.link.hop).
"""

from __future__ import annotations

import ssl
import sys
import threading
import time
from collections.abc import Callable

import msgspec

from agent.link.credentials import client_tls
from agent.link.cutter import FrameCutter
from agent.link.direct import MAX_ANSWER_BYTES, Route, refusal_of, ticket_frame
from agent.link.frames import Frame, FrameError, FrameType, decode, encode, kind_and_step
from agent.link.hop import PATIENCE_S, Hop
from agent.link.stage_messages import DirectRoute, DirectState
from agent.link.wire import Wire
from agent.stage.outgoing import Outgoing
from agent.stage.types import DirectSpec, StageSpec

DIAL_S = 3.0
LOOK_S = 0.5
"""How often a link is looked at that says nothing."""
FIRST_RETRY_S, LONGEST_RETRY_S = 5.0, 60.0

Send = Callable[[bytes], None]


class Outlet:
    """`relay` sends a frame to the console. Any thread."""

    def __init__(self, spec: StageSpec, by_pipe: Send) -> None:
        self.relay = by_pipe
        """The stage's own link, once there is one."""
        self._spec = spec
        self._by_pipe = by_pipe
        self._lock = threading.RLock()
        self._hop = Hop(self._by_relay)
        self._link: _Link | None = None
        self._keeper: _Keeper | None = None

    @property
    def is_direct(self) -> bool:
        """Whether the next step leaves directly."""
        return self._hop.is_direct

    def send(self, data: bytes) -> None:
        """Send one frame of the stage's."""
        kind, step = kind_and_step(data)
        with self._lock:
            if kind != FrameType.STEP:
                self.relay(data)
                return
            self._hop.send(step, data, time.monotonic())
            if self._link is not None and self._link.broken:
                self._hop.lost(self._link)

    def _by_relay(self, data: bytes) -> None:
        self.relay(data)

    def say(self, state: DirectState) -> None:
        """Tell the console, through the agent, how the direct link is."""
        table = msgspec.msgpack.encode(state)
        frame = encode(Frame(FrameType.DIRECT, state.pipeline, state.epoch, 0, 0, state.stage, table, None))
        with self._lock:
            self._by_pipe(frame)

    def direct(self, route: DirectRoute | None) -> None:
        """Reach the next stage directly, or go on with a fresh ticket; None: by the relay from now on."""
        spec, keeper = self._spec.direct, self._keeper
        if route is not None and keeper is not None and keeper.renew(route):
            return
        if keeper is not None:
            keeper.stop()
            self._keeper = None
        if route is not None and spec is None:
            reason = "direct links are switched off on this PC"
            self.say(DirectState(route.pipeline, route.epoch, route.stage, up=False, reason=reason))
        elif route is not None and spec is not None:
            self._keeper = _Keeper(self, spec, route)
            self._keeper.start()

    def advance(self, report: bytes) -> None:
        """Go on in another epoch: what was not sent is not wanted any more. `report` says so to the agent."""
        self.direct(None)
        with self._lock:
            self._hop, self._link = Hop(self._by_relay), None
            self._by_pipe(report)

    def close(self) -> None:
        """Give the direct link up and wait for its thread."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.stop()
            keeper.join()

    # What the keeper does under the lock of the computing thread

    def opened(self, link: _Link, taken: int) -> None:
        """The receiver accepts; it has taken the steps up to `taken`."""
        with self._lock:
            self._link = link
            self._hop.open(link, taken)

    def show(self, link: _Link, ticket: bytes) -> None:
        """Send a ticket, between two steps."""
        with self._lock:
            link.write(ticket)

    def confirmed(self, link: _Link, taken: int) -> None:
        """The receiver has taken the steps up to `taken`."""
        with self._lock:
            self._hop.confirm(link, taken)

    def is_overdue(self) -> bool:
        """Whether the receiver owes a confirmation for too long."""
        with self._lock:
            return self._hop.is_overdue(time.monotonic())

    def lost(self, link: _Link) -> None:
        """The link carries nothing any more: what was not confirmed is relayed."""
        with self._lock:
            self._hop.lost(link)


class _Link:
    """A wire as the hop knows it."""

    def __init__(self, wire: Wire) -> None:
        self.broken = False
        self._wire = wire
        self._out = Outgoing(wire, self._on_broken)

    def write(self, data: bytes) -> None:
        """Send a frame, now or behind what a slow link has not taken yet."""
        try:
            self._out.send(data)
        except OSError:
            self.broken = True

    def abort(self) -> None:
        """Cut it; safe to call again."""
        self._wire.end()

    def close(self) -> None:
        """End its thread."""
        self._out.close()

    def _on_broken(self, reason: str) -> None:
        self.broken = True
        self._wire.end()


class _Keeper(threading.Thread):
    """Dials, shows tickets, hears confirmations, tells how it is, and dials again."""

    def __init__(self, outlet: Outlet, spec: DirectSpec, route: DirectRoute) -> None:
        super().__init__(name="outlet", daemon=True)
        self._outlet = outlet
        self._spec = spec
        self._route = route
        self._ids: Route = (route.pipeline, route.epoch, route.stage)
        self._news = threading.Condition()
        self._ending = threading.Event()
        self._fresh = False
        self._wire: Wire | None = None

    def renew(self, route: DirectRoute) -> bool:
        """Go on with a fresh ticket; False: it is for another receiver."""
        if (self._route.epoch, self._route.stage, self._route.device_id) != (route.epoch, route.stage, route.device_id):
            return False
        with self._news:
            self._route, self._fresh = route, True
            self._news.notify()
        return True

    def stop(self) -> None:
        """Give the link up."""
        with self._news:
            self._ending.set()
            self._news.notify()
            if self._wire is not None:
                self._wire.end()

    def run(self) -> None:
        wait_s = FIRST_RETRY_S
        while not self._ending.is_set():
            reason, worked = self._attempt()
            if self._ending.is_set():
                return
            self._tell(up=False, reason=reason)
            wait_s = FIRST_RETRY_S if worked else min(2 * wait_s, LONGEST_RETRY_S)
            with self._news:
                self._news.wait_for(lambda: self._ending.is_set() or self._fresh, wait_s)

    def _attempt(self) -> tuple[str, bool]:
        """Try the addresses in turn and keep the first that works; returns why it ended, and whether one worked."""
        reason = "the next PC told no address"
        with self._news:
            self._fresh = False
        for address in self._route.addresses:
            try:
                wire = self._dial(address)
            except (OSError, ValueError) as error:
                reason = _why(error)
                continue
            try:
                worked, reason = self._keep(wire)
            finally:
                with self._news:
                    self._wire = None
                wire.close()
            if worked or self._ending.is_set():
                return reason, worked
        return reason, False

    def _dial(self, address: str) -> Wire:
        tls = client_tls(self._spec.credentials)
        name = f"{self._route.device_id}{self._spec.device_name_suffix}"
        wire = Wire.dial(address, tls, name, DIAL_S, send_wait_s=PATIENCE_S)
        with self._news:
            self._wire = wire
            if self._ending.is_set():
                wire.end()
        return wire

    def _keep(self, wire: Wire) -> tuple[bool, str]:
        """Show the ticket and hold the link until it ends; returns whether it was accepted, and why it ended."""
        link = _Link(wire)
        answers: list[bytes] = []
        cutter = FrameCutter(answers.append, MAX_ANSWER_BYTES)
        asked_s, accepted = time.monotonic(), False
        try:
            self._outlet.show(link, ticket_frame(self._ids, self._route.ticket))
            while True:
                try:
                    data = wire.receive(LOOK_S)
                    if not data:
                        return accepted, "the next PC closed the link"
                    cutter.feed(data)
                except TimeoutError:
                    if not accepted and time.monotonic() - asked_s > DIAL_S:
                        return False, "the next PC does not answer the ticket"
                for answer in answers:
                    frame = decode(answer)
                    if frame.type is not FrameType.TAKEN:
                        return accepted, refusal_of(frame)
                    if accepted:
                        self._outlet.confirmed(link, frame.step)
                        continue
                    self._outlet.opened(link, frame.step)
                    accepted = True
                    self._tell(up=True, round_trip_ms=1000 * (time.monotonic() - asked_s))
                answers.clear()
                if self._outlet.is_overdue():
                    return accepted, "the next PC does not confirm what it is sent"
                self._show_fresh_ticket(link)
        except (OSError, FrameError) as error:
            return accepted, _why(error)
        finally:
            self._outlet.lost(link)
            link.close()

    def _show_fresh_ticket(self, link: _Link) -> None:
        with self._news:
            fresh, self._fresh = self._fresh, False
        if fresh:
            self._outlet.show(link, ticket_frame(self._ids, self._route.ticket))

    def _tell(self, *, up: bool, reason: str = "", round_trip_ms: float = 0.0) -> None:
        route = self._route
        if reason:
            sys.stderr.write(f"The direct link to stage {route.stage} is down: {reason}.\n")
        self._outlet.say(DirectState(route.pipeline, route.epoch, route.stage, up, reason, round_trip_ms))


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"what answers there is not the next PC ({error.verify_message})"
    if isinstance(error, FrameError):
        return f"the next PC sent what cannot be read ({error})"
    if isinstance(error, TimeoutError):
        return "the next PC does not answer on its port"
    return "the next PC cannot be reached on its port"
