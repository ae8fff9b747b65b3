"""The head of a `.gguf` file: what the model is called and how large its tensors are. Nothing of the weights is read.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Counts and lengths are checked before reading.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

MAGIC = b"GGUF"
MAX_ENTRIES = 1 << 20
MAX_TEXT_BYTES = 64 << 20
_STRING, _ARRAY = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_WANTED = "general.architecture"


class HeaderBad(Exception):
    """It is no whole GGUF file: `str(error)` says why."""


class GgufTensor(NamedTuple):
    """A tensor's name, how many weights it has, in how many dimensions, and the bytes they take in the file."""

    name: str
    weights: int
    dimensions: int
    size_bytes: int


class GgufHeader(NamedTuple):
    """A file's architecture (`llama`) and its tensors."""

    architecture: str
    tensors: list[GgufTensor]


def read_gguf_header(path: Path) -> GgufHeader:
    """Read the head of a file. Raises HeaderBad, OSError. Blocks."""
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            raise HeaderBad("it is not a GGUF file")
        _, tensor_count, pair_count = _numbers(file, "<IQQ")
        if tensor_count > MAX_ENTRIES or pair_count > MAX_ENTRIES:
            raise HeaderBad("its head names too many things")
        architecture = ""
        for _ in range(pair_count):
            key, value = _text(file), _value(file)
            if key == _WANTED and value is not None:
                architecture = value
        placed = [_tensor(file) for _ in range(tensor_count)]
        end = path.stat().st_size - file.tell()
    ends = dict(zip(sorted({offset for _, _, _, offset in placed}), _following(placed, end), strict=True))
    return GgufHeader(
        architecture,
        [GgufTensor(name, weights, many, ends[offset] - offset) for name, weights, many, offset in placed],
    )


_Placed = tuple[str, int, int, int]


def _following(placed: list[_Placed], end: int) -> list[int]:
    offsets = sorted({offset for _, _, _, offset in placed})
    if offsets and offsets[-1] > end:
        raise HeaderBad("it ends before its last tensor")
    return [*offsets[1:], end] if offsets else []


def _tensor(file: BinaryIO) -> _Placed:
    name = _text(file)
    (many,) = _numbers(file, "<I")
    if many > 8:
        raise HeaderBad("a tensor has too many dimensions")
    weights = 1
    for size in _numbers(file, f"<{many}Q"):
        weights *= size
    _, offset = _numbers(file, "<IQ")
    if weights > 1 << 50:
        raise HeaderBad("a tensor is too large")
    return name, weights, many, offset


def _value(file: BinaryIO) -> str | None:
    """Read a value; return it if it is a text."""
    (kind,) = _numbers(file, "<I")
    if kind == _STRING:
        return _text(file)
    if kind == _ARRAY:
        kind, count = _numbers(file, "<IQ")
        if count > MAX_ENTRIES * 16:
            raise HeaderBad("a list in its head is too long")
        if kind == _STRING:
            for _ in range(count):
                _skip(file, _length(file))
        else:
            _skip(file, count * _size(kind))
        return None
    _skip(file, _size(kind))
    return None


def _size(kind: int) -> int:
    if kind not in _SIZES:
        raise HeaderBad(f"its head has values of an unknown kind ({kind})")
    return _SIZES[kind]


def _length(file: BinaryIO) -> int:
    (length,) = _numbers(file, "<Q")
    if length > MAX_TEXT_BYTES:
        raise HeaderBad("a text in its head is too long")
    return int(length)


def _text(file: BinaryIO) -> str:
    return _read(file, _length(file)).decode("utf-8", "replace")


def _numbers(file: BinaryIO, layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, _read(file, struct.calcsize(layout)))


def _read(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise HeaderBad("it ends within its head")
    return data


def _skip(file: BinaryIO, count: int) -> None:
    _read(file, count)
