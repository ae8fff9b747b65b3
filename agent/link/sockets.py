"""Settings of the websockets on both sides, and sending that never waits. Event loop only.

Compression is off everywhere: a 64 KiB echo takes 0.3 ms over mutual TLS and 5.1 ms deflated.
"""

from __future__ import annotations

from typing import Any

from websockets.asyncio.connection import Connection
from websockets.protocol import State

from agent.link.frames import MAX_FRAME_BYTES
from agent.link.messages import BULK_PATH, CONTROL_PATH, DATA_PATH, ENROL_PATH, MAX_CONTROL_BYTES

FRAGMENT_BYTES = 1 << 20
CHUNK_BYTES = 1 << 20
"""File bytes in one CHUNK frame."""
MAX_CHUNK_FRAME_BYTES = CHUNK_BYTES + 64 * 1024
MAX_UNSENT_BYTES = 2 * MAX_FRAME_BYTES
"""What may wait for a slow reader before its link counts as stalled."""

OPEN_TIMEOUT_S = 20.0
"""For TCP, TLS and the request together. After a console's restart a thousand PCs dial within a second or two; one that
gave up while the console works through them would only make it begin again."""

_COMMON: dict[str, Any] = {"compression": None, "open_timeout": OPEN_TIMEOUT_S, "close_timeout": 1}
_BY_PATH: dict[str, dict[str, Any]] = {
    CONTROL_PATH: {"max_size": MAX_CONTROL_BYTES, "max_queue": 16, "ping_interval": 5, "ping_timeout": 5},
    # Pings queue behind data, so the data link's are slow; a drop is seen by TCP or by the control link's pings.
    DATA_PATH: {
        "max_size": (MAX_FRAME_BYTES, FRAGMENT_BYTES),
        "max_queue": (8, 2),
        "write_limit": 1 << 20,
        "ping_interval": 20,
        "ping_timeout": 60,
    },
    BULK_PATH: {
        "max_size": MAX_CHUNK_FRAME_BYTES,
        "max_queue": (8, 2),
        "write_limit": 1 << 20,
        "ping_interval": 20,
        "ping_timeout": 60,
    },
    ENROL_PATH: {"max_size": MAX_CONTROL_BYTES, "max_queue": 4, "ping_interval": 20, "ping_timeout": 20},
}


def client_settings(path: str) -> dict[str, Any]:
    """Return the keyword arguments of `websockets.asyncio.client.connect` for one path."""
    return {**_COMMON, **_BY_PATH[path], "proxy": None, "user_agent_header": None}


SERVER_SETTINGS: dict[str, Any] = {
    **_COMMON,
    "max_queue": (8, 2),
    "server_header": None,
    "ssl_handshake_timeout": OPEN_TIMEOUT_S,
}
"""The keyword arguments of `websockets.asyncio.server.serve`; `tune` adds what depends on the path."""


def tune(link: Connection, path: str) -> None:
    """Give a server's connection the settings of its path, once the request told it and before messages flow."""
    settings = _BY_PATH[path]
    sizes = settings["max_size"]
    message, fragment = sizes if isinstance(sizes, tuple) else (sizes, None)
    link.protocol.max_message_size, link.protocol.max_fragment_size = message, fragment
    link.ping_interval, link.ping_timeout = settings["ping_interval"], settings["ping_timeout"]
    if "write_limit" in settings:
        link.transport.set_write_buffer_limits(settings["write_limit"])


class Unsendable(Exception):
    """The link is closed, or its reader is so slow that `MAX_UNSENT_BYTES` wait already (`stalled`)."""

    def __init__(self, *, stalled: bool) -> None:
        super().__init__("The link's reader is too slow." if stalled else "The link is closed.")
        self.stalled = stalled


def post(link: Connection, data: bytes, max_unsent_bytes: int = MAX_UNSENT_BYTES) -> None:
    """Send one binary message now, without waiting: what the socket does not take is buffered, up to a limit.

    This is what keeps a slow reader from holding up whoever relays to it, and saves a task per frame. Messages over
    1 MiB travel in fragments, so that the other side's receive buffer stays bounded and pings pass between. Nothing
    else may send messages on the same link. Raises Unsendable.
    """
    if link.state is not State.OPEN or link.transport.is_closing():
        raise Unsendable(stalled=False)
    if link.transport.get_write_buffer_size() + len(data) > max_unsent_bytes:
        raise Unsendable(stalled=True)
    protocol = link.protocol
    if len(data) <= FRAGMENT_BYTES:
        protocol.send_binary(data)
    else:
        view = memoryview(data)
        protocol.send_binary(view[:FRAGMENT_BYTES], fin=False)
        for start in range(FRAGMENT_BYTES, len(data), FRAGMENT_BYTES):
            end = start + FRAGMENT_BYTES
            protocol.send_continuation(view[start:end], fin=end >= len(data))
    link.send_data()
