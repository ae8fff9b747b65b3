"""The stages of one session: load, feed, unload, and report what becomes of them. Event loop only.

A frame costs a header, a dictionary look-up and a write each way; everything else is the child's business.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from agent.devices import memory_budget_bytes
from agent.link.closing import LinkDown
from agent.link.fetch import FetchDamaged, Fetcher, FetchError
from agent.link.frames import Frame, FrameMalformed, FrameType, Peek, encode, peek
from agent.link.messages import FromAgent, LoadStage, StageFailed, StageProgress, StageReady
from agent.link.store import FileDamaged, ManifestBad, Store, StoreError
from agent.settings import AgentSettings, LoadedStage
from agent.stage.errors import StageError, StageGone, StageLoadError
from agent.stage.types import Nack, StageReport, StageSpec
from shard_export.library.manifest import Manifest

log = logging.getLogger(__name__)

PROGRESS_EVERY_S = 0.25


OnChildFrame = Callable[[bytes], None]
OnExit = Callable[[str], None]


class Child(Protocol):
    """A stage's child process, as far as this module knows it; `agent.stage.process.StageProcess` is one."""

    report: StageReport

    async def send(self, frame: bytes) -> None:
        """Pass one frame on; waits only when the pipe is full. Raises StageGone."""
        ...

    async def close(self) -> None:
        """End the process and wait for it."""
        ...


class StartChild(Protocol):
    """Start a child and wait until its stage is ready. Raises StageError; cancelling leaves no child."""

    async def __call__(self, spec: StageSpec, *, on_frame: OnChildFrame, on_exit: OnExit) -> Child: ...


class StageLoader:
    """What loading needs and outlives a session: the store, the fetcher, the settings, how to start a child."""

    def __init__(self, store: Store, fetcher: Fetcher, settings: AgentSettings, start_child: StartChild) -> None:
        self._store = store
        self._fetcher = fetcher
        self._settings = settings
        self._start_child = start_child
        self._loads = itertools.count(1)

    def folder_name(self, request: LoadStage) -> str:
        """Name a load's own folder of links: the next load of the same stage must not meet the last one's clean-up."""
        return f"{request.library_digest[:16]}-{request.first}-{request.last}-load{next(self._loads)}"

    async def load(
        self,
        request: LoadStage,
        folder_name: str,
        *,
        on_progress: Callable[[StageProgress], None],
        on_frame: OnChildFrame,
        on_exit: OnExit,
    ) -> Child:
        """Fetch what is missing and start the child. Raises StageLoadError with the code for the console."""
        throttle = _Throttle(request, on_progress)
        try:
            manifest, folder = await self._fetcher.fetch_range(
                request.library_digest, request.first, request.last, folder_name, throttle.fetched
            )
        except (FetchDamaged, FileDamaged, ManifestBad) as error:
            raise StageLoadError("damaged", str(error)) from error
        except (FetchError, StoreError, LinkDown) as error:
            raise StageLoadError("fetch", str(error)) from error
        self._check_memory(manifest, request)
        on_progress(StageProgress(request.pipeline, request.epoch, request.stage, "load", 0, 1))
        spec = StageSpec(
            folder=str(folder),
            first=request.first,
            last=request.last,
            pipeline=request.pipeline,
            epoch=request.epoch,
            stage=request.stage,
            engine=request.engine,
            numerics=request.numerics,
            device=request.device,
            context_tokens=request.context_tokens,
            streams=request.streams,
            threads=self._settings.threads,
            cores=self._settings.cores,
            cache=request.cache,
            kv_bytes=request.kv_bytes,
        )
        return await self._start_child(spec, on_frame=on_frame, on_exit=on_exit)

    async def forget(self, folder_name: str) -> None:
        """Delete a load's folder of links; the files stay."""
        await asyncio.to_thread(self._store.discard_stage, folder_name)

    def _check_memory(self, manifest: Manifest, request: LoadStage) -> None:
        needed = stage_bytes(manifest, request)
        budget = memory_budget_bytes(self._settings.memory_mb)
        if needed > budget:
            raise StageLoadError(
                "memory",
                f"layers {request.first} to {request.last} need about {needed >> 20} MiB, but only {budget >> 20} MiB "
                "may be used here; plan fewer layers or raise memory_mb.",
            )


def stage_bytes(manifest: Manifest, request: LoadStage) -> int:
    """Estimate a stage's memory: its weights, and the cache as asked for or of all its streams at full length."""
    units = manifest.units_of_range(request.first, request.last)
    weights = sum(unit.size_bytes for unit in units)
    if request.kv_bytes:
        return weights + request.kv_bytes
    element_bytes = 4 if request.numerics == "exact" else 2
    per_token = sum(
        unit.attention.kv_heads * (unit.attention.k_head_size + unit.attention.v_head_size) * element_bytes
        for unit in units
        if unit.attention is not None
    )
    return weights + per_token * request.context_tokens * request.streams


