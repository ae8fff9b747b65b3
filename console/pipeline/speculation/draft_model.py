"""The draft model: its own library, run whole by one child process on the console machine.

The event loop only passes small frames; the child computes. A model that is absent, dead or slow costs no answer
anything but its drafts: nobody waits longer than WAIT_S for it, and it is started again after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from agent.link.frames import Frame, FrameError, FrameType, decode, encode
from agent.stage.errors import StageError
from agent.stage.process import StageProcess
from agent.stage.types import Nack, Sampling, StageSpec, StepTable, StreamId
from console.pipeline.speculation.board import DraftBoard, DraftStep
from console.pipeline.speculation.counts import Fading

log = logging.getLogger(__name__)

WAIT_S = 0.5
"""How long a stream waits for its drafts; then it goes on with those that there are."""
STEP_S = 10.0
"""A child that needs longer for one step is stuck."""
FIRST_PAUSE_S, LAST_PAUSE_S = 5.0, 300.0
"""How long after its end the child is started again; each start in a row that fails doubles it."""
SPEED_KEPT = 0.8

Clock = Callable[[], float]


class _Failed(Exception):
    """The child cannot go on; the message is a sentence."""


class _Asked(NamedTuple):
    at_s: float
    timer: asyncio.TimerHandle


class DraftModel:
    """A proposer whose guesses come from a smaller model. Everything on one event loop; `start`, then `close`.

    It samples with a stream's own parameters, seed and positions, so that where both models think alike the same noise
    makes them say the same.
    """

    kinds = 1

    def __init__(
        self,
        name: str,
        spec: StageSpec,
        *,
        vocab_size: int,
        stops: Collection[int] = (),
        pause_s: float = FIRST_PAUSE_S,
        clock: Clock = time.monotonic,
    ) -> None:
        """`spec` covers all layers of the draft's library; `vocab_size` and `stops` (EOS ids) are the target's.

        After `pause_s` the child is started again when it ended, later if it ends at once.
        """
        self.name = name
        self._spec = spec
        self._pause_s = pause_s
        self._clock = clock
        self._board = DraftBoard(vocab_size=vocab_size, context_tokens=spec.context_tokens, stops=stops)
        self._asked: dict[StreamId, _Asked] = {}
        self._speed = Fading(SPEED_KEPT)
        self._problem = "The draft model is being loaded."
        self._work = asyncio.Event()
        self._reply: asyncio.Future[Frame] | None = None
        self._ended = ""
        self._task: asyncio.Task[None] | None = None
        self._on_ready: Callable[[], None] = lambda: None
        self._steps = 0

    @property
    def draft_s(self) -> float:
        return self._speed.mean

    @property
    def problem(self) -> str:
        return self._problem

    def start(self, on_ready: Callable[[], None]) -> None:
        """Start the child in the background.

        `on_ready` is called when the model can be asked or cannot any more, and when a guess was made or given up.
        """
        self._on_ready = on_ready
        self._task = asyncio.create_task(self._keep_up(), name=f"draft model {self.name}")

    async def close(self) -> None:
        """End the child. Safe to call twice."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._give_up("The draft model was taken down.")

    def begin(self, stream: StreamId, ids: Sequence[int], sampling: Sampling) -> None:
        self._board.begin(stream, ids, sampling)
        self._work.set()

    def kind(self, stream: StreamId, ids: Sequence[int]) -> int | None:
        if self._problem:
            return None
        near = self._board.can_guess(stream, ids)
        self._work.set()
        return 0 if near else None

    def propose(self, stream: StreamId, ids: Sequence[int], count: int) -> Sequence[int] | None:
        if stream in self._asked:
            if self._board.asked(stream):
                return None
            self._asked.pop(stream).timer.cancel()
            return self._board.drafts(stream)
        if self._problem:
            return ()
        self._board.ask(stream, ids, count)
        timer = asyncio.get_running_loop().call_later(WAIT_S, self._expire, stream)
        self._asked[stream] = _Asked(self._clock(), timer)
        self._work.set()
        return None

    def forget(self, stream: StreamId) -> None:
        self._board.forget(stream)
        if (asked := self._asked.pop(stream, None)) is not None:
            asked.timer.cancel()
        self._work.set()

    def _expire(self, stream: StreamId) -> None:
        self._measure(stream)
        self._board.stop(stream)
        self._on_ready()

    def _measure(self, stream: StreamId) -> None:
        asked = self._asked.get(stream)
        if asked is not None:
            self._speed.add((self._clock() - asked.at_s) / max(1, len(self._board.drafts(stream))))

    async def _keep_up(self) -> None:
        """Run the child; when it ends say why, and start it again after a pause."""
        pause_s = self._pause_s
        while True:
            try:
                async with self._child() as child:
                    pause_s = self._pause_s
                    await self._serve(child)
            except (StageError, _Failed) as error:
                log.warning("The draft model %s gives no drafts: %s", self.name, error)
                self._give_up(f"The draft model is out: {error}")
            except Exception:  # the edge of a task nobody awaits: answers go on without drafts, the log has the cause
                log.exception("The draft model %s failed unexpectedly.", self.name)
                self._give_up("The draft model failed unexpectedly; the console's log says why.")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    @contextlib.asynccontextmanager
    async def _child(self) -> AsyncIterator[StageProcess]:
        self._ended = ""
        child = await StageProcess.start(self._spec, on_frame=self._on_frame, on_exit=self._on_exit)
        try:
            yield child
        finally:
            await child.close()

    async def _serve(self, child: StageProcess) -> None:
        """Run steps while there is work. Raises _Failed or StageGone when the child cannot go on."""
        self._board.restart()
        self._problem = ""
        self._on_ready()
        while True:
            step = self._board.next_step()
            if step is None:
                self._work.clear()
                await self._work.wait()
                if self._ended:
                    raise _Failed(self._ended)
                continue
            complete = self._board.took(await self._run(child, step))
            for stream in complete:
                self._measure(stream)
            if complete:
                self._on_ready()

    async def _run(self, child: StageProcess, step: DraftStep) -> list[int]:
        self._steps += 1
        self._reply = asyncio.get_running_loop().create_future()
        await child.send(self._frame(step))
        try:
            async with asyncio.timeout(STEP_S):
                frame = await self._reply
        except TimeoutError:
            raise _Failed(f"It did not answer a step within {STEP_S:.0f} s.") from None
        finally:
            self._reply = None
        if frame.type is FrameType.NACK:
            raise _Failed(msgspec.msgpack.decode(frame.table, type=Nack).message)
        ids: list[int] = [] if frame.tensor is None else frame.tensor.reshape(-1).tolist()
        if frame.step != self._steps or len(ids) != sum(row.wants for row in step.rows):
            raise _Failed("It answered a step with something else than its tokens.")
        return ids

    def _frame(self, step: DraftStep) -> bytes:
        table = msgspec.msgpack.encode(StepTable(step.rows, step.release))
        tensor = np.array(step.tokens, np.int64) if step.tokens else None
        spec = self._spec
        return encode(
            Frame(FrameType.STEP, spec.pipeline, spec.epoch, self._steps, self._steps & 0xFFFFFFFF, 0, table, tensor)
        )

    def _on_frame(self, data: bytes) -> None:
        if self._reply is None or self._reply.done():
            return
        try:
            self._reply.set_result(decode(data))
        except FrameError as error:
            self._reply.set_exception(_Failed(f"It wrote bytes that are not a frame: {error}"))

    def _on_exit(self, cause: str) -> None:
        self._ended = cause
        self._work.set()
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(_Failed(cause))

    def _give_up(self, problem: str) -> None:
        """Say what is wrong and let everybody go on who waits."""
        self._problem = problem
        for stream in self._asked:
            self._board.stop(stream)
        self._on_ready()
