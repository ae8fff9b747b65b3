"""A stage that is up: its child process, the steps it was fed, and how its own steps leave. Event loop only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from agent.link.direct import Inbound
from agent.link.frames import Frame, FrameType, Peek, encode, peek
from agent.link.hop import Hop
from agent.link.messages import LoadStage
from agent.loading import Child
from agent.stage.errors import StageGone
from agent.stage.types import Nack

SendFrame = Callable[[bytes], None]


class LiveStage:
    """Frames in and out of one stage. `send_frame` sends one to the console, without waiting."""

    def __init__(self, request: LoadStage, child: Child, hop: Hop, send_frame: SendFrame) -> None:
        self.request = request
        self.child = child
        self.hop = hop
        self.inbound: Inbound | None = None
        """The direct link from the stage before."""
        self.taken = -1
        """The last step this stage was fed, whichever way it came."""
        self._send_frame = send_frame

    def holds(self, pipeline: int, epoch: int, stage: int) -> bool:
        """Whether this is that stage of that plan."""
        request = self.request
        return (request.pipeline, request.epoch, request.stage) == (pipeline, epoch, stage)

    def feed(self, header: Peek, data: bytes) -> asyncio.Future[None] | None:
        """Pass a STEP on to the child; a future: send nothing more until it is done.

        A step that was sent again, because a direct link broke before it was confirmed, is dropped: ids only grow.
        """
        if header.step <= self.taken:
            return None
        self.taken = header.step
        try:
            if self.child.write(data):
                return None
        except StageGone as error:
            self._send_frame(nack_for(header, "engine", str(error)))
            return None
        return asyncio.ensure_future(self.child.writable())


def forwarder(hop: Hop, send_frame: SendFrame) -> SendFrame:
    """Return what a child's frames go to: steps to the next stage, answers to the console."""
    now = asyncio.get_running_loop().time

    def forward(data: bytes) -> None:
        header = peek(data)
        if header.type is FrameType.STEP:
            hop.send(header.step, data, now())
        else:
            send_frame(data)

    return forward


def nack_for(header: Peek, code: str, message: str) -> bytes:
    """Answer a step that its stage cannot run."""
    table = msgspec.msgpack.encode(Nack(header.stage, code, message))
    return encode(
        Frame(FrameType.NACK, header.pipeline, header.epoch, header.step, header.sequence, header.stage, table, None)
    )
