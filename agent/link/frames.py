"""The binary frame: a fixed little-endian header, a msgpack table, raw tensor bytes. No I/O here.

One frame carries one step over one hop (or a piece of a file). The header says how long everything is, and every
length is checked against limits before anything is allocated. The CRC covers everything but itself, so a flipped
bit anywhere is found by whoever computes with the frame; a relay reads `peek` only and leaves the rest opaque.

FrameError
 ├─ FrameTruncated   fewer bytes than the header promises
 ├─ FrameTooLarge    a length beyond the limits
 └─ FrameMalformed   wrong magic, version, type, dtype, shape, table or CRC
"""

from __future__ import annotations

import enum
import functools
import math
import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    import numpy.typing as npt

HEADER = struct.Struct("<4sBBBBIIQIHH3IIQI")
"""Magic, version, type, dtype, rank, pipeline, epoch, step, sequence, stage, flags, three dims, table and payload
bytes, CRC."""

_UNSEALED = struct.Struct(HEADER.format.removesuffix("I"))
_CRC = struct.Struct("<I")
_KIND_AND_STEP = struct.Struct("<5xB10xQ")

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
    """Console or stage k -> stage k+1: rows and their token ids (i64 [T]) or hidden states (f32 or f16
    [T,H])."""
    TOKENS = 2
    """Tail -> console: sampled ids (i32 [sum of wants])."""
    NACK = 3
    """Any stage -> console: the step failed; the table is a Nack."""
    REPORT = 4
    """Child -> agent: the stage is loaded, or in a new epoch; the table is a StageReport."""
    FETCH = 5
    """Reader -> console or another agent on a bulk link: the table is a Fetch."""
    CHUNK = 6
    """The answer to FETCH: a piece of a file (u8 [n])."""
    TICKET = 7
    """Agent -> agent, first on a direct or bulk link and again before it expires: the table is a signed ticket."""
    TAKEN = 8
    """Agent -> agent on a direct link, from the receiver: it has taken every step up to `step`, on whatever way."""
    LOCATE = 9
    """Agent -> console on a bulk link: the table is a Locate."""
    HOLDERS = 10
    """The answer to LOCATE: the table is a Holders."""
    DIRECT = 11
    """Agent <-> child: the table is a DirectRoute, CutDirect or AdvanceEpoch, or a DirectState back."""


class DType(enum.IntEnum):
    """Element types on the wire."""

    NONE = 0
    F32 = 1
    F16 = 2
    I32 = 3
    I64 = 4
    U8 = 5


_CODES = {DType.F32: "<f4", DType.F16: "<f2", DType.I32: "<i4", DType.I64: "<i8", DType.U8: "u1"}
# A dictionary answers in a third of the time of an enum's constructor.
_TYPES = {int(type_): type_ for type_ in FrameType}
_DTYPES = {int(dtype): dtype for dtype in DType}


class _Arrays(NamedTuple):
    """numpy and its element types both ways."""

    numpy: Any
    of_wire: dict[DType, Any]
    to_wire: dict[Any, DType]


@functools.cache
def _arrays() -> _Arrays:
    """Load numpy with the first tensor: an agent that waits, or only passes frames on, does without its 11 MB."""
    import numpy as np

    of_wire = {wire: np.dtype(code) for wire, code in _CODES.items()}
    return _Arrays(np, of_wire, {dtype: wire for wire, dtype in of_wire.items()})


LAST_CHUNK = 1
"""Flag of the CHUNK that ends the answer to a FETCH."""


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


class Peek(NamedTuple):
    """What a relay may know of a frame: the routing fields of its header."""

    type: FrameType
    pipeline: int
    epoch: int
    step: int
    sequence: int
    stage: int


def encode(frame: Frame) -> bytes:
    """Serialise a frame. Raises FrameTooLarge or FrameMalformed for what `decode` would refuse."""
    shape, dtype, payload = _payload(frame.tensor)
    if len(frame.table) > MAX_TABLE_BYTES or len(payload) > MAX_PAYLOAD_BYTES:
        raise FrameTooLarge(f"A frame of {len(frame.table) + len(payload)} bytes is over the limit.")
    try:
        header = _UNSEALED.pack(
            MAGIC, VERSION, frame.type, dtype, len(shape), frame.pipeline, frame.epoch, frame.step, frame.sequence,
            frame.stage, frame.flags, *shape, *(0,) * (3 - len(shape)), len(frame.table), len(payload),
        )  # fmt: skip
    except struct.error as error:
        raise FrameMalformed(f"A field of the frame does not fit its header: {error}.") from None
    crc = zlib.crc32(payload, zlib.crc32(frame.table, zlib.crc32(header)))
    return b"".join((header, _CRC.pack(crc), frame.table, payload))


