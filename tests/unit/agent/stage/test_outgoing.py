"""A slow link keeps nobody from computing, and loses, repeats and reorders nothing."""

from __future__ import annotations

import contextlib
import queue
import random
import socket
import threading
from collections.abc import Iterator

import pytest

from agent.stage.outgoing import Outgoing
from tests.support.patience import PATIENCE_S

BIG = 1 << 20
"""More than a socket takes at once."""


class SocketSink:
    """A plain socket with the two ways to send of a wire."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.waited = threading.Event()

    def send_now(self, data: bytes | memoryview) -> int:
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < len(data):
                sent += self._sock.send(memoryview(data)[sent:], socket.MSG_DONTWAIT)
        return sent

    def send(self, data: bytes | memoryview) -> None:
        self.waited.set()
        self._sock.sendall(data)


class Link:
    """An `Outgoing` whose other end the test reads, or does not."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.sink = SocketSink(near)
        self.reasons: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.far = far
        self.out = Outgoing(self.sink, self.reasons.put)

    def read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += self.far.recv(size - len(data))
        return bytes(data)


@pytest.fixture
def link() -> Iterator[Link]:
    near, far = socket.socketpair()
    with near, far:
        yield (link := Link(near, far))
        # The sender's thread lives as long as its link, and sees the end of that when it has something to send.
        if far.fileno() >= 0:
            link.out.send(bytes(4 * BIG))
            far.close()
            link.reasons.get(timeout=PATIENCE_S)


def test_the_usual_frame_goes_out_without_another_thread(link: Link) -> None:
    link.out.send(b"small")
    assert not link.sink.waited.is_set()
    assert link.read(5) == b"small"


def test_frames_for_a_link_that_takes_nothing_do_not_hold_up_the_sender(link: Link) -> None:
    frames = [bytes([number]) * BIG for number in range(8)]
    for frame in frames:
        link.out.send(frame)
    assert link.read(8 * BIG) == b"".join(frames)


def test_frames_of_all_sizes_arrive_in_order(link: Link) -> None:
    chance = random.Random(3)
    frames = [chance.randbytes(chance.choice([1, 100, 70_000, 3 * BIG])) for _ in range(60)]
    reader: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    whole = b"".join(frames)
    thread = threading.Thread(target=lambda: reader.put(link.read(len(whole))))
    thread.start()
    for frame in frames:
        link.out.send(frame)
    assert reader.get(timeout=PATIENCE_S) == whole
    thread.join()


def test_a_link_that_breaks_is_reported(link: Link) -> None:
    link.out.send(bytes(4 * BIG))
    link.far.close()
    assert link.reasons.get(timeout=PATIENCE_S)
