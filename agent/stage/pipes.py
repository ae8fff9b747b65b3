"""Bytes between the agent and its child: exact reads and writes on file descriptors, lengths checked first."""

from __future__ import annotations

import os
import struct
from typing import TypeVar

import msgspec

from agent.link.frames import HEADER, peek_size
from agent.link.parsing import UNREADABLE

SPEC_LENGTH = struct.Struct("<I")
"""The first message to a child: this length, then what it is to do as msgpack."""

MAX_SPEC_BYTES = 64 * 1024
PIPE_BYTES = 1 << 20
"""Asked of the kernel for the pipes: a step of many prefill tokens should not need several turns."""

_F_SETPIPE_SZ = 1031

T = TypeVar("T")


class PipeClosed(Exception):
    """The other side closed the pipe."""


def encode_spec(spec: msgspec.Struct) -> bytes:
    """Serialise the first message."""
    body = msgspec.msgpack.encode(spec)
    return SPEC_LENGTH.pack(len(body)) + body


def read_spec(fd: int, kind: type[T]) -> T:
    """Read the first message, which is a `kind`. Raises PipeClosed or ValueError."""
    (length,) = SPEC_LENGTH.unpack(read_exactly(fd, SPEC_LENGTH.size))
    if length > MAX_SPEC_BYTES:
        raise ValueError(f"A stage description of {length} bytes is over the limit.")
    try:
        return msgspec.msgpack.decode(read_exactly(fd, length), type=kind)
    except UNREADABLE as error:
        raise ValueError(f"The stage description cannot be parsed: {error}.") from error


def read_frame(fd: int) -> memoryview:
    """Read one whole frame. Raises PipeClosed, or FrameError before anything of its size is allocated."""
    header = read_exactly(fd, HEADER.size)
    data = bytearray(peek_size(header))
    data[: HEADER.size] = header
    view = memoryview(data)
    _read_into(fd, view[HEADER.size :])
    return view


def read_exactly(fd: int, size: int) -> bytes:
    """Read `size` bytes. Raises PipeClosed."""
    data = bytearray(size)
    _read_into(fd, memoryview(data))
    return bytes(data)


def _read_into(fd: int, view: memoryview) -> None:
    while len(view):
        count = os.readv(fd, [view]) if hasattr(os, "readv") else _read_copy(fd, view)
        if count == 0:
            raise PipeClosed
        view = view[count:]


def _read_copy(fd: int, view: memoryview) -> int:
    data = os.read(fd, len(view))
    view[: len(data)] = data
    return len(data)


def write_all(fd: int, data: bytes) -> None:
    """Write everything. Raises PipeClosed."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except BrokenPipeError:
        raise PipeClosed from None


def widen(fd: int) -> None:
    """Enlarge a pipe's buffer where the kernel lets us; smaller only costs time."""
    try:
        import fcntl

        fcntl.fcntl(fd, _F_SETPIPE_SZ, PIPE_BYTES)
    except (ImportError, OSError):
        return
