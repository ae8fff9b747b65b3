"""The stages of one session: load, feed, unload, and report what becomes of them. Event loop only.

A frame costs a header, a dictionary look-up and a write each way; everything else is the child's business.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from agent.link.frames import FrameMalformed, FrameType, peek
from agent.link.messages import FromAgent
from agent.link.stage_messages import (
    AdvanceEpoch,
    CutDirect,
    DirectRoute,
    LoadStage,
    StageFailed,
    StageProgress,
    StageReady,
)
from agent.live import LiveStage, SendFrame, forwarder, nack_for
from agent.loading import StageLoader
from agent.logs.about import about
from agent.settings import LoadedStage
from agent.stage.errors import StageError, StageGone, StageLoadError
from agent.stage.gate import Gate
from agent.stage.types import DirectSpec, Epoch, PipelineId
from agent.volunteer.duty import Volunteer
from agent.volunteer.surroundings import StagesPhase
from agent.watchdog import LOOK_S, Pulse, stall_of, waits_for_the_pc

log = logging.getLogger(__name__)


class Stages:
    """The stages of one session, by pipeline. `say` sends a control message, `send_frame` a frame; neither waits."""

    def __init__(
        self,
        loader: StageLoader,
        say: Callable[[FromAgent], None],
        send_frame: SendFrame,
        on_change: Callable[[], None],
        *,
        direct: Callable[[LoadStage], DirectSpec | None],
        owner: Volunteer,
    ) -> None:
        """`direct` says what direct links a stage may have, `owner` when this PC works at all."""
        self._owner = owner
        self._loader = loader
        self._say = say
        self._send_frame = send_frame
        self._on_change = on_change
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._unfinished: set[asyncio.Task[None]] = set()
        """Also those whose stage has ended and that only clean up."""
        self._live: dict[int, LiveStage] = {}
        self._direct = direct
        self._loading: dict[int, tuple[LoadStage, StageProgress]] = {}

    def loaded(self) -> list[LoadedStage]:
        """List the stages that are ready."""
        return [
            LoadedStage(
                live.request.pipeline,
                live.request.stage,
                live.request.first,
                live.request.last,
                live.child.report.engine,
                live.child.report.device,
            )
            for live in self._live.values()
        ]

    def load(self, request: LoadStage) -> None:
        """Begin to load a stage; one of the same pipeline is ended first.

        Refused while the owner needs this PC, and on a device that may not be used.
        """
        refusal = self._owner.refusal(request.device)
        if refusal:
            self._fail(request, "held", refusal)
            return
        before = self._tasks.get(request.pipeline)
        with about(pipeline=request.pipeline, stage=request.stage):
            task = asyncio.create_task(self._live_of(request, before), name=f"stage-{request.pipeline}")
        self._tasks[request.pipeline] = task
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)

    def advance(self, order: AdvanceEpoch) -> None:
        """Let a stage go on in another epoch. Refused while the owner needs this PC, and where there is none."""
        live = self._live.get(order.pipeline)
        refusal = self._owner.refusal(live.request.device if live is not None else "")
        if refusal:
            self._fail(order, "held", refusal)
        elif live is None or live.request.epoch != order.former:
            self._fail(order, "stale", "this PC does not hold the stage of that epoch; load it.")
        else:
            try:
                live.advance(order)
            except StageGone as error:
                self._fail(order, "died", str(error))

    def unload(self, pipeline: int) -> None:
        """End a pipeline's stage, or its loading. Nothing to do for one that is not here."""
        task = self._tasks.get(pipeline)
        if task is not None:
            _end(task)

    def route(self, message: DirectRoute | CutDirect) -> None:
        """Open, renew or close direct links."""
        live = self._live.get(message.pipeline)
        if live is not None:
            live.order(message)

    @property
    def phase(self) -> StagesPhase:
        """The most advanced of all stages; `ending` are children that were told to end."""
        if self._live:
            return "ready"
        if any(not task.cancelling() for task in self._tasks.values()):
            return "loading"
        return "ending" if self._unfinished else "none"

    async def idle(self) -> None:
        """Wait until no stage is ready or being loaded."""
        while tasks := [task for task in self._tasks.values() if not task.cancelling()]:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

    def children(self) -> list[tuple[int, str]]:
        """List the process of each stage that is ready, and its device."""
        return [(live.child.pid, live.request.device) for live in self._live.values()]

    def epochs(self) -> list[tuple[PipelineId, Epoch]]:
        """List what is loaded here."""
        return [(live.request.pipeline, live.request.epoch) for live in self._live.values()]

    def progress(self) -> list[tuple[LoadStage, StageProgress]]:
        """List the loads under way."""
        return list(self._loading.values())

    async def close(self) -> None:
        """End every stage and wait until its process is gone, and its memory with it."""
        for task in self._tasks.values():
            _end(task)
        await asyncio.gather(*self._unfinished, return_exceptions=True)

    def take(self, data: bytes) -> asyncio.Future[None] | None:
        """Pass a relayed STEP on to its stage; a future: nothing more, please, until it is done.

        Raises FrameError for what is no STEP; answers NACK when it cannot be done.
        """
        header = peek(data)
        if header.type is not FrameType.STEP:
            raise FrameMalformed(f"A {header.type.name} frame does not belong on a data link to an agent.")
        live = self._live.get(header.pipeline)
        if live is None or not live.holds(header.pipeline, header.epoch, header.stage):
            self._send_frame(nack_for(header, "stale", "This PC does not hold the stage in this plan epoch."))
            return None
        return live.feed(header, data)

    async def _live_of(self, request: LoadStage, before: asyncio.Task[None] | None) -> None:
        """A stage's whole life: wait for its predecessor's end, load, serve until the child ends or is unloaded."""
        task = asyncio.current_task()
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        live: LiveStage | None = None
        gate: Gate | None = None
        folder_name = self._loader.folder_name(request)
        try:
            if before is not None:
                _end(before)
                await asyncio.gather(before, return_exceptions=True)
            gate = self._owner.gates.make()
            child = await self._loader.load(
                request,
                folder_name,
                direct=self._direct(request),
                gate=gate,
                on_progress=lambda progress: self._on_progress(request, progress),
                on_frame=forwarder(self._send_frame, self._say),
                on_exit=lambda cause: None if ended.done() else ended.set_result(cause),
            )
            live = self._live[request.pipeline] = LiveStage(request, child, gate, self._send_frame)
            self._loading.pop(request.pipeline, None)
            self._say(StageReady(request.pipeline, request.epoch, request.stage, child.report))
            self._on_change()
            cause = await self._end_of(live, ended)
            self._fail(live.request, "died", cause)
            self._owner.fault(cause)
        except StageLoadError as error:
            self._fail(request, error.code, str(error))
            if error.code == "died":
                self._owner.fault(str(error))
        except StageError as error:
            self._fail(request, "load", str(error))
        except Exception as error:
            log.exception("Loading stage %d of pipeline %d failed.", request.stage, request.pipeline)
            self._fail(request, "load", f"the agent failed ({type(error).__name__}); look at its log.")
        finally:
            if live is not None:
                if self._live.get(request.pipeline) is live:
                    del self._live[request.pipeline]
                await live.child.close()
                self._owner.contributed(live.gate)
            if gate is not None:
                self._owner.gates.remove(gate)
            self._loading.pop(request.pipeline, None)
            if self._tasks.get(request.pipeline) is task:
                del self._tasks[request.pipeline]
            self._on_change()
            await self._loader.forget(folder_name)

    async def _end_of(self, live: LiveStage, ended: asyncio.Future[str]) -> str:
        """Wait until the child ends, or does not get on any more; returns why."""
        pulse = Pulse()
        while not (stall := stall_of(live.gate, time.monotonic_ns())):
            await asyncio.wait({ended}, timeout=LOOK_S)
            if ended.done():
                return ended.result()
            silent = pulse.look(live.gate.beat_ns)
            if pulse.is_frozen(starved=silent > 0 and waits_for_the_pc(live.child.pid)):
                return f"The stage's process was frozen for {silent * LOOK_S:.1f} s and was ended."
        return stall

    def _on_progress(self, request: LoadStage, progress: StageProgress) -> None:
        self._loading[request.pipeline] = request, progress
        self._say(progress)

    def _fail(self, request: LoadStage | AdvanceEpoch, code: str, message: str) -> None:
        log.info("Stage %d of pipeline %d failed (%s): %s", request.stage, request.pipeline, code, message)
        self._say(StageFailed(request.pipeline, request.epoch, request.stage, code, message))


def _end(task: asyncio.Task[None]) -> None:
    """Cancel a stage's task once: a second time would cut its cleaning up short."""
    if not task.cancelling():
        task.cancel()
