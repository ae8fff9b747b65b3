"""The binary frame: a fixed little-endian header, a msgpack table, raw tensor bytes. No I/O here.

One frame carries one step over one hop (or a piece of a file). The header says how long everything is, and every
length is checked against limits before anything is allocated. The CRC covers table and payload.

FrameError
 ├─ FrameTruncated   fewer bytes than the header promises
 ├─ FrameTooLarge    a length beyond the limits
 └─ FrameMalformed   wrong magic, version, type, dtype, shape, table or CRC
"""

from __future__ import annotations

import enum
import struct
import zlib
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

HEADER = struct.Struct("<4sBBBBIIQIHH3IIQI")
"""Magic, version, type, dtype, rank, pipeline, epoch, step, sequence, stage, flags, three dims, table and payload
bytes, CRC."""

MAGIC = b"FLW1"
VERSION = 1
MAX_TABLE_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 64 << 20
MAX_FRAME_BYTES = HEADER.size + MAX_TABLE_BYTES + MAX_PAYLOAD_BYTES


class FrameError(Exception):
    """A frame cannot be trusted; the link that carried it is closed with code 4400."""


class FrameTruncated(FrameError):
    """Fewer bytes arrived than the header promises."""


class FrameTooLarge(FrameError):
    """A length in the header is beyond the limits."""


class FrameMalformed(FrameError):
    """Magic, version, type, dtype, shape, table or CRC are wrong."""


class FrameType(enum.IntEnum):
    """What a frame is for."""

    STEP = 1
    """Console or stage k -> stage k+1: rows and their token ids (i64 [T]) or hidden states (f32 [T,H])."""
    TOKENS = 2
    """Tail -> console: sampled ids (i32 [sum of wants])."""
    NACK = 3
    """Any stage -> console: the step failed; the table is a Nack."""
    REPORT = 4
    """Child -> agent: the stage is loaded; the table is a StageReport."""
    FETCH = 5
    """Agent -> console on a bulk link: the table is a Fetch."""
    CHUNK = 6
    """Console -> agent on a bulk link: a piece of a file (u8 [n])."""


class DType(enum.IntEnum):
    """Element types on the wire."""

    NONE = 0
    F32 = 1
    F16 = 2
    I32 = 3
    I64 = 4
    U8 = 5


_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.F32: np.dtype("<f4"),
    DType.F16: np.dtype("<f2"),
    DType.I32: np.dtype("<i4"),
    DType.I64: np.dtype("<i8"),
    DType.U8: np.dtype("u1"),
}
_WIRE = {dtype: wire for wire, dtype in _NUMPY.items()}


class Frame(msgspec.Struct, frozen=True):
    """A decoded frame. `table` is still msgpack; `tensor` is a read-only view into the received bytes."""

    type: FrameType
    pipeline: int
    epoch: int
    step: int
    sequence: int
    stage: int
    """The stage this frame is for (STEP) or comes from (TOKENS, NACK)."""
    table: bytes
    tensor: npt.NDArray[Any] | None
    flags: int = 0


def encode(frame: Frame) -> bytes:
    """Serialise a frame. Raises FrameTooLarge or FrameMalformed for what `decode` would refuse."""
    shape, dtype, payload = _payload(frame.tensor)
    if len(frame.table) > MAX_TABLE_BYTES or len(payload) > MAX_PAYLOAD_BYTES:
        raise FrameTooLarge(f"A frame of {len(frame.table) + len(payload)} bytes is over the limit.")
    crc = zlib.crc32(payload, zlib.crc32(frame.table))
    header = HEADER.pack(
        MAGIC, VERSION, frame.type, dtype, len(shape), frame.pipeline, frame.epoch, frame.step, frame.sequence,
        frame.stage, frame.flags, *shape, *(0,) * (3 - len(shape)), len(frame.table), len(payload), crc,
    )  # fmt: skip
    return b"".join((header, frame.table, payload))


def _payload(tensor: npt.NDArray[Any] | None) -> tuple[tuple[int, ...], DType, memoryview]:
    if tensor is None:
        return (), DType.NONE, memoryview(b"")
    dtype = _WIRE.get(tensor.dtype)
    if dtype is None or not 1 <= tensor.ndim <= 3:
        raise FrameMalformed(f"A tensor of type {tensor.dtype} and rank {tensor.ndim} cannot travel.")
    flat = np.ascontiguousarray(tensor).reshape(-1)
    return tensor.shape, dtype, memoryview(flat.view(np.uint8))  # type: ignore[arg-type]


def peek_size(header: bytes | memoryview) -> int:
    """Return the whole frame's length from its first `HEADER.size` bytes, after checking the limits."""
    if len(header) < HEADER.size:
        raise FrameTruncated(f"A frame header has {HEADER.size} bytes, got {len(header)}.")
    fields = HEADER.unpack_from(header)
    if fields[0] != MAGIC or fields[1] != VERSION:
        raise FrameMalformed("The bytes are not a frame of this version.")
    table_bytes, payload_bytes = fields[-3], fields[-2]
    if table_bytes > MAX_TABLE_BYTES or payload_bytes > MAX_PAYLOAD_BYTES:
        raise FrameTooLarge(f"A frame of {table_bytes + payload_bytes} bytes is over the limit.")
    return int(HEADER.size + table_bytes + payload_bytes)


def decode(data: bytes | memoryview) -> Frame:
    """Parse and check one whole frame. Raises FrameError; allocates nothing larger than `data`."""
    size = peek_size(data)
    if len(data) != size:
        kind = FrameTruncated if len(data) < size else FrameMalformed
        raise kind(f"The frame has {len(data)} bytes, its header promises {size}.")
    (_, _, type_, dtype, rank, pipeline, epoch, step, sequence, stage, flags, d0, d1, d2, table_bytes, _, crc) = (
        HEADER.unpack_from(data)
    )
    view = memoryview(data)
    body, payload = view[HEADER.size : HEADER.size + table_bytes], view[HEADER.size + table_bytes :]
    if zlib.crc32(payload, zlib.crc32(body)) != crc:
        raise FrameMalformed("The frame's CRC does not match its content.")
    try:
        frame_type, wire = FrameType(type_), DType(dtype)
    except ValueError as error:
        raise FrameMalformed(f"The frame has an unknown type: {error}.") from None
    return Frame(
        frame_type,
        pipeline,
        epoch,
        step,
        sequence,
        stage,
        bytes(body),
        _tensor(payload, wire, rank, (d0, d1, d2)),
        flags,
    )


def _tensor(payload: memoryview, wire: DType, rank: int, dims: tuple[int, int, int]) -> npt.NDArray[Any] | None:
    if wire is DType.NONE:
        if rank or len(payload):
            raise FrameMalformed("A frame without a tensor carries a payload.")
        return None
    if not 1 <= rank <= 3:
        raise FrameMalformed(f"A tensor of rank {rank} cannot travel.")
    shape, dtype = dims[:rank], _NUMPY[wire]
    elements = 1
    for dim in shape:
        elements *= dim
    if elements * dtype.itemsize != len(payload):
        raise FrameMalformed(f"A tensor of shape {shape} does not have {len(payload)} bytes.")
    tensor = np.frombuffer(payload, dtype).reshape(shape)
    tensor.flags.writeable = False
    return tensor


class Fetch(msgspec.Struct, frozen=True, array_like=True):
    """Ask for `length` bytes of the file named by its SHA-256, from `offset`."""

    sha256: str
    offset: int
    length: int