def _payload(tensor: npt.NDArray[Any] | None) -> tuple[tuple[int, ...], DType, memoryview]:
    if tensor is None:
        return (), DType.NONE, memoryview(b"")
    np, _, to_wire = _arrays()
    dtype = to_wire.get(tensor.dtype)
    if dtype is None or not 1 <= tensor.ndim <= 3:
        raise FrameMalformed(f"A tensor of type {tensor.dtype} and rank {tensor.ndim} cannot travel.")
    flat = np.ascontiguousarray(tensor).reshape(-1)
    return tensor.shape, dtype, memoryview(flat.view(np.uint8))


def peek_size(header: bytes | memoryview) -> int:
    """Return the whole frame's length from its first `HEADER.size` bytes, after checking the limits."""
    return _size(_unpack(header))


def peek(data: bytes | memoryview) -> Peek:
    """Read the routing fields of a whole frame, after checking type and length. Content and CRC stay unread."""
    fields = _unpack(data)
    _check_length(len(data), _size(fields))
    return Peek(_frame_type(fields[2]), *fields[5:10])


def kind_and_step(data: bytes | memoryview) -> tuple[int, int]:
    """Read type and step of a frame that was checked or made here."""
    kind, step = _KIND_AND_STEP.unpack_from(data)
    return kind, step


def decode(data: bytes | memoryview) -> Frame:
    """Parse and check one whole frame. Raises FrameError; allocates nothing larger than `data`."""
    fields = _unpack(data)
    _check_length(len(data), _size(fields))
    (_, _, type_, dtype, rank, pipeline, epoch, step, sequence, stage, flags, d0, d1, d2, table_bytes, _, crc) = fields
    view = memoryview(data)
    body, payload = view[HEADER.size : HEADER.size + table_bytes], view[HEADER.size + table_bytes :]
    if zlib.crc32(payload, zlib.crc32(body, zlib.crc32(view[: _UNSEALED.size]))) != crc:
        raise FrameMalformed("The frame's CRC does not match its content.")
    wire = _DTYPES.get(dtype)
    if wire is None:
        raise FrameMalformed(f"The frame has an unknown element type {dtype}.")
    tensor = _tensor(payload, wire, rank, (d0, d1, d2))
    return Frame(_frame_type(type_), pipeline, epoch, step, sequence, stage, bytes(body), tensor, flags)


def _unpack(data: bytes | memoryview) -> tuple[Any, ...]:
    if len(data) < HEADER.size:
        raise FrameTruncated(f"A frame header has {HEADER.size} bytes, got {len(data)}.")
    fields = HEADER.unpack_from(data)
    if fields[0] != MAGIC or fields[1] != VERSION:
        raise FrameMalformed("The bytes are not a frame of this version.")
    return fields


def _size(fields: tuple[Any, ...]) -> int:
    table_bytes, payload_bytes = fields[-3], fields[-2]
    if table_bytes > MAX_TABLE_BYTES or payload_bytes > MAX_PAYLOAD_BYTES:
        raise FrameTooLarge(f"A frame of {table_bytes + payload_bytes} bytes is over the limit.")
    return int(HEADER.size + table_bytes + payload_bytes)


def _check_length(got: int, promised: int) -> None:
    if got != promised:
        kind = FrameTruncated if got < promised else FrameMalformed
        raise kind(f"The frame has {got} bytes, its header promises {promised}.")


def _frame_type(type_: int) -> FrameType:
    frame_type = _TYPES.get(type_)
    if frame_type is None:
        raise FrameMalformed(f"The frame has an unknown type {type_}.")
    return frame_type


def _tensor(payload: memoryview, wire: DType, rank: int, dims: tuple[int, int, int]) -> npt.NDArray[Any] | None:
    if wire is DType.NONE:
        if rank or any(dims) or len(payload):
            raise FrameMalformed("A frame without a tensor carries a shape or a payload.")
        return None
    if not 1 <= rank <= 3 or any(dims[rank:]):
        raise FrameMalformed(f"A tensor of rank {rank} and dimensions {dims} cannot travel.")
    np, of_wire, _ = _arrays()
    shape, dtype = dims[:rank], of_wire[wire]
    if math.prod(shape) * dtype.itemsize != len(payload):
        raise FrameMalformed(f"A tensor of shape {shape} does not have {len(payload)} bytes.")
    try:
        tensor: npt.NDArray[Any] = np.frombuffer(payload, dtype).reshape(shape)
    except ValueError:  # an empty tensor whose other dimensions are beyond numpy
        raise FrameMalformed(f"A tensor of shape {shape} cannot be held.") from None
    tensor.flags.writeable = False
    return tensor


class Fetch(msgspec.Struct, frozen=True, array_like=True):
    """Ask for up to `length` bytes of the file named by its SHA-256, from `offset`.

    The answer is one or more CHUNK frames (`step` is the chunk's offset), the last one flagged `LAST_CHUNK` and
    shorter or empty where the file ends; or one NACK frame with a `Nack` table.
    """

    sha256: str
    offset: int
    length: int
