from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.link.cutter import FrameCutter
from agent.link.frames import HEADER, MAX_FRAME_BYTES, Frame, FrameError, FrameTooLarge, FrameType, encode
from tests.support.fleet import make_step

FRAMES = [make_step(step=number, tokens=1 + number % 3, width=4) for number in range(6)]


@given(st.lists(st.integers(1, 400), max_size=30))
def test_frames_come_whole_however_the_bytes_are_cut(sizes: list[int]) -> None:
    got: list[bytes] = []
    cutter = FrameCutter(got.append)
    rest = b"".join(FRAMES)
    for size in [*sizes, len(rest)]:
        cutter.feed(rest[:size])
        rest = rest[size:]
    cutter.feed(rest)
    assert got == FRAMES


@given(st.binary(min_size=HEADER.size, max_size=300))
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        FrameCutter(lambda _: None).feed(data)


def test_a_frame_over_the_limit_is_refused_by_its_header_alone() -> None:
    frame = encode(Frame(FrameType.TICKET, 1, 1, 0, 0, 1, b"x" * 2000, None))
    cutter = FrameCutter(lambda _: None, max_bytes=1000)
    with pytest.raises(FrameTooLarge):
        cutter.feed(frame[: HEADER.size])
    cutter = FrameCutter(lambda _: None, max_bytes=1000)
    cutter.max_bytes = MAX_FRAME_BYTES
    cutter.feed(frame)
