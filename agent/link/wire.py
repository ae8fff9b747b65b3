"""A TLS socket for a reading thread and a writing one: what a stage's child process uses, without an event loop.

OpenSSL allows one call at a time on a connection. So the socket never blocks inside one: both threads wait outside of
the lock for the socket to become readable or writable.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading

READ_BYTES = 16 * 1024
"""What one TLS record holds."""
SEND_WAIT_S = 10.0
"""A peer that takes nothing for so long is gone, unless the caller says otherwise."""


class Wire:
    """A connected TLS socket. One thread may `send` while another is in `receive`; `end` is for any."""

    def __init__(self, sock: ssl.SSLSocket, send_wait_s: float = SEND_WAIT_S) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._send_wait_s = send_wait_s
        self._polls = _polls(sock)
        self._lock = threading.Lock()

    @classmethod
    def dial(
        cls, address: str, tls: ssl.SSLContext, server_hostname: str, timeout_s: float, send_wait_s: float = SEND_WAIT_S
    ) -> Wire:
        """Connect to `host:port`. Raises OSError (TimeoutError and ssl.SSLError are some) or ValueError."""
        host, _, port = address.rpartition(":")
        raw = socket.create_connection((host.strip("[]"), int(port)), timeout_s)
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return cls(tls.wrap_socket(raw, server_hostname=server_hostname), send_wait_s)
        except BaseException:
            raw.close()
            raise

    @property
    def protocol(self) -> str | None:
        """The protocol both sides agreed on (ALPN), if any."""
        return self._sock.selected_alpn_protocol()

    def send_now(self, data: bytes | memoryview) -> int:
        """Send what the socket takes without waiting and return how many bytes that is. Raises OSError."""
        with self._lock:
            sent = 0
            try:
                sent = self._sock.send(data)
                while sent < len(data):
                    sent += self._sock.send(memoryview(data)[sent:])
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                pass
        return sent

    def send(self, data: bytes | memoryview) -> None:
        """Send all of `data`. Raises OSError when the link is down or takes nothing any more."""
        view = memoryview(data)
        while view:
            if sent := self.send_now(view):
                view = view[sent:]
            elif not self._wait(write=True, timeout_s=self._send_wait_s):
                raise TimeoutError("The other side takes nothing any more.")

    def receive(self, timeout_s: float | None = None) -> bytes:
        """Return the next bytes, empty at the end of the link. Raises OSError, TimeoutError after `timeout_s`."""
        while True:
            # Waits first, and so lets whoever was given the last bytes run at once: a try that finds nothing costs as
            # much as one that finds a step.
            if not self._sock.pending() and not self._wait(write=False, timeout_s=timeout_s):
                raise TimeoutError("Nothing came in time.")
            with self._lock:
                try:
                    return self._sock.recv(READ_BYTES)
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    continue

    def end(self) -> None:
        """Cut the link; whoever waits in `receive` sees its end and closes."""
        with contextlib.suppress(OSError):  # the other side was first
            # Not SSLSocket's own: it forgets the TLS state, and a waiting reader would get bare bytes.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """End the link and free the socket: for the reading thread, or when none reads."""
        self.end()
        self._sock.close()

    def _wait(self, *, write: bool, timeout_s: float | None) -> bool:
        """Wait until the socket can be read or written; False: not in time."""
        if self._polls is None:
            sockets = [self._sock]
            return any(select.select([] if write else sockets, sockets if write else [], [], timeout_s))
        return bool(self._polls[write].poll(None if timeout_s is None else 1000 * timeout_s))


def _polls(sock: ssl.SSLSocket) -> dict[bool, select.poll] | None:
    """Make what waits for a socket to become readable (False) or writable (True); Windows has only select."""
    if not hasattr(select, "poll"):
        return None
    polls = {False: select.poll(), True: select.poll()}
    polls[False].register(sock, select.POLLIN)
    polls[True].register(sock, select.POLLOUT)
    return polls
