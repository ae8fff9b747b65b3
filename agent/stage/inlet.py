"""The receiving end of direct links, in a stage's child process: a port, and a thread for each peer.

The port is open while the stage is served, on the one address its PC talks to the console from. One peer may feed the
stage at a time: the newest with a right ticket.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
import time
from typing import Any

from agent.link.credentials import peer_tls
from agent.link.direct import Door, Route, refusal_frame, taken_frame
from agent.link.errors import TicketRefused
from agent.link.frames import FrameError
from agent.link.wire import Wire
from agent.stage.intake import Intake, TooManySteps
from agent.stage.types import DirectSpec, Epoch, StageSpec

TLS_WAIT_S = 3.0
TICKET_WAIT_S = 5.0
CONFIRM_S = 0.1
"""How long steps may be collected before they are confirmed: far below a sender's patience."""
SETTLE_S = 0.02
"""How soon relayed steps are confirmed to a sender that waits for the relay to run dry."""
MAX_PEERS = 16
"""Connections at once: more are closed unread."""


class Inlet:
    """Feeds `intake`. Opened by `open`; every thread ends with `close`."""

    def __init__(self, spec: StageSpec, direct: DirectSpec, intake: Intake) -> None:
        self._spec = direct
        self._route: Route = (spec.pipeline, spec.epoch, spec.stage)
        self._intake = intake
        self._lock = threading.Lock()
        self._feeding: Wire | None = None
        self._peers: set[threading.Thread] = set()
        self._sockets: set[socket.socket] = set()
        self._server: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> list[str]:
        """Listen; returns the addresses to tell the sender: none if no port is free, with the reason on stderr."""
        host, (first, last) = self._spec.host, self._spec.ports
        try:
            tls = peer_tls(self._spec.credentials)
            server = _bind(host, first, last)
        except OSError as error:
            sys.stderr.write(f"No direct links: ports {first} to {last} on {host} cannot be opened ({error}).\n")
            return []
        self._server = server
        self._thread = threading.Thread(target=self._accept, args=(server, tls), name="inlet", daemon=True)
        self._thread.start()
        port = server.getsockname()[1]
        return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]

    def cut(self) -> None:
        """Close the link that feeds the stage, at once; the port stays open."""
        with self._lock:
            if self._feeding is not None:
                self._feeding.end()

    def advance(self, epoch: Epoch, stage: int) -> None:
        """Be fed as another stage from now on."""
        with self._lock:
            self._route = (self._route[0], epoch, stage)
        self.cut()

    def close(self) -> None:
        """Close the port and every link, and wait for the threads."""
        if self._server is None or self._thread is None:
            return
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes accept, which close alone does not
        self._server.close()
        self._thread.join()
        with self._lock:
            peers, sockets = list(self._peers), list(self._sockets)
        for peer in sockets:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(peer, socket.SHUT_RDWR)
        for thread in peers:
            thread.join()

    def _accept(self, server: socket.socket, tls: ssl.SSLContext) -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with self._lock:
                if len(self._peers) >= MAX_PEERS:
                    peer.close()
                    continue
                thread = threading.Thread(target=self._serve, args=(peer, tls), name="inlet peer", daemon=True)
                self._peers.add(thread)
                self._sockets.add(peer)
            thread.start()

    def _serve(self, raw: socket.socket, tls: ssl.SSLContext) -> None:
        """One peer's life. It ends for many reasons, and none of them is the stage's concern."""
        sock: socket.socket = raw
        try:
            raw.settimeout(TLS_WAIT_S)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock = wrapped = tls.wrap_socket(raw, server_side=True)
            with self._lock:
                self._sockets.discard(raw)
                self._sockets.add(sock)
            self._converse(Wire(wrapped), _uris(wrapped))
        except OSError:
            pass  # a cut link, or a peer that is not of this fleet
        finally:
            with self._lock:
                self._sockets.discard(sock)
                self._peers.discard(threading.current_thread())
            sock.close()

    def _converse(self, wire: Wire, uris: list[str]) -> None:
        with self._lock:
            route = self._route
        door = Door(self._spec, route, uris, self._now_s, self._intake.put)
        try:
            self._feed(wire, door, route)
        except FrameError as error:
            self._refuse(wire, uris, "bad_frame", str(error))
        except TicketRefused as error:
            self._refuse(wire, uris, error.code, str(error))
        except TooManySteps:
            self._refuse(wire, uris, "too_many", "More steps came at once than can be on their way.")
        finally:
            with self._lock:
                if self._feeding is wire:
                    self._feeding = None

    def _feed(self, wire: Wire, door: Door, route: Route) -> None:
        """Read until the link, its time or its last ticket ends."""
        confirmed, unconfirmed_s, shown, before = -1, 0.0, 0, self._intake.taken
        ends_s = time.monotonic() + TICKET_WAIT_S
        while (left_s := ends_s - time.monotonic()) > 0:
            direct = self._intake.taken != before
            try:
                data = wire.receive(min(left_s, (CONFIRM_S if direct else SETTLE_S) if shown else left_s))
            except TimeoutError:
                data = None
            if data == b"":
                return
            if data:
                door.feed(data)
            if door.ticket is None:
                continue
            if door.tickets != shown:
                if not shown:
                    self._admit(wire)
                shown, confirmed = door.tickets, -2
                ends_s = time.monotonic() + door.ticket.expires_s - self._now_s()
            taken = self._intake.taken
            if taken != confirmed:
                now = time.monotonic()
                unconfirmed_s = unconfirmed_s or now
                if confirmed == -2 or data is None or now - unconfirmed_s >= CONFIRM_S:
                    wire.send(taken_frame(route, taken))
                    confirmed, unconfirmed_s = taken, 0.0

    def _admit(self, wire: Wire) -> None:
        with self._lock:
            former, self._feeding = self._feeding, wire
        if former is not None:
            former.end()

    def _refuse(self, wire: Wire, uris: list[str], code: str, message: str) -> None:
        who = ", ".join(uris) or "a peer without a name"
        sys.stderr.write(f"Refused a direct link of {who}: {message}\n")
        wire.send(refusal_frame(code, message))

    def _now_s(self) -> float:
        return self._spec.console_ahead_s + time.monotonic()


def _uris(sock: ssl.SSLSocket) -> list[str]:
    certificate: Any = sock.getpeercert() or {}
    return [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]


def _bind(host: str, first: int, last: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in range(first, last + 1):
        try:
            return socket.create_server((host, port), family=family, backlog=MAX_PEERS)
        except OSError:
            if port == last:
                raise
    raise OSError("the range is empty")
