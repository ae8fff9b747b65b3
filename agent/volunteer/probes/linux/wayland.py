"""A small Wayland client for `ext_idle_notifier_v1`, which KDE 6, wlroots compositors and COSMIC offer.

The compositor says `idled` when nothing was touched for a given time and `resumed` at the next input: a push, and how
long it has been idle follows from when it said so. Nothing of the input itself is ever received. Version 2 also has a
notification that inhibitors (a film) do not hold back; with version 1 a film counts as presence.

Wire format: The Wayland Protocol, chapter 4; requests and events: ext-idle-notify-v1 of wayland-protocols.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from agent.volunteer.probes.base import Absent, ProbeError, Seen, SystemEvent, Unreadable

IDLE_AFTER_MS: Final = 1000
MAX_MESSAGE_BYTES: Final = 1 << 16
NOTIFIER: Final = "ext_idle_notifier_v1"
SEAT: Final = "wl_seat"
_DISPLAY, _REGISTRY, _CALLBACK, _NOTIFIER, _FIRST_SEAT = 1, 2, 3, 4, 5


def socket_path(environment: Mapping[str, str]) -> Path:
    """Return the compositor's socket. Raises Absent in a session without one."""
    name = environment.get("WAYLAND_DISPLAY", "")
    if not name:
        raise Absent("this is no Wayland session")
    path = Path(name)
    if not path.is_absolute():
        runtime = environment.get("XDG_RUNTIME_DIR", "")
        if not runtime:
            raise Absent("XDG_RUNTIME_DIR is not set")
        path = Path(runtime) / name
    return path


class WaylandIdle:
    """Both the watch that listens and the source that says how long ago the last input was."""

    name = "wayland"

    def __init__(
        self, environment: Mapping[str, str], clock: Callable[[], float], *, idle_after_ms: int = IDLE_AFTER_MS
    ) -> None:
        self._environment = environment
        self._clock = clock
        self._idle_after_ms = idle_after_ms
        self._lock = threading.Lock()
        self._problem: tuple[type[ProbeError], str] | None = (Unreadable, "the compositor was not asked yet")
        self._idle: dict[int, float] = {}
        """Seats that are idle, and since when."""
        self._seats = 0
        self._socket: socket.socket | None = None
        self._stopped = False

    def read(self) -> Seen:
        """Return the idle time: of the seat that was used last. Raises what ended the connection."""
        with self._lock:
            if self._problem is not None:
                kind, text = self._problem
                raise kind(text)
            if not self._seats:
                raise Unreadable("the compositor has no seat")
            if len(self._idle) < self._seats:
                return {"idle_s": 0.0}
            return {"idle_s": max(0.0, self._clock() - max(self._idle.values()))}

    def close(self) -> None:
        """The watch owns the connection."""

    def finish(self) -> None:
        """The watch owns the connection."""

    def run(self, say: Callable[[SystemEvent], None]) -> None:
        try:
            path = socket_path(self._environment)
            with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
                connection.settimeout(0.4)
                try:
                    connection.connect(str(path))
                except OSError as error:
                    raise Unreadable(f"the compositor cannot be reached ({error.strerror or error})") from None
                self._socket = connection
                if self._stopped:
                    return
                self._talk(connection, say)
        except ProbeError as error:
            with self._lock:
                self._problem, self._seats = (type(error), str(error)), 0
                self._idle.clear()
            raise
        finally:
            self._socket = None

    def stop(self) -> None:
        self._stopped = True
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _talk(self, connection: socket.socket, say: Callable[[SystemEvent], None]) -> None:
        send(connection, _DISPLAY, 1, struct.pack("=I", _REGISTRY))  # get_registry
        send(connection, _DISPLAY, 0, struct.pack("=I", _CALLBACK))  # sync: every global is known when it is done
        messages = incoming(connection)
        notifier: tuple[int, int] | None = None
        seats = list[int]()
        for target, opcode, body in messages:
            if target == _REGISTRY and opcode == 0:
                number, interface, version = global_of(body)
                if interface == NOTIFIER:
                    notifier = (number, min(version, 2))
                elif interface == SEAT:
                    seats.append(number)
            elif target == _CALLBACK:
                break
            else:
                refuse_error(target, opcode)
        if notifier is None:
            raise Absent(f"the compositor has no {NOTIFIER}")
        if not seats:
            raise Unreadable("the compositor has no seat")
        first = _FIRST_SEAT + len(seats)
        self._ask(connection, notifier, seats, first)
        connection.settimeout(None)
        self._listen(messages, seats, range(first, first + len(seats)), say)

    def _ask(self, connection: socket.socket, notifier: tuple[int, int], seats: list[int], first: int) -> None:
        number, version = notifier
        send(connection, _REGISTRY, 0, bind(number, NOTIFIER, version, _NOTIFIER))
        for index, seat in enumerate(seats):
            send(connection, _REGISTRY, 0, bind(seat, SEAT, 1, _FIRST_SEAT + index))
            # get_idle_notification 1, or get_input_idle_notification 2
            body = struct.pack("=III", first + index, self._idle_after_ms, _FIRST_SEAT + index)
            send(connection, _NOTIFIER, version, body)
        with self._lock:
            self._problem, self._seats = None, len(seats)
            self._idle.clear()

    def _listen(
        self,
        messages: Iterator[tuple[int, int, bytes]],
        seats: list[int],
        notifications: range,
        say: Callable[[SystemEvent], None],
    ) -> None:
        for target, opcode, body in messages:
            if target in notifications:
                with self._lock:
                    if opcode == 0:
                        self._idle[target] = self._clock() - self._idle_after_ms / 1000
                    else:
                        self._idle.pop(target, None)
                if opcode == 1:
                    say("input")
            elif target == _REGISTRY and opcode == 0 and global_of(body)[1] == SEAT:
                raise Unreadable("a seat came: the compositor is asked again")
            elif target == _REGISTRY and opcode == 1 and removed_global_of(body) in seats:
                # Nothing is ever said of it again: without this it would count as in use for ever.
                raise Unreadable("a seat went: the compositor is asked again")
            else:
                refuse_error(target, opcode)


