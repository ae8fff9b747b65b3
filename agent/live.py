"""A stage that is up: its child process, and the frames that pass between it and the console's links. Event loop only.

With a link of its own the child needs this only for orders and when that link cannot be opened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from agent.link.frames import Frame, FrameType, Peek, decode, encode, peek
from agent.link.messages import FromAgent
from agent.link.stage_messages import AdvanceEpoch, CutDirect, DirectRoute, DirectState, LoadStage, StageReady
from agent.loading import Child
from agent.stage.errors import StageGone
from agent.stage.gate import Gate
from agent.stage.types import Epoch, Nack, PipelineId, StageReport

log = logging.getLogger(__name__)

SendFrame = Callable[[bytes], None]
_decode_state = msgspec.msgpack.Decoder(DirectState).decode
_decode_report = msgspec.msgpack.Decoder(StageReport).decode


class LiveStage:
    """Frames and orders for one stage. `send_frame` sends one to the console, without waiting."""

    def __init__(self, request: LoadStage, child: Child, gate: Gate, send_frame: SendFrame) -> None:
        self.request = request
        self.child = child
        self.gate = gate
        self._send_frame = send_frame

    def holds(self, pipeline: int, epoch: int, stage: int) -> bool:
        """Whether this is that stage of that plan."""
        request = self.request
        return (request.pipeline, request.epoch, request.stage) == (pipeline, epoch, stage)

    def feed(self, header: Peek, data: bytes) -> asyncio.Future[None] | None:
        """Pass a STEP on to the child; a future: send nothing more until it is done."""
        try:
            if self.child.write(data):
                return None
        except StageGone as error:
            self._send_frame(nack_for(header, "engine", str(error)))
            return None
        return asyncio.ensure_future(self.child.writable())

    def order(self, order: DirectRoute | CutDirect) -> None:
        """Let the child open, renew or close its direct links; one that has ended has none."""
        if isinstance(order, DirectRoute) and not self.holds(order.pipeline, order.epoch, order.stage - 1):
            return
        try:
            self._tell(order)
        except StageGone as error:
            log.debug("An order for direct links came too late: %s", error)

    def advance(self, order: AdvanceEpoch) -> None:
        """Let the child go on in another epoch; it reports when it is there. Raises StageGone."""
        self._tell(order)
        self.request = msgspec.structs.replace(self.request, epoch=order.epoch, stage=order.stage)

    def _tell(self, order: DirectRoute | CutDirect | AdvanceEpoch) -> None:
        request, table = self.request, msgspec.msgpack.encode(order)
        self.child.write(
            encode(Frame(FrameType.DIRECT, request.pipeline, request.epoch, 0, 0, request.stage, table, None))
        )


def forwarder(send_frame: SendFrame, say: Callable[[FromAgent], None]) -> SendFrame:
    """Return what a child's frames go to: the console's data link, or its control link for what it says of itself."""

    def forward(data: bytes) -> None:
        header = peek(data)
        if header.type is FrameType.DIRECT:
            say(_decode_state(decode(data).table))
        elif header.type is FrameType.REPORT:
            report = _decode_report(decode(data).table)
            say(StageReady(PipelineId(header.pipeline), Epoch(header.epoch), header.stage, report))
        else:
            send_frame(data)

    return forward


def nack_for(header: Peek, code: str, message: str) -> bytes:
    """Answer a step that its stage cannot run."""
    table = msgspec.msgpack.encode(Nack(header.stage, code, message))
    return encode(
        Frame(FrameType.NACK, header.pipeline, header.epoch, header.step, header.sequence, header.stage, table, None)
    )
