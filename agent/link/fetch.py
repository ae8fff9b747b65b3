"""Fetching a stage's files from the console over the bulk link: only what is missing, resumed after a cut.

FetchError
 ├─ FetchCut        the link broke again and again without progress
 ├─ NotServed       the console does not serve the file
 └─ FetchDamaged    a file arrived damaged twice
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from agent.link.channel import link_error
from agent.link.closing import LinkCut, LinkDown, LinkRefused
from agent.link.frames import LAST_CHUNK, Fetch, Frame, FrameError, FrameType, decode, encode
from agent.link.store import FileDamaged, Part, Store
from agent.stage.types import Nack
from shard_export.library.manifest import FileRecord, Manifest

MAX_MANIFEST_BYTES = 32 << 20
FETCH_BYTES = 64 << 20
"""Asked for at a time; the console sends it in chunks as fast as we read."""
CHUNK_WAIT_S = 30.0
TRIES_WITHOUT_PROGRESS = 5

OnProgress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""
DialBulk = Callable[[], Awaitable[ClientConnection]]


class FetchError(Exception):
    """Base of the tree: `str(error)` is one sentence saying what happened and what to do."""


class FetchCut(FetchError):
    """The link broke again and again without progress."""


class NotServed(FetchError):
    """The console does not serve the file."""


class FetchDamaged(FetchError):
    """A file arrived damaged twice."""


class Fetcher:
    """Brings files into a store. One fetch at a time per fetcher; event loop only, the disk is used in threads.

    `wait_s` gives the pause before try number n (1, 2, ...) after a cut.
    """

    def __init__(self, store: Store, dial: DialBulk, wait_s: Callable[[int], float] = lambda tries: min(tries, 10)):
        self._store = store
        self._dial = dial
        self._wait_s = wait_s

    async def fetch_range(
        self, digest: str, first: int, last: int, stage_name: str, on_progress: OnProgress = lambda _done, _total: None
    ) -> tuple[Manifest, Path]:
        """Get the manifest and the units of layers `first <= i < last`; return them as a library folder.

        Raises FetchError, LinkRefused or StoreError. What was fetched before an error stays for the next try.
        """
        await self._fetch_all([FileRecord("", -1, digest)], lambda _done, _total: None)
        manifest = await asyncio.to_thread(self._store.manifest, digest)
        if not 0 <= first < last <= manifest.layer_count:
            raise NotServed(f"The plan asks for layers {first} to {last} of a model with {manifest.layer_count}.")
        units = manifest.units_of_range(first, last)
        records = {record.sha256: record for unit in units for record in (unit.xml, unit.bin)}
        await self._fetch_all(list(records.values()), on_progress)
        folder = await asyncio.to_thread(self._store.materialise, digest, units, stage_name)
        return manifest, folder

    async def _fetch_all(self, records: Sequence[FileRecord], on_progress: OnProgress) -> None:
        missing, total = await asyncio.to_thread(self._missing, records)
        progress = _Progress(total, sum(max(record.size_bytes, 0) for record in missing), on_progress)
        tries, damaged = 0, set[str]()
        while missing:
            before = progress.received_bytes
            try:
                link = await self._dial()
                async with link:
                    while missing:
                        await self._fetch_file(link, missing[0], progress)
                        missing.pop(0)
            except FileDamaged as error:
                if missing[0].sha256 in damaged:
                    raise FetchDamaged(
                        "A model file arrived damaged twice; check the library on the console with "
                        "`fallow-export verify`."
                    ) from error
                damaged.add(missing[0].sha256)
                progress.restart_file()
            except (ConnectionClosed, LinkDown, TimeoutError) as error:
                cause = _as_link_down(error)
                if isinstance(cause, LinkRefused):
                    raise cause from error
                tries = 1 if progress.received_bytes > before else tries + 1
                if tries > TRIES_WITHOUT_PROGRESS:
                    raise FetchCut(f"The model files cannot be fetched, the link keeps breaking: {cause}") from error
                progress.restart_file()
                await asyncio.sleep(self._wait_s(tries))

    def _missing(self, records: Sequence[FileRecord]) -> tuple[list[FileRecord], int]:
        missing = [
            record
            for record in records
            if not self._store.has(record.sha256, record.size_bytes if record.size_bytes >= 0 else None)
        ]
        self._store.require_room(sum(max(record.size_bytes, 0) for record in missing))
        return missing, sum(max(record.size_bytes, 0) for record in records)

    async def _fetch_file(self, link: ClientConnection, record: FileRecord, progress: _Progress) -> None:
        part = await asyncio.to_thread(self._store.open_part, record.sha256)
        limit = record.size_bytes if record.size_bytes >= 0 else MAX_MANIFEST_BYTES
        try:
            if part.offset > limit:
                part.discard()
                raise FileDamaged("A partly fetched file is longer than it should be and was deleted.")
            progress.advance(part.offset, received=False)
            at_end = False
            while not at_end and (record.size_bytes < 0 or part.offset < record.size_bytes):
                at_end = await self._fetch_piece(link, part, limit, progress)
            await asyncio.to_thread(part.finish)
            progress.end_file()
        finally:
            await asyncio.to_thread(part.close)

    async def _fetch_piece(self, link: ClientConnection, part: Part, limit: int, progress: _Progress) -> bool:
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
            frame = _chunk(data, part.offset, end)
            if frame.tensor is not None and frame.tensor.size:
                await asyncio.to_thread(part.write, frame.tensor.data)
                progress.advance(frame.tensor.size, received=True)
            if frame.flags & LAST_CHUNK:
                return part.offset < end


class _Progress:
    """Counts bytes of one `_fetch_all` and tells the caller, files already here included."""

    def __init__(self, total: int, missing: int, on_progress: OnProgress) -> None:
        self._total = total
        self._done = total - missing
        self._file = 0
        self._on_progress = on_progress
        self.received_bytes = 0
        on_progress(self._done, total)

    def advance(self, size: int, *, received: bool) -> None:
        self._file += size
        self.received_bytes += size if received else 0
        self._on_progress(self._done + self._file, self._total)

    def end_file(self) -> None:
        self._done += self._file
        self._file = 0

    def restart_file(self) -> None:
        self._file = 0


def _as_link_down(error: Exception) -> LinkDown:
    if isinstance(error, ConnectionClosed):
        return link_error(error)
    if isinstance(error, LinkDown):
        return error
    return LinkCut("The console sends nothing.", "timeout")


def _chunk(data: bytes, offset: int, end: int) -> Frame:
    try:
        frame = decode(data)
        if frame.type is FrameType.NACK:
            nack = msgspec.msgpack.decode(frame.table, type=Nack)
            raise NotServed(nack.message)
    except (FrameError, msgspec.MsgspecError) as error:
        raise LinkCut(f"The console sent a damaged file chunk ({error}); it is fetched again.", "chunk") from None
    size = frame.tensor.size if frame.tensor is not None else 0
    wrong_type = frame.type is not FrameType.CHUNK or (frame.tensor is not None and frame.tensor.dtype != "u1")
    if wrong_type or frame.step != offset or offset + size > end:
        raise LinkCut("The console sent another piece of a file than was asked for; it is fetched again.", "chunk")
    return frame
