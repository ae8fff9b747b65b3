"""Serving library files to agents on the bulk link, by SHA-256. Only files of registered libraries can be named.

One FETCH at a time per link, answered with CHUNK frames of at most 1 MiB as fast as the agent reads, or one NACK.
A request that cannot be answered costs the agent a NACK; the link stays.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosedOK

from agent.link.frames import LAST_CHUNK, Fetch, Frame, FrameMalformed, FrameType, decode, encode
from agent.link.sockets import CHUNK_BYTES
from agent.stage.types import Nack
from console.fleet.errors import LibraryNotServed
from shard_export.library.manifest import MANIFEST_NAME, Manifest

log = logging.getLogger(__name__)

_encode_table = msgspec.msgpack.Encoder().encode
_decode_fetch = msgspec.msgpack.Decoder(Fetch).decode


class _Source(msgspec.Struct, frozen=True):
    path: Path
    size_bytes: int


class _CannotServe(Exception):
    """A request is answered with a NACK."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Distribution:
    """The index of what may be fetched, and the bulk link's handler. Registering is safe from any thread."""

    def __init__(self) -> None:
        self._libraries: dict[str, dict[str, _Source]] = {}

    def register(self, folder: Path) -> str:
        """Serve a library folder from now on; return its digest. Blocks on the disk.

        Raises LibraryNotServed when the manifest cannot be read or a file is missing or of another size. Hashes
        are not computed here (`fallow-export verify` does); the agent checks every file it gets.
        """
        path = folder / MANIFEST_NAME
        try:
            data = path.read_bytes()
            manifest = msgspec.json.decode(data, type=Manifest)
        except (OSError, msgspec.MsgspecError) as error:
            raise LibraryNotServed(f"{path} cannot be read ({error}); export the library again.") from error
        digest = hashlib.sha256(data).hexdigest()
        sources = {digest: _Source(path, len(data))}
        root = folder.resolve()
        for record in manifest.files():
            file = folder / record.path
            inside = file.resolve().is_relative_to(root)
            if not inside or not file.is_file() or file.stat().st_size != record.size_bytes:
                raise LibraryNotServed(
                    f"{file} is missing or not as the manifest says; run `fallow-export verify` and export it again."
                )
            sources[record.sha256] = _Source(file, record.size_bytes)
        self._libraries = {**self._libraries, digest: sources}
        return digest

    def unregister(self, digest: str) -> None:
        """Stop serving a library. Files that another library shares stay."""
        self._libraries = {name: sources for name, sources in self._libraries.items() if name != digest}

    def find(self, sha256: str) -> tuple[Path, int] | None:
        """Return where a file lies and its size in bytes, or None when no registered library holds it."""
        for sources in self._libraries.values():
            source = sources.get(sha256)
            if source is not None:
                return source.path, source.size_bytes
        return None

    async def serve(self, link: ServerConnection) -> None:
        """Answer one agent's requests until its bulk link closes. Raises FrameError for what is no FETCH frame."""
        try:
            while True:
                frame = decode(await link.recv(decode=False))
                if frame.type is not FrameType.FETCH:
                    raise FrameMalformed(f"A {frame.type.name} frame does not belong on a bulk link.")
                try:
                    async for chunk in self._chunks(frame):
                        await link.send(chunk)
                except _CannotServe as error:
                    log.info("A fetch was refused: %s", error)
                    table = _encode_table(Nack(0, error.code, str(error)))
                    await link.send(encode(_answer(frame, FrameType.NACK, table=table)))
        except ConnectionClosedOK:
            pass

    async def _chunks(self, request: Frame) -> AsyncIterator[bytes]:
        """Read and encode in a thread, one chunk ahead of nobody: the link's back-pressure paces the disk."""
        fetch = _parse(request)
        found = self.find(fetch.sha256)
        if found is None:
            raise _CannotServe("unknown", "The console does not serve this file; deploy its library again.")
        path, size = found
        if not 0 <= fetch.offset <= size or fetch.length < 0:
            raise _CannotServe("range", f"The file has {size} bytes, not {fetch.length} from {fetch.offset}.")
        offset, end = fetch.offset, min(size, fetch.offset + fetch.length)
        while True:
            length = min(CHUNK_BYTES, end - offset)
            yield await asyncio.to_thread(_read_chunk, request, path, offset, length, offset + length == end)
            offset += length
            if offset == end:
                return


def _parse(request: Frame) -> Fetch:
    try:
        return _decode_fetch(request.table)
    except msgspec.MsgspecError as error:
        raise _CannotServe("bad_request", f"The request cannot be read ({error}); update the agent.") from None


def _read_chunk(request: Frame, path: Path, offset: int, length: int, is_last: bool) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(length)
    except OSError as error:
        log.warning("Cannot read %s: %s", path, error)
        raise _CannotServe("unreadable", "The console cannot read the file; look at its log.") from error
    if len(data) != length:
        log.warning("%s is shorter than its manifest says.", path)
        raise _CannotServe("damaged", "The file is damaged on the console; export its library again.")
    tensor = np.frombuffer(data, np.uint8)
    return encode(_answer(request, FrameType.CHUNK, offset=offset, tensor=tensor, flags=LAST_CHUNK if is_last else 0))


def _answer(
    request: Frame,
    kind: FrameType,
    *,
    table: bytes = b"",
    offset: int = 0,
    tensor: npt.NDArray[np.uint8] | None = None,
    flags: int = 0,
) -> Frame:
    return Frame(kind, request.pipeline, request.epoch, offset, request.sequence, 0, table, tensor, flags)
