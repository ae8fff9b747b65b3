"""A small X11 client over the display's local socket: how long input has been idle, what is on the screen, and a push.

Over the wire and not through libX11: that library ends the whole process when the server goes away, and cannot give
up on a server that accepts a connection and then says nothing. Only what is asked here is known: X11 core (setup,
InternAtom, GetProperty, QueryExtension), SYNC with its IDLETIME counter, and DPMS. No key or pointer data is ever
received: the alarm tells that there was input, and nothing of what it was.

Layouts: X Window System Protocol, X11R7.7; X Synchronization Extension 3.1; DPMS Extension 1.2. Times in ms on the
wire. One thread at a time.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent.volunteer.probes.base import Absent, Unreadable

LOCAL_FAMILY: Final = 256
WILD_FAMILY: Final = 65535
COOKIE: Final = b"MIT-MAGIC-COOKIE-1"
MAX_REPLY_BYTES: Final = 1 << 20
MAX_IDLE_MS: Final = 1 << 40
NEGATIVE_TRANSITION: Final = 1

_INTERN_ATOM, _GET_PROPERTY, _QUERY_EXTENSION = 16, 20, 98
_SYNC_INITIALIZE, _SYNC_LIST, _SYNC_QUERY, _SYNC_CREATE_ALARM = 0, 1, 5, 8
_DPMS_CAPABLE, _DPMS_INFO = 1, 7
_ALARM_VALUES = 1 | 2 | 4 | 8 | 16 | 32


def display_number(environment: Mapping[str, str]) -> int:
    """Return the number of this session's own X display.

    Raises Absent where there is none, where it is a Wayland session (its X server sees only part of the input, and a
    stale socket there was seen to hang), and where the display is on another computer (ssh -X).
    """
    if environment.get("WAYLAND_DISPLAY") or environment.get("XDG_SESSION_TYPE") == "wayland":
        raise Absent("this is a Wayland session")
    display = environment.get("DISPLAY", "")
    found = re.fullmatch(r"(?:unix)?:(\d{1,5})(?:\.\d+)?", display)
    if found is None:
        raise Absent("the display is on another computer" if display else "there is no X display")
    return int(found.group(1))


def cookie_for(number: int, environment: Mapping[str, str], host: str) -> bytes:
    """Return the display's secret from the user's Xauthority file; empty where it names none."""
    path = Path(environment.get("XAUTHORITY") or Path(environment.get("HOME", "/")) / ".Xauthority")
    try:
        data = path.read_bytes()[:MAX_REPLY_BYTES]
    except OSError:
        return b""
    at, best = 0, b""
    while at + 2 <= len(data):
        (family,) = struct.unpack_from(">H", data, at)
        at += 2
        fields = []
        for _ in range(4):
            if at + 2 > len(data):
                return best
            (size,) = struct.unpack_from(">H", data, at)
            fields.append(data[at + 2 : at + 2 + size])
            at += 2 + size
        address, display, name, secret = fields
        if name != COOKIE or display not in (b"", str(number).encode()):
            continue
        if family == LOCAL_FAMILY and address == host.encode():
            return secret
        if family == WILD_FAMILY:
            best = secret
    return best


class X11Connection:
    """One connection. Every call raises Unreadable when the server fails or does not answer in `timeout_s`."""

    def __init__(self, environment: Mapping[str, str] = os.environ, *, timeout_s: float = 0.3) -> None:
        """Connect. Raises Absent or Unreadable."""
        number = display_number(environment)
        self._sequence = 0
        self._buffer = b""
        self._socket = _local_socket(number, timeout_s)
        try:
            self.root, self._id_base = self._set_up(cookie_for(number, environment, socket.gethostname()))
        except BaseException:
            self._socket.close()
            raise

    def shut(self) -> None:
        """End the traffic, so that a call that waits in another thread fails. Any thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection, in the thread that uses it."""
        self._socket.close()

    def extension(self, name: str) -> tuple[int, int]:
        """Return an extension's major opcode and the number of its first event. Raises Absent."""
        raw = name.encode()
        reply = self.ask(_QUERY_EXTENSION, 0, struct.pack("<HH", len(raw), 0) + _padded(raw))
        if not reply[8]:
            raise Absent(f"the X server has no {name} extension")
        return reply[9], reply[10]

    def atom(self, name: str) -> int:
        """Return an atom's number, 0 if nobody has made it yet."""
        raw = name.encode()
        reply = self.ask(_INTERN_ATOM, 1, struct.pack("<HH", len(raw), 0) + _padded(raw))
        return int(struct.unpack_from("<I", reply, 8)[0])

    def numbers(self, window: int, property_atom: int) -> list[int]:
        """Return a window's property of 32-bit numbers, at most 64 of them; empty if it has none."""
        reply = self.ask(_GET_PROPERTY, 0, struct.pack("<IIIII", window, property_atom, 0, 0, 64))
        if reply[1] != 32:
            return []
        (count,) = struct.unpack_from("<I", reply, 16)
        if count > 64 or len(reply) < 32 + 4 * count:
            raise Unreadable("the X server sent a malformed property")
        return list(struct.unpack_from(f"<{count}I", reply, 32))

    def ask(self, opcode: int, detail: int, body: bytes = b"") -> bytes:
        """Send a request and return its reply, header included; events that come first are dropped."""
        self.tell(opcode, detail, body)
        while True:
            message = self._message()
            kind, (sequence,) = message[0], struct.unpack_from("<H", message, 2)
            if kind <= 1 and sequence == self._sequence & 0xFFFF:
                if kind == 0:
                    raise Unreadable(f"the X server answered error {message[1]}")
                return message

    def tell(self, opcode: int, detail: int, body: bytes = b"") -> None:
        """Send a request that has no reply."""
        self._sequence += 1
        self._send(struct.pack("<BBH", opcode, detail, 1 + len(body) // 4) + body)

    def wait_event(self, number: int) -> None:
        """Return when an event of that number comes; waits for ever. Raises Unreadable when the connection ends."""
        self._socket.settimeout(None)
        while self._message()[0] & 0x7F != number:
            pass

    def new_id(self) -> int:
        """Return an id for something this client makes: it makes one thing only."""
        return self._id_base

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Unreadable(f"the X server cannot be reached ({error})") from None

    def _message(self) -> bytes:
        head = self._exactly(32)
        if head[0] != 1:
            return head
        (words,) = struct.unpack_from("<I", head, 4)
        if words * 4 > MAX_REPLY_BYTES:
            raise Unreadable("the X server sent too long a reply")
        return head + self._exactly(words * 4)

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                raise Unreadable("the X server does not answer") from None
            except OSError as error:
                raise Unreadable(f"the X server cannot be reached ({error})") from None
            if not data:
                raise Unreadable("the X server closed the connection")
            self._buffer += data
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    def _set_up(self, secret: bytes) -> tuple[int, int]:
        name = COOKIE if secret else b""
        self._send(struct.pack("<BxHHHHxx", 0x6C, 11, 0, len(name), len(secret)) + _padded(name) + _padded(secret))
        head = self._exactly(8)
        (words,) = struct.unpack_from("<H", head, 6)
        body = self._exactly(words * 4)
        if head[0] != 1:
            raise Unreadable("the X server refused this user")
        if len(body) < 32:
            raise Unreadable("the X server sent a malformed greeting")
        _, id_base, _, _, vendor_size, _, roots, formats = struct.unpack_from("<IIIIHHBB", body, 0)
        at = 32 + -(-vendor_size // 4) * 4 + 8 * formats
        if not roots or len(body) < at + 4:
            raise Unreadable("the X server has no screen")
        return int(struct.unpack_from("<I", body, at)[0]), int(id_base)


class IdleCounter:
    """The server's IDLETIME counter on a connection: milliseconds since any input device was last used."""

    def __init__(self, connection: X11Connection) -> None:
        """Find the counter. Raises Absent or Unreadable."""
        self._connection = connection
        self._armed = False
        self._major, self._first_event = connection.extension("SYNC")
        connection.ask(self._major, _SYNC_INITIALIZE, struct.pack("<BBxx", 3, 1))
        self._counter = self._find()

    def idle_s(self) -> float:
        """Return how long no input came. Raises Unreadable."""
        reply = self._connection.ask(self._major, _SYNC_QUERY, struct.pack("<I", self._counter))
        high, low = struct.unpack_from("<iI", reply, 8)
        idle_ms = int((high << 32) | low)
        if not 0 <= idle_ms < MAX_IDLE_MS:
            raise Unreadable(f"the X server counts {idle_ms} ms of idle time")
        return idle_ms / 1000

    def wait_input(self, quiet_ms: int) -> None:
        """Return at the first input after at least `quiet_ms` without any. Raises Unreadable."""
        if not self._armed:
            # A transition stays armed: the one alarm tells of every later input, too.
            values = (self._counter, 0, 0, quiet_ms, NEGATIVE_TRANSITION, 0, 0, 1)
            body = struct.pack("<IIIIiIIiII", self._connection.new_id(), _ALARM_VALUES, *values)
            self._connection.tell(self._major, _SYNC_CREATE_ALARM, body)
            self._armed = True
        self._connection.wait_event(self._first_event + 1)

    def _find(self) -> int:
        reply = self._connection.ask(self._major, _SYNC_LIST)
        (count,) = struct.unpack_from("<I", reply, 8)
        at = 32
        for _ in range(min(count, 256)):
            if at + 14 > len(reply):
                break
            number, _, _, size = struct.unpack_from("<IiIH", reply, at)
            if reply[at + 14 : at + 14 + size] == b"IDLETIME":
                return int(number)
            at += -(-(14 + size) // 4) * 4
        raise Absent("the X server has no idle counter")


def is_fullscreen(connection: X11Connection) -> bool:
    """Tell whether the active window covers the screen, as its window manager says. Raises Absent or Unreadable."""
    active = connection.atom("_NET_ACTIVE_WINDOW")
    state, fullscreen = connection.atom("_NET_WM_STATE"), connection.atom("_NET_WM_STATE_FULLSCREEN")
    if not active or not state:
        raise Absent("the window manager does not tell the active window")
    windows = connection.numbers(connection.root, active)
    if not windows or not windows[0]:
        return False
    return fullscreen in connection.numbers(windows[0], state) if fullscreen else False


def are_displays_off(connection: X11Connection) -> bool:
    """Tell whether the displays sleep by DPMS. Raises Absent or Unreadable."""
    major, _ = connection.extension("DPMS")
    if not connection.ask(major, _DPMS_CAPABLE)[8]:
        raise Absent("the displays know no DPMS")
    level, enabled = struct.unpack_from("<HB", connection.ask(major, _DPMS_INFO), 8)
    return bool(enabled and level)


def _local_socket(number: int, timeout_s: float) -> socket.socket:
    """Connect to the display's socket: the file first, then the abstract name that some sandboxes keep."""
    problem: OSError | None = None
    for address in (f"/tmp/.X11-unix/X{number}", f"\0/tmp/.X11-unix/X{number}"):  # noqa: S108 - X11's own place
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        try:
            connection.connect(address)
        except OSError as error:
            connection.close()
            problem = error
        else:
            return connection
    raise Unreadable(f"the X display :{number} cannot be reached ({problem})")


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
