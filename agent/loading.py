"""From a LoadStage message to a running child process: fetch what is missing, check the memory, start it.

Event loop only; whatever goes wrong becomes a StageLoadError with the code the console is told.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from agent.link.closing import LinkDown
from agent.link.errors import SignatureRefused
from agent.link.fetch import Fetcher
from agent.link.manifests import files_beside
from agent.link.messages import LayerRange
from agent.link.stage_messages import LoadStage, StageProgress
from agent.link.store import Store
from agent.link.store_errors import FileDamaged, ManifestBad, StoreError
from agent.link.transfer import FetchDamaged, FetchError
from agent.settings import AgentSettings
from agent.stage.errors import StageLoadError
from agent.stage.gate import Gate
from agent.stage.types import DirectSpec, StageReport, StageSpec, UplinkSpec
from agent.tested import TestedEngines
from agent.threads import finish_in_thread
from agent.volunteer.memory_book import Load, MemoryBook
from shard_export.library.manifest import Manifest

log = logging.getLogger(__name__)

PROGRESS_EVERY_S = 0.25
_PLANS = "live plans"

OnChildFrame = Callable[[bytes], None]
OnExit = Callable[[str], None]
OnLayers = Callable[[str, Manifest, int, int], None]
"""Called with a library's digest, its manifest, and the first and the end of a range of its layers."""


class Child(Protocol):
    """A stage's child process, as far as this module knows it; `agent.stage.process.StageProcess` is one."""

    report: StageReport

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    def write(self, frame: bytes) -> bool:
        """Pass one frame on; False: the pipe is full, await `writable`. Raises StageGone."""
        ...

    async def writable(self) -> None:
        """Wait until the pipe takes frames again, or the child has ended."""
        ...

    async def close(self) -> None:
        """End the process and wait for it."""
        ...


class StartChild(Protocol):
    """Start a child and wait until its stage is ready. Raises StageError; cancelling leaves no child."""

    async def __call__(self, spec: StageSpec, *, on_frame: OnChildFrame, on_exit: OnExit) -> Child: ...