class Stages:
    """The stages of one session, by pipeline. `say` sends a control message, `send_frame` a frame; neither waits."""

    def __init__(
        self,
        loader: StageLoader,
        say: Callable[[FromAgent], None],
        send_frame: OnChildFrame,
        on_change: Callable[[], None],
    ) -> None:
        self._loader = loader
        self._say = say
        self._send_frame = send_frame
        self._on_change = on_change
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._unfinished: set[asyncio.Task[None]] = set()
        """Also those whose stage has ended and that only clean up."""
        self._live: dict[int, tuple[LoadStage, Child]] = {}

    def loaded(self) -> list[LoadedStage]:
        """List the stages that are ready."""
        return [
            LoadedStage(
                request.pipeline, request.stage, request.first, request.last, child.report.engine, child.report.device
            )
            for request, child in self._live.values()
        ]

    def load(self, request: LoadStage) -> None:
        """Begin to load a stage; one of the same pipeline is ended first."""
        before = self._tasks.get(request.pipeline)
        task = asyncio.create_task(self._live_of(request, before), name=f"stage-{request.pipeline}")
        self._tasks[request.pipeline] = task
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)

    def unload(self, pipeline: int) -> None:
        """End a pipeline's stage, or its loading. Nothing to do for one that is not here."""
        task = self._tasks.get(pipeline)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """End every stage and wait for the children."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._unfinished, return_exceptions=True)

    async def take(self, data: bytes) -> None:
        """Pass a STEP on to its stage. Raises FrameError for what is none; answers NACK when it cannot be done."""
        header = peek(data)
        if header.type is not FrameType.STEP:
            raise FrameMalformed(f"A {header.type.name} frame does not belong on a data link to an agent.")
        live = self._live.get(header.pipeline)
        if live is None or live[0].epoch != header.epoch or live[0].stage != header.stage:
            self._refuse(header, "stale", "This PC does not hold the stage in this plan epoch.")
            return
        try:
            await live[1].send(data)
        except StageGone as error:
            self._refuse(header, "engine", str(error))

    def _refuse(self, header: Peek, code: str, message: str) -> None:
        table = msgspec.msgpack.encode(Nack(header.stage, code, message))
        nack = Frame(
            FrameType.NACK, header.pipeline, header.epoch, header.step, header.sequence, header.stage, table, None
        )
        self._send_frame(encode(nack))

    async def _live_of(self, request: LoadStage, before: asyncio.Task[None] | None) -> None:
        """A stage's whole life: wait for its predecessor's end, load, serve until the child ends or is unloaded."""
        task = asyncio.current_task()
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        child: Child | None = None
        folder_name = self._loader.folder_name(request)
        try:
            if before is not None:
                before.cancel()
                await asyncio.gather(before, return_exceptions=True)
            child = await self._loader.load(
                request,
                folder_name,
                on_progress=self._say,
                on_frame=self._send_frame,
                on_exit=lambda cause: None if ended.done() else ended.set_result(cause),
            )
            self._live[request.pipeline] = (request, child)
            self._say(StageReady(request.pipeline, request.epoch, request.stage, child.report))
            self._on_change()
            self._fail(request, "died", await ended)
        except StageLoadError as error:
            self._fail(request, error.code, str(error))
        except StageError as error:
            self._fail(request, "load", str(error))
        except Exception as error:
            log.exception("Loading stage %d of pipeline %d failed.", request.stage, request.pipeline)
            self._fail(request, "load", f"the agent failed ({type(error).__name__}); look at its log.")
        finally:
            live = self._live.get(request.pipeline)
            if live is not None and live[0] is request:
                del self._live[request.pipeline]
            if child is not None:
                await child.close()
            if self._tasks.get(request.pipeline) is task:
                del self._tasks[request.pipeline]
            self._on_change()
            await self._loader.forget(folder_name)

    def _fail(self, request: LoadStage, code: str, message: str) -> None:
        log.info("Stage %d of pipeline %d failed (%s): %s", request.stage, request.pipeline, code, message)
        self._say(StageFailed(request.pipeline, request.epoch, request.stage, code, message))


class _Throttle:
    """Tells progress a few times a second instead of with every chunk."""

    def __init__(self, request: LoadStage, on_progress: Callable[[StageProgress], None]) -> None:
        self._request = request
        self._on_progress = on_progress
        self._told_s = 0.0

    def fetched(self, done: int, total: int) -> None:
        now_s = asyncio.get_running_loop().time()
        if done < total and now_s - self._told_s < PROGRESS_EVERY_S:
            return
        self._told_s = now_s
        request = self._request
        self._on_progress(StageProgress(request.pipeline, request.epoch, request.stage, "fetch", done, total))
