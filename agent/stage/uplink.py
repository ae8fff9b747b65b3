"""A stage's own link to the console, from inside its child process: steps and answers do not pass through the agent.

A step that goes through the agent's event loop costs two wake-ups of another process each way. The child shows the
same device certificate as the agent and says which stage it holds; the console compares that with its route. If the
link cannot be opened the pipes carry the frames, and if it breaks later the stage ends: the console plans again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec

from agent.link.credentials import client_tls
from agent.link.cutter import FrameCutter
from agent.link.frames import Frame, FrameError, FrameType, decode, encode
from agent.link.messages import STAGE_PROTOCOL
from agent.link.wire import Wire
from agent.stage.types import Nack, StageSpec

DIAL_S = 5.0


class UplinkRefused(Exception):
    """The console does not take this link; the sentence is its own."""


class Uplink:
    """An accepted link: `wire` is for whoever sends, `read` for a thread that reads."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    @classmethod
    def open(cls, spec: StageSpec) -> Uplink | None:
        """Dial the console's addresses in turn; None, with the reason on stderr, if none of them takes the link."""
        if spec.uplink is None:
            return None
        for address in spec.uplink.addresses:
            try:
                tls = client_tls(spec.uplink.credentials)
                tls.set_alpn_protocols([STAGE_PROTOCOL])
                return cls(_attach(Wire.dial(address, tls, spec.uplink.server_hostname, DIAL_S), spec))
            except (OSError, ValueError, FrameError, UplinkRefused) as error:
                sys.stderr.write(f"This stage has no link of its own to {address} ({error}); it uses the agent's.\n")
        return None

    def read(self, take: Callable[[bytes], None]) -> None:
        """Pass every whole frame to `take`, until the link ends. Raises FrameError and OSError."""
        cutter = FrameCutter(take)
        while data := self.wire.receive():
            cutter.feed(data)


def _attach(wire: Wire, spec: StageSpec) -> Wire:
    """Say which stage this is and wait for the console's word; whatever fails, the wire is closed."""
    try:
        _introduce(wire, spec)
    except BaseException:
        wire.close()
        raise
    return wire


def _introduce(wire: Wire, spec: StageSpec) -> None:
    if wire.protocol != STAGE_PROTOCOL:
        raise UplinkRefused("the console does not know such links")
    wire.send(encode(Frame(FrameType.TICKET, spec.pipeline, spec.epoch, 0, 0, spec.stage, b"", None)))
    answers: list[bytes] = []
    cutter = FrameCutter(answers.append)
    while not answers:
        data = wire.receive(DIAL_S)
        if not data:
            raise UplinkRefused("the console closed it")
        cutter.feed(data)
    answer = decode(answers[0])
    if answer.type is FrameType.NACK:
        raise UplinkRefused(msgspec.msgpack.decode(answer.table, type=Nack).message)