class StageLoader:
    """What loading needs and outlives a session: the store, the fetcher, the settings, how to start a child.

    `uplink` says how a child reaches the console by itself; `check` raises SignatureRefused for a library's
    digest and signature if the console did not sign it.
    """

    def __init__(
        self,
        store: Store,
        fetcher: Fetcher,
        settings: AgentSettings,
        start_child: StartChild,
        *,
        memory: MemoryBook,
        tested: TestedEngines,
        uplink: Callable[[], UplinkSpec],
        check: Callable[[str, bytes], None],
        on_layers: OnLayers = lambda digest, manifest, first, last: None,
        make_way: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`on_layers` hears of the layers of signed libraries that are here; `make_way` frees the PC for a stage."""
        self._make_way = make_way
        self._check = check
        self._on_layers = on_layers
        self._memory = memory
        self._tested = tested
        self._store = store
        self._fetcher = fetcher
        self._settings = settings
        self._start_child = start_child
        self._uplink = uplink
        self._loads = itertools.count(1)

    def folder_name(self, request: LoadStage) -> str:
        """Name a load's own folder of links: the next load of the same stage must not meet the last one's clean-up."""
        return f"{request.library_digest[:16]}-{request.first}-{request.last}-load{next(self._loads)}"

    async def load(
        self,
        request: LoadStage,
        folder_name: str,
        *,
        direct: DirectSpec | None,
        gate: Gate,
        on_progress: Callable[[StageProgress], None],
        on_frame: OnChildFrame,
        on_exit: OnExit,
    ) -> Child:
        """Fetch what is missing and start the child. Raises StageLoadError with the code for the console."""
        throttle = _Throttle(request, on_progress)
        try:
            self._check(request.library_digest, request.signature)
        except SignatureRefused as error:
            raise StageLoadError("unsigned", str(error)) from error
        if self._make_way is not None:
            await self._make_way()
        try:
            manifest, folder = await self._fetcher.fetch_range(
                request.library_digest, request.first, request.last, folder_name, throttle.fetched
            )
        except (FetchDamaged, FileDamaged, ManifestBad) as error:
            raise StageLoadError("damaged", str(error)) from error
        except (FetchError, StoreError, LinkDown) as error:
            raise StageLoadError("fetch", str(error)) from error
        self._on_layers(request.library_digest, manifest, request.first, request.last)
        wanted = wanted_by(manifest, request)
        if said := await asyncio.to_thread(self._memory.refusal, wanted):
            raise StageLoadError("memory", f"layers {request.first} to {request.last} {said}")
        on_progress(StageProgress(request.pipeline, request.epoch, request.stage, "load", 0, 1))
        spec = self._spec(request, folder, direct, gate)
        child = await self._start_child(spec, on_frame=on_frame, on_exit=on_exit)
        passed = {child.report.engine: child.report.tested}
        self._tested.learn(request.library_digest, request.device, request.numerics, passed)
        await self._measure(child, wanted)
        return child

    def _spec(self, request: LoadStage, folder: Path, direct: DirectSpec | None, gate: Gate) -> StageSpec:
        """Say what the child is to load, with what is this PC's own business."""
        return StageSpec(
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
            uplink=self._uplink(),
            direct=direct,
            gate=str(gate.path or ""),
            gentle=self._settings.volunteer == "away",
            tested=self._tested.windows(request.library_digest, request.device, request.numerics),
        )

    async def deliver(self, layers: LayerRange, signature: bytes) -> str:
        """Bring layers into the store, one at a time so that a stage's load need not wait long. Returns the problem."""
        try:
            self._check(layers.library_digest, signature)
            for layer in range(layers.first, layers.last):
                name = f"{layers.library_digest[:16]}-{layer}-delivery{next(self._loads)}"
                try:
                    manifest, _ = await self._fetcher.fetch_range(layers.library_digest, layer, layer + 1, name)
                    self._on_layers(layers.library_digest, manifest, layer, layer + 1)
                finally:  # what is left of a delivery that was ended would keep its files from making room
                    await self.forget(name)
        except (SignatureRefused, FetchError, StoreError, LinkDown) as error:
            return str(error)
        except Exception as error:  # the edge of a task nobody awaits: the console hears of an end in any case
            log.exception("A delivery failed.")
            return f"The agent failed ({type(error).__name__}); look at its log."
        return ""

    async def keep(self, ranges: Sequence[LayerRange]) -> None:
        """Let nothing of these ranges make room for other files, as far as it is here."""
        await finish_in_thread(partial(self._keep, ranges))

    def _keep(self, ranges: Sequence[LayerRange]) -> None:
        files = set[str]()
        for wanted in ranges:
            try:
                manifest = self._store.manifest(wanted.library_digest)
                units = manifest.units_of_range(wanted.first, wanted.last)
            except (StoreError, ValueError) as error:
                log.debug("Nothing is kept of %s: %s", wanted.library_digest, error)
                continue
            files.add(wanted.library_digest)
            files |= {record.sha256 for unit in units for record in (unit.xml, unit.bin)}
            files |= {record.sha256 for record in files_beside(manifest, wanted.last)}
        self._store.pin(_PLANS, files)

    async def forget(self, folder_name: str) -> None:
        """Delete a load's folder of links; the files stay."""
        await finish_in_thread(partial(self._store.discard_stage, folder_name))

    async def _measure(self, child: Child, wanted: Load) -> None:
        """Remember what the stage took; the child ends if this is cancelled, as it belongs to nobody yet."""
        full = msgspec.structs.replace(wanted, cache_bytes=child.report.kv_bytes or wanted.cache_bytes)
        try:
            await finish_in_thread(partial(self._memory.learn, full, child.pid))
        except BaseException:
            await child.close()
            raise


def wanted_by(manifest: Manifest, request: LoadStage) -> Load:
    """Say what a stage takes by the books: its weights, and its cache, as asked for or of all streams at full length.

    The largest single buffer is an end of the model, which is one matrix, or the keys of a layer for all streams.
    """
    units = manifest.units_of_range(request.first, request.last)
    element_bytes = 4 if request.numerics == "exact" or request.cache == "f32" else 2
    per_token = [
        unit.attention.kv_heads * (unit.attention.k_head_size + unit.attention.v_head_size) * element_bytes
        for unit in units
        if unit.attention is not None
    ]
    cache = request.kv_bytes or sum(per_token) * request.context_tokens * request.streams
    largest = [unit.size_bytes for unit in units if unit.attention is None]
    return Load(
        library=request.library_digest,
        device=request.device,
        weights_bytes=sum(unit.size_bytes for unit in units),
        cache_bytes=cache,
        largest_bytes=max([*largest, cache // max(1, 2 * len(per_token))]),
    )


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
