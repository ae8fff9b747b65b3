from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.link import frames
from agent.link.frames import (
    HEADER,
    MAX_PAYLOAD_BYTES,
    MAX_TABLE_BYTES,
    Frame,
    FrameError,
    FrameMalformed,
    FrameTooLarge,
    FrameTruncated,
    FrameType,
    decode,
    encode,
    peek,
    peek_size,
)

DTYPES = ["<f4", "<f2", "<i4", "<i8", "u1"]


def make_frame(*, tensor: npt.NDArray[Any] | None = None, table: bytes = b"table", **fields: Any) -> Frame:
    values = {"type": FrameType.STEP, "pipeline": 1, "epoch": 2, "step": 3, "sequence": 4, "stage": 5} | fields
    return Frame(table=table, tensor=tensor, **values)


def with_field(data: bytes, index: int, value: int) -> bytes:
    """Rewrite one header field, leaving the rest (and the CRC) as it was."""
    fields = list(HEADER.unpack_from(data))
    fields[index] = value
    return HEADER.pack(*fields) + data[HEADER.size :]


def sealed(data: bytes) -> bytes:
    """Give a hand-made frame the CRC it should have, so that later checks are reached."""
    import zlib

    crc = zlib.crc32(data[HEADER.size :], zlib.crc32(data[: HEADER.size - 4]))
    return data[: HEADER.size - 4] + crc.to_bytes(4, "little") + data[HEADER.size :]


@st.composite
def any_frame(draw: st.DrawFn) -> Frame:
    tensor = None
    if draw(st.booleans()):
        shape = draw(st.lists(st.integers(0, 5), min_size=1, max_size=3))
        size = int(np.prod(shape)) * np.dtype(dtype := draw(st.sampled_from(DTYPES))).itemsize
        tensor = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype).reshape(shape)
    return Frame(
        draw(st.sampled_from(FrameType)),
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(0, 2**64 - 1)),
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(0, 2**16 - 1)),
        draw(st.binary(max_size=64)),
        tensor,
        draw(st.integers(0, 2**16 - 1)),
    )


@given(any_frame())
def test_decode_gives_back_what_encode_took(frame: Frame) -> None:
    data = encode(frame)
    again = decode(data)
    for name in ("type", "pipeline", "epoch", "step", "sequence", "stage", "table", "flags"):
        assert getattr(again, name) == getattr(frame, name)
    if frame.tensor is None:
        assert again.tensor is None
    else:
        assert again.tensor is not None
        assert again.tensor.dtype == frame.tensor.dtype
        assert again.tensor.shape == frame.tensor.shape
        assert again.tensor.tobytes() == frame.tensor.tobytes()
        assert not again.tensor.flags.writeable
    assert peek_size(data[: HEADER.size]) == len(data)
    assert peek(data) == (frame.type, frame.pipeline, frame.epoch, frame.step, frame.sequence, frame.stage)


@given(any_frame(), st.data())
def test_a_single_flipped_bit_is_always_found(frame: Frame, data: st.DataObject) -> None:
    encoded = bytearray(encode(frame))
    bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
    encoded[bit // 8] ^= 1 << (bit % 8)
    with pytest.raises(FrameError):
        decode(bytes(encoded))


@given(any_frame(), st.data())
def test_a_truncated_frame_is_refused(frame: Frame, data: st.DataObject) -> None:
    encoded = encode(frame)
    with pytest.raises(FrameTruncated):
        decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    for parse in (decode, peek, peek_size):
        with pytest.raises(FrameError):
            parse(noise)


@given(st.binary(max_size=HEADER.size * 2))
def test_noise_behind_a_good_magic_is_refused(noise: bytes) -> None:
    with pytest.raises(FrameError):
        decode(frames.MAGIC + bytes([frames.VERSION]) + noise)


def test_bytes_after_the_frame_are_refused() -> None:
    with pytest.raises(FrameMalformed):
        decode(encode(make_frame()) + b"\0")


@pytest.mark.parametrize(("field", "limit"), [(-3, MAX_TABLE_BYTES), (-2, MAX_PAYLOAD_BYTES)])
def test_lengths_beyond_the_limits_are_refused_from_the_header_alone(field: int, limit: int) -> None:
    header = with_field(encode(make_frame()), field, limit + 1)[: HEADER.size]
    with pytest.raises(FrameTooLarge):
        peek_size(header)


def test_a_header_that_promises_gigabytes_allocates_nothing() -> None:
    data = with_field(encode(make_frame(tensor=np.zeros(4, np.float32))), -2, 2**63)
    tracemalloc.start()
    try:
        with pytest.raises(FrameTooLarge):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("index", "value"),
    [(3, 0), (3, 99), (4, 0), (4, 4), (4, 2), (11, 3), (11, 2**32 - 1), (12, 1), (13, 7)],
    ids=["no dtype", "dtype", "rank 0", "rank 4", "rank 2", "dim", "huge dim", "unused dim", "unused last dim"],
)
def test_a_shape_that_contradicts_the_payload_is_refused(index: int, value: int) -> None:
    good = encode(make_frame(tensor=np.zeros(4, np.float32)))
    with pytest.raises(FrameMalformed):
        decode(sealed(with_field(good, index, value)))


def test_an_empty_tensor_with_impossible_dimensions_is_refused() -> None:
    data = encode(make_frame(tensor=np.zeros((0, 1, 1), np.float32)))
    for index in (12, 13):
        data = with_field(data, index, 2**32 - 1)
    with pytest.raises(FrameMalformed):
        decode(sealed(data))


def test_an_unknown_type_is_refused_by_relay_and_reader() -> None:
    data = sealed(with_field(encode(make_frame()), 2, 77))
    for parse in (decode, peek):
        with pytest.raises(FrameMalformed, match="unknown type 77"):
            parse(data)


@pytest.mark.parametrize(
    "tensor", [np.zeros(3, np.float64), np.zeros((), np.float32), np.zeros((1, 1, 1, 1), np.int32)]
)
def test_encode_refuses_tensors_that_cannot_travel(tensor: npt.NDArray[Any]) -> None:
    with pytest.raises(FrameMalformed):
        encode(make_frame(tensor=tensor))


def test_encode_refuses_fields_that_do_not_fit() -> None:
    with pytest.raises(FrameMalformed):
        encode(make_frame(stage=-1))
    with pytest.raises(FrameTooLarge):
        encode(make_frame(table=b"\0" * (MAX_TABLE_BYTES + 1)))


def test_a_transposed_tensor_travels_in_its_logical_order() -> None:
    tensor = np.arange(6, dtype=np.int32).reshape(2, 3).T
    again = decode(encode(make_frame(tensor=tensor))).tensor
    assert again is not None
    assert again.tolist() == tensor.tolist()
