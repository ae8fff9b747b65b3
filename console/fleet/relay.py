"""The relay: which stage's frames go where. Reads only the frame header; knows routes and links, opens nothing.

Everything here is synchronous and runs on the event loop inside the sender's read loop: one hop costs a header, a
dictionary look-up and a write, no task and no copy.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec
from websockets.asyncio.connection import Connection

from agent.link.frames import Frame, FrameMalformed, FrameType, Peek, decode, peek
from agent.link.sockets import MAX_UNSENT_BYTES, Unsendable, post
from agent.stage.types import Nack
from console.fleet.errors import NoRoute
from console.fleet.uplinks import Uplink

log = logging.getLogger(__name__)

LOG_EVERY = 1000
"""A peer that floods us with frames nobody wants gets one log line per this many."""

DropCause = Literal["stale", "not_its_stage"]
"""Why a frame is dropped: of a plan that is over, or from a PC that does not hold the stage."""
OnFrame = Callable[[int, Frame], None]
OnPass = Callable[[int, int], None]
"""Hears of a step and the stage (> 0) it was just sent to."""


class StageBytes(NamedTuple):
    """Bytes that went to each stage of a pipeline through this process, and that came from it."""

    sent: list[int]
    received: list[int]


class _Route(msgspec.Struct, frozen=True):
    epoch: int
    devices: tuple[str, ...]
    bytes: StageBytes


class Relay:
    """Routes of the live pipelines. `data_link(device)` finds an agent's data link (None: gone).

    `uplink(device, pipeline)` finds the own link of the stage a device holds, which is used instead of the agent's.

    `on_stalled(device)` is told when a device reads so slowly that the bound was reached.
    """

    def __init__(
        self,
        data_link: Callable[[str], Connection | None],
        uplink: Callable[[str, int], Uplink | None],
        on_stalled: Callable[[str], None],
        max_unsent_bytes: int = MAX_UNSENT_BYTES,
    ) -> None:
        self._data_link = data_link
        self._uplink = uplink
        self._on_stalled = on_stalled
        self._max_unsent_bytes = max_unsent_bytes
        self._routes: dict[int, _Route] = {}
        self._standbys: dict[int, dict[str, tuple[int, int]]] = {}
        """By pipeline and device, the epoch and stage it was loaded for."""
        self._handlers: dict[int, OnFrame] = {}
        self._default_handler: OnFrame | None = None
        self._passing: dict[int, OnPass] = {}
        self.dropped: Counter[str] = Counter()
        """Frames nobody wanted, by cause."""

    def set_handler(self, on_frame: OnFrame, pipeline: int | None = None) -> None:
        """Register who gets TOKENS and NACK frames: of one pipeline, or of all that have no handler of their own.

        Called on the event loop, with decoded frames of the current epoch only; it must not block or raise.
        """
        if pipeline is None:
            self._default_handler = on_frame
        else:
            self._handlers[pipeline] = on_frame

    def set_pass_handler(self, on_pass: OnPass, pipeline: int) -> None:
        """Register who hears when a step of a pipeline goes on from one stage to the next through here, as above."""
        self._passing[pipeline] = on_pass

    def set_route(self, pipeline: int, epoch: int, devices: Sequence[str]) -> None:
        """Let stage k of `pipeline` be `devices[k]` from now on; frames of other epochs are dropped."""
        former = self._routes.get(pipeline)
        goes_on = former is not None and len(former.devices) == len(devices)
        counted = former.bytes if former and goes_on else StageBytes([0] * len(devices), [0] * len(devices))
        self._routes[pipeline] = _Route(epoch, tuple(devices), counted)

    def set_standby(self, pipeline: int, device: str, epoch: int, stage: int) -> None:
        """Let a device hold a stage that is not on the route: it may have its link, and its frames are dropped."""
        self._standbys.setdefault(pipeline, {})[device] = (epoch, stage)

    def drop_standby(self, pipeline: int, device: str) -> None:
        """A device holds no such stage any more."""
        self._standbys.get(pipeline, {}).pop(device, None)

    def reserves(self, device: str) -> dict[int, list[str]]:
        """Return who holds a device's stages in reserve, or is loading them, by the pipeline it serves in."""
        found = {}
        for pipeline, route in self._routes.items():
            if device in route.devices:
                stage = route.devices.index(device)
                found[pipeline] = [one for one, held in self._standbys.get(pipeline, {}).items() if held[1] == stage]
        return found

    def bytes_of(self, pipeline: int) -> StageBytes:
        """Return the bytes of a pipeline's steps so far; nothing for one without a route."""
        route = self._routes.get(pipeline)
        return StageBytes([], []) if route is None else route.bytes

    def clear_route(self, pipeline: int) -> None:
        """Forget a pipeline: its frames are dropped, its handler is released."""
        self._routes.pop(pipeline, None)
        self._standbys.pop(pipeline, None)
        self._handlers.pop(pipeline, None)
        self._passing.pop(pipeline, None)

    def holds(self, device: str, pipeline: int, epoch: int, stage: int) -> bool:
        """Whether a device holds that stage in the present route, or in reserve."""
        if self._standbys.get(pipeline, {}).get(device) == (epoch, stage):
            return True
        route = self._routes.get(pipeline)
        return route is not None and route.epoch == epoch and route.devices[stage : stage + 1] == (device,)

    def submit(self, pipeline: int, data: bytes) -> None:
        """Send a frame to stage 0. Raises NoRoute; a stage that cannot be reached answers with a NACK, later."""
        route = self._routes.get(pipeline)
        if route is None:
            raise NoRoute(f"Pipeline {pipeline} is not deployed; deploy it first.")
        self._forward(route, peek(data), 0, data)

    def take(self, device: str, data: bytes) -> None:
        """Handle a frame that `device` sent on its data link. Raises FrameError for what is not a frame of ours."""
        header = peek(data)
        route = self._routes.get(header.pipeline)
        if header.type not in (FrameType.STEP, FrameType.TOKENS, FrameType.NACK):
            raise FrameMalformed(f"A {header.type.name} frame does not belong on a data link.")
        if route is None or header.epoch != route.epoch:
            self._drop("stale", device, header)
        elif header.type is FrameType.STEP:
            if 1 <= header.stage < len(route.devices) and route.devices[header.stage - 1] == device:
                route.bytes.received[header.stage - 1] += len(data)
                self._forward(route, header, header.stage, data)
                if (on_pass := self._passing.get(header.pipeline)) is not None:
                    on_pass(header.step, header.stage)
            else:
                self._drop("not_its_stage", device, header)
        elif self._may_answer(route, header, device):
            route.bytes.received[header.stage] += len(data)
            self._deliver(header.pipeline, decode(data))
        else:
            self._drop("not_its_stage", device, header)

    @staticmethod
    def _may_answer(route: _Route, header: Peek, device: str) -> bool:
        stages = len(route.devices)
        is_tail = header.stage == stages - 1
        holds_stage = header.stage < stages and route.devices[header.stage] == device
        return holds_stage and (header.type is FrameType.NACK or is_tail)

    def _forward(self, route: _Route, header: Peek, stage: int, data: bytes) -> None:
        device = route.devices[stage]
        uplink = self._uplink(device, header.pipeline)
        link = self._data_link(device)
        if link is None:
            self._answer_gone(header, stage)
            return
        try:
            if uplink is not None and uplink.stage is not None and uplink.stage.epoch == header.epoch:
                uplink.post(data, self._max_unsent_bytes)
            else:
                post(link, data, self._max_unsent_bytes)
            route.bytes.sent[stage] += len(data)
        except Unsendable as error:
            self._answer_gone(header, stage)
            if error.stalled:
                self._on_stalled(device)

    def _answer_gone(self, header: Peek, stage: int) -> None:
        """Answer in place of a stage that cannot be reached; not before the caller of `submit` has returned."""
        table = msgspec.msgpack.encode(
            Nack(stage, "gone", f"The PC of stage {stage} cannot be reached; the pipeline is planned again.")
        )
        nack = Frame(FrameType.NACK, header.pipeline, header.epoch, header.step, header.sequence, stage, table, None)
        asyncio.get_running_loop().call_soon(self._deliver_if_current, nack)

    def _deliver_if_current(self, frame: Frame) -> None:
        route = self._routes.get(frame.pipeline)
        if route is not None and route.epoch == frame.epoch:
            self._deliver(frame.pipeline, frame)

    def _deliver(self, pipeline: int, frame: Frame) -> None:
        handler = self._handlers.get(pipeline, self._default_handler)
        if handler is not None:
            handler(pipeline, frame)

    def _drop(self, cause: DropCause, device: str, header: Peek) -> None:
        count = self.dropped[cause]
        self.dropped[cause] = count + 1
        # Stale frames are normal after a re-plan; a frame for somebody else's stage is not.
        level = logging.INFO if cause == "stale" else logging.WARNING
        if count % LOG_EVERY == 0:
            log.log(
                level, "Dropped a %s frame of device %s (%s): pipeline %d, epoch %d, stage %d; %d so far.",
                header.type.name, device, cause, header.pipeline, header.epoch, header.stage, count + 1,
            )  # fmt: skip
