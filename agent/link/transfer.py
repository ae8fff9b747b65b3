"""One file over one bulk link, whoever serves it. Event loop; the disk is used in threads.

FetchError
 ├─ FetchCut        the link broke again and again without progress
 ├─ NotServed       the other side does not serve the file
 └─ FetchDamaged    a file arrived damaged twice
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec
from websockets.asyncio.client import ClientConnection

from agent.link.closing import LinkCut
from agent.link.frames import LAST_CHUNK, Fetch, Frame, FrameError, FrameType, decode, encode
from agent.link.pace import Pace
from agent.link.parsing import UNREADABLE
from agent.link.store import Part, Store
from agent.link.store_errors import FileDamaged
from agent.stage.types import Nack
from agent.threads import finish_in_thread
from shard_export.library.manifest import FileRecord

MAX_MANIFEST_BYTES = 32 << 20
FETCH_BYTES = 64 << 20
"""Asked for at a time; the other side sends it in chunks as fast as we read."""
CHUNK_WAIT_S = 30.0

OnBytes = Callable[[int], None]


class FetchError(Exception):
    """Base of the tree: `str(error)` is one sentence saying what happened and what to do."""


class FetchCut(FetchError):
    """The link broke again and again without progress."""


class NotServed(FetchError):
    """The other side does not serve the file."""


class FetchDamaged(FetchError):
    """A file arrived damaged twice."""


async def fetch_file(
    link: ClientConnection, store: Store, record: FileRecord, *, had: OnBytes, received: OnBytes, pace: Pace
) -> None:
    """Bring a file into the store, going on where an earlier try ended. Size -1: not known, as of a manifest.

    Calls `had` once with the bytes that were here and `received` with those of each chunk. Raises NotServed,
    FileDamaged (what was here is deleted), another StoreError, LinkCut, TimeoutError or ConnectionClosed.
    """
    part = await finish_in_thread(partial(store.open_part, record.sha256), Part.close)
    limit = record.size_bytes if record.size_bytes >= 0 else MAX_MANIFEST_BYTES
    try:
        if part.offset > limit:
            part.discard()
            raise FileDamaged("A partly fetched file is longer than it should be and was deleted.")
        had(part.offset)
        at_end = False
        while not at_end and (record.size_bytes < 0 or part.offset < record.size_bytes):
            at_end = await _fetch_piece(link, part, limit, received, pace)
        await finish_in_thread(part.finish)
    finally:
        await finish_in_thread(part.close)


async def _fetch_piece(link: ClientConnection, part: Part, limit: int, received: OnBytes, pace: Pace) -> bool:
    """Ask for the next piece and write it; return whether the file ended."""
    asked = min(FETCH_BYTES, limit - part.offset)
    if not asked:
        raise NotServed("The library's manifest is over the limit of 32 MiB; export the library again.")
    end = part.offset + asked
    table = msgspec.msgpack.encode(Fetch(part.sha256, part.offset, asked))
    await link.send(encode(Frame(FrameType.FETCH, 0, 0, part.offset, 0, 0, table, None)))
    while True:
        async with asyncio.timeout(CHUNK_WAIT_S):
            data = await link.recv(decode=False)
        frame = chunk_of(data, part.offset, end)
        if frame.tensor is not None and frame.tensor.size:
            await finish_in_thread(partial(part.write, frame.tensor.data))
            received(frame.tensor.size)
            # Not reading is what slows the sender down: its buffers fill and it waits.
            await asyncio.sleep(pace.wait_s(frame.tensor.size, asyncio.get_running_loop().time()))
        if frame.flags & LAST_CHUNK:
            return part.offset < end


def chunk_of(data: bytes, offset: int, end: int) -> Frame:
    """Read a chunk that begins at `offset` and ends at `end` at the latest. Raises NotServed or LinkCut."""
    try:
        frame = decode(data)
        if frame.type is FrameType.NACK:
            nack = msgspec.msgpack.decode(frame.table, type=Nack)
            raise NotServed(nack.message)
    except (FrameError, *UNREADABLE) as error:
        raise LinkCut(f"A damaged file chunk was sent ({error}); it is fetched again.", "chunk") from None
    size = frame.tensor.size if frame.tensor is not None else 0
    wrong_type = frame.type is not FrameType.CHUNK or (frame.tensor is not None and frame.tensor.dtype != "u1")
    if wrong_type or frame.step != offset or offset + size > end:
        raise LinkCut("Another piece of a file was sent than was asked for; it is fetched again.", "chunk")
    return frame
