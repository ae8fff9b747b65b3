"""One attempt at a build, from the start of the exporter's process to the published library."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import psutil

from agent.threads import finish_in_thread
from console.api.admin.build_types import Build, BuildRequest, Evaluation
from console.builds import progress
from console.builds.book import Book
from console.builds.events import event_of, line_of
from console.builds.exporter import GENTLE_S, Child, Exporter, started_of
from console.errors import BuildRefused

log = logging.getLogger(__name__)

MEMORY_EVERY_S = 2.0

Publish = Callable[[Build], Awaitable[None]]
"""Makes a finished library one that can be deployed. Raises BuildRefused."""


class Attempt:
    """Works on one build. `run` once; `stop` and `kill` at any time."""

    def __init__(
        self,
        build_id: str,
        book: Book,
        exporter: Exporter,
        publish: Publish,
        now_s: Callable[[], float] = time.time,
        *,
        in_use: Callable[[BuildRequest], str],
    ) -> None:
        """`in_use` says why, by the time its turn comes, a build must not replace what is there; empty: it may."""
        self.build_id = build_id
        self._in_use = in_use
        self._book, self._exporter, self._publish, self._now_s = book, exporter, publish, now_s
        self._wish: progress.Wish = ""
        self._child: Child | None = None
        self._unwritten: list[str] = []
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Build, evaluate, publish. What goes wrong is in the build afterwards."""
        try:
            await self._run()
        except Exception as error:  # the edge of a task nobody awaits: the build says that it failed, the log why
            log.exception("The build %s failed unexpectedly.", self.build_id)
            message = f"The console failed at this build ({type(error).__name__}); see its log, then resume."
            await self._put(state="failed", message=message, ended_s=self._now_s(), process_id=0)
        finally:
            await self._write_notes()

    async def stop(self, wish: progress.Wish) -> None:
        """End after the layer it is at, if that takes no longer than a minute."""
        self._wish = wish
        if self._child is not None:
            await self._child.stop(GENTLE_S)

    def kill(self, wish: progress.Wish) -> None:
        """End at once. That the service ends does not undo what was asked for before."""
        self._wish = (self._wish or wish) if wish == "interrupt" else wish
        if self._child is not None:
            self._child.kill()

    @property
    def _build(self) -> Build:
        return self._book.find(self.build_id)

    def _is_stopped(self) -> bool:
        return bool(self._wish)

    async def _put(self, **changes: object) -> None:
        await self._book.put(msgspec.structs.replace(self._build, **changes))

    async def _run(self) -> None:
        if self._build.state != "queued":
            return  # it was paused or cancelled in the moment its turn came
        if obstacle := self._in_use(self._build.request):
            self._note(obstacle)
            await self._put(state="failed", message=obstacle, ended_s=self._now_s())
            return
        await self._book.put(progress.begun(self._build, self._now_s()))
        build = self._build
        exit_code, last_words = await self._follow(
            partial(self._exporter.build, build.request, build.target), self._hear
        )
        ended = progress.ended(self._build, exit_code, self._wish, last_words, self._now_s())
        self._note(ended.message or f"The library is complete after {ended.spent_s:.0f} s.")
        await self._write_notes()
        await self._book.put(ended)
        if exit_code or not ended.digest:
            return
        if build.request.evaluate:
            await self._evaluate()
        await self._put(state="built", phase="done", message="", ended_s=self._now_s(), process_id=0)
        if build.request.publish and self._wish != "interrupt":
            try:
                await self._publish(self._build)
            except BuildRefused as error:
                await self._put(message=str(error))

    async def _evaluate(self) -> None:
        """Measure the library against its source. That this fails costs the figures, not the library."""
        build = self._build
        free_bytes = psutil.virtual_memory().available
        found: list[Evaluation] = []
        problem = ""
        if self._is_stopped():
            problem = "It was left out, because the build was stopped."
        elif build.evaluate_memory_bytes > free_bytes:
            problem = (
                f"It was left out: it needs about {build.evaluate_memory_bytes / 1e9:.1f} GB of memory and "
                f"{free_bytes / 1e9:.1f} GB were free."
            )
        else:
            await self._put(phase="evaluating", state="running", ended_s=None)
            exit_code, last_words = await self._follow(
                partial(self._exporter.evaluate, build.request), partial(self._take_figures, found)
            )
            if self._is_stopped():
                problem = "It was stopped before it was done."
            elif exit_code or not found:
                problem = last_words or f"It ended unexpectedly (exit code {exit_code})."
        await self._put(evaluation=found[0] if found else None, evaluation_problem="" if found else problem)

    async def _take_figures(self, found: list[Evaluation], line: bytes) -> None:
        try:
            found.append(msgspec.json.decode(line, type=Evaluation))
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._note(line.decode("utf-8", "replace"))

    async def _hear(self, line: bytes) -> None:
        event = event_of(line)
        if event is None:
            self._note(line.decode("utf-8", "replace"))
            return
        self._note(line_of(event))
        await self._write_notes()
        await self._book.put(progress.heard(self._build, event, self._now_s()))

    async def _follow(
        self, start: Callable[[], Awaitable[Child]], hear: Callable[[bytes], Awaitable[None]]
    ) -> tuple[int, str]:
        """Run a child to its end; returns its exit code and its last words."""
        try:
            child = self._child = await start()
        except OSError as error:
            return 1, f"The exporter cannot be started ({error.strerror or error})."
        watching = asyncio.create_task(self._watch_memory(child))
        try:
            await self._put(process_id=child.process_id, process_started_s=started_of(child.process_id))
            if self._is_stopped():  # it came while the process was started
                child.kill()
            async for line in child.lines(self._note):
                await hear(line)
            return await child.wait(), child.last_words
        finally:
            watching.cancel()
            child.kill()
            await child.wait()
            self._child = None

    async def _watch_memory(self, child: Child) -> None:
        while True:
            memory_bytes = child.memory_bytes()
            self._book.see_memory(self.build_id, memory_bytes, max(memory_bytes, self._build.memory_peak_bytes))
            await self._write_notes()
            await asyncio.sleep(MEMORY_EVERY_S)

    def _note(self, line: str) -> None:
        at = time.strftime("%H:%M:%S", time.localtime(self._now_s()))
        self._unwritten.append(f"{at} {line.strip()}")

    async def _write_notes(self) -> None:
        """Add to the log what was noted meanwhile; the exporter may say much, and the disk may be slow."""
        async with self._writing:
            lines, self._unwritten = self._unwritten, []
            if lines:
                await finish_in_thread(partial(self._book.records.note, self.build_id, lines))
