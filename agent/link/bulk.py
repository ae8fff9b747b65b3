"""Serving files by SHA-256 on a bulk link: the console does it for its libraries, an agent for what its store holds.

One FETCH at a time per link, answered with CHUNK frames of at most 1 MiB as fast as the reader takes them, or one NACK.
A request that cannot be answered costs the reader a NACK; the link stays. Event loop; the disk is read in threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from websockets.asyncio.connection import Connection
from websockets.exceptions import ConnectionClosedOK

from agent.link.frames import LAST_CHUNK, Fetch, Frame, FrameMalformed, FrameType, decode, encode
from agent.link.parsing import UNREADABLE
from agent.link.sockets import CHUNK_BYTES
from agent.stage.types import Nack

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

log = logging.getLogger(__name__)

MAX_LOCATED = 8192

Find = Callable[[str], tuple[Path, int] | None]
"""Returns where the file of a SHA-256 lies and its size in bytes, or None."""
OnOther = Callable[[Frame], Frame | None]
"""Answers a frame that is no FETCH; None: it does not belong here."""
BeforeSending = Callable[[int], Awaitable[None]]
"""Called with the bytes of each chunk before it is sent; waiting here slows the reader down."""


class Locate(msgspec.Struct, frozen=True, array_like=True):
    """Who else holds these files?"""

    sha256: list[str]


class Holder(msgspec.Struct, frozen=True, array_like=True):
    """A PC that holds some of the files asked for: `files` are places in the request; `ticket` opens its door."""

    device_id: str
    addresses: list[str]
    ticket: bytes
    files: list[int]


class Holders(msgspec.Struct, frozen=True, array_like=True):
    """PCs to be asked before the console, the best first."""

    holders: list[Holder]


class Wording(msgspec.Struct, frozen=True):
    """What a reader is told when a file cannot be served: it says who serves, and what to do there."""

    unknown: str
    unreadable: str
    damaged: str


CONSOLE_SAYS = Wording(
    "The console does not serve this file; deploy its library again.",
    "The console cannot read the file; look at its log.",
    "The file is damaged on the console; export its library again.",
)
PC_SAYS = Wording(
    "That PC does not hold the file any more; it comes from elsewhere.",
    "That PC cannot read the file; look at its agent's log.",
    "The file is damaged on that PC; `fallow-agent doctor` there finds and deletes it.",
)


class CannotServe(Exception):
    """A request is answered with a NACK."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def _at_once(size_bytes: int) -> None:
    """Slow nobody down."""


async def serve_files(
    link: Connection,
    find: Find,
    *,
    on_other: OnOther = lambda frame: None,
    before_sending: BeforeSending = _at_once,
    chunk_bytes: int = CHUNK_BYTES,
    says: Wording = CONSOLE_SAYS,
) -> None:
    """Answer one reader's requests until its link closes. Raises FrameError for what does not belong here.

    `chunk_bytes` bounds what is sent at once: less than the usual where `before_sending` waits long for each.
    """
    try:
        while True:
            frame = decode(await link.recv(decode=False))
            if frame.type is not FrameType.FETCH:
                answer = on_other(frame)
                if answer is None:
                    raise FrameMalformed(f"A {frame.type.name} frame does not belong on a bulk link.")
                await link.send(encode(answer))
                continue
            try:
                async for size, chunk in _chunks(frame, find, min(chunk_bytes, CHUNK_BYTES), says):
                    await before_sending(size)
                    await link.send(chunk)
            except CannotServe as error:
                log.info("A fetch was refused: %s", error)
                table = msgspec.msgpack.encode(Nack(0, error.code, str(error)))
                await link.send(encode(answer_to(frame, FrameType.NACK, table=table)))
    except ConnectionClosedOK:
        pass


async def _chunks(request: Frame, find: Find, chunk_bytes: int, says: Wording) -> AsyncIterator[tuple[int, bytes]]:
    """Read and encode in a thread, one chunk ahead of nobody: the link's back-pressure paces the disk."""
    fetch = _parse(request)
    found = find(fetch.sha256)
    if found is None:
        raise CannotServe("unknown", says.unknown)
    path, size = found
    if not 0 <= fetch.offset <= size or fetch.length < 0:
        raise CannotServe("range", f"The file has {size} bytes, not {fetch.length} from {fetch.offset}.")
    offset, end = fetch.offset, min(size, fetch.offset + fetch.length)
    while True:
        length = min(chunk_bytes, end - offset)
        is_last = offset + length == end
        yield length, await asyncio.to_thread(_chunk, request, path, offset, length, is_last=is_last, says=says)
        offset += length
        if offset == end:
            return


def _parse(request: Frame) -> Fetch:
    try:
        return msgspec.msgpack.decode(request.table, type=Fetch)
    except UNREADABLE as error:
        raise CannotServe("bad_request", f"The request cannot be read ({error}); update the agent.") from None


def _read(path: Path, offset: int, length: int, says: Wording) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(length)
    except OSError as error:
        log.warning("Cannot read %s: %s", path, error)
        raise CannotServe("unreadable", says.unreadable) from error
    if len(data) != length:
        log.warning("%s is shorter than its manifest says.", path)
        raise CannotServe("damaged", says.damaged)
    return data


def _chunk(request: Frame, path: Path, offset: int, length: int, *, is_last: bool, says: Wording) -> bytes:
    import numpy as np

    tensor, flags = np.frombuffer(_read(path, offset, length, says), np.uint8), LAST_CHUNK if is_last else 0
    return encode(answer_to(request, FrameType.CHUNK, offset=offset, tensor=tensor, flags=flags))


def answer_to(
    request: Frame,
    kind: FrameType,
    *,
    table: bytes = b"",
    offset: int = 0,
    tensor: npt.NDArray[np.uint8] | None = None,
    flags: int = 0,
) -> Frame:
    """Return a frame that answers `request`."""
    return Frame(kind, request.pipeline, request.epoch, offset, request.sequence, 0, table, tensor, flags)