def send(connection: socket.socket, target: int, opcode: int, body: bytes) -> None:
    """Send one request. Raises Unreadable."""
    try:
        connection.sendall(struct.pack("=II", target, (8 + len(body)) << 16 | opcode) + body)
    except OSError as error:
        raise Unreadable(f"the compositor cannot be reached ({error})") from None


def incoming(connection: socket.socket) -> Iterator[tuple[int, int, bytes]]:
    """Yield (object, opcode, body) for ever. Raises Unreadable when the connection ends or the bytes make no sense."""
    buffer = b""
    while True:
        while len(buffer) >= 8:
            target, packed = struct.unpack_from("=II", buffer)
            size, opcode = packed >> 16, packed & 0xFFFF
            if not 8 <= size <= MAX_MESSAGE_BYTES or size % 4:
                raise Unreadable("the compositor sent a malformed message")
            if len(buffer) < size:
                break
            yield target, opcode, buffer[8:size]
            buffer = buffer[size:]
        try:
            data = connection.recv(4096)
        except TimeoutError:
            raise Unreadable("the compositor does not answer") from None
        except OSError as error:
            raise Unreadable(f"the compositor cannot be reached ({error})") from None
        if not data:
            raise Unreadable("the compositor closed the connection")
        buffer += data


def global_of(body: bytes) -> tuple[int, str, int]:
    """Return name, interface and version of a registry's `global` event. Raises Unreadable."""
    try:
        number, size = struct.unpack_from("=II", body)
        interface = body[8 : 8 + size - 1].decode("ascii")
        (version,) = struct.unpack_from("=I", body, 8 + -(-size // 4) * 4)
    except (struct.error, UnicodeDecodeError):
        raise Unreadable("the compositor sent a malformed message") from None
    return number, interface, version


def removed_global_of(body: bytes) -> int:
    """Return the name in a registry's `global_remove` event. Raises Unreadable."""
    try:
        (number,) = struct.unpack("=I", body)
    except struct.error:
        raise Unreadable("the compositor sent a malformed message") from None
    return int(number)


def bind(number: int, interface: str, version: int, new_id: int) -> bytes:
    """Return the body of a registry's `bind` request."""
    text = interface.encode() + b"\0"
    return struct.pack("=II", number, len(text)) + text + bytes(-len(text) % 4) + struct.pack("=II", version, new_id)


def refuse_error(target: int, opcode: int) -> None:
    """Raise Unreadable for the display's `error` event; other events are of no interest."""
    if target == _DISPLAY and opcode == 0:
        raise Unreadable("the compositor refused a request")
