"""Cuts a stream of bytes into whole frames. No I/O here."""

from __future__ import annotations

from collections.abc import Callable

from agent.link.frames import HEADER, MAX_FRAME_BYTES, FrameTooLarge, peek_size


class FrameCutter:
    """`on_frame` gets every whole frame, in order. Nothing of a frame over `max_bytes` is kept.

    The limit may be changed between frames: what a stranger may send is smaller than what a known peer may.
    """

    def __init__(self, on_frame: Callable[[bytes], None], max_bytes: int = MAX_FRAME_BYTES) -> None:
        self.on_frame = on_frame
        self.max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises FrameError for what is not a frame; the stream cannot be read any further."""
        # The usual case is one whole frame in one read: hand it on without copying it through the buffer.
        if not self._buffer and len(data) >= HEADER.size and self._size(data) == len(data):
            self.on_frame(data)
            return
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            size = self._size(bytes(self._buffer[: HEADER.size]))
            if len(self._buffer) < size:
                return
            frame = bytes(self._buffer[:size])
            del self._buffer[:size]
            self.on_frame(frame)

    def _size(self, data: bytes) -> int:
        size = peek_size(data)
        if size > self.max_bytes:
            raise FrameTooLarge(f"A frame of {size} bytes is over the limit of {self.max_bytes} here.")
        return size
