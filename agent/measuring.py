"""Measures this PC while it has nothing else to do: a real layer on each device, and the link to the console.

Only what is here is measured, while this PC may work for others and holds no stage, in a child process that makes way
for everything. It is ended at once when the owner comes, a stage is to be loaded, or its time is over; so is the look
at the link. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Protocol

from websockets.exceptions import ConnectionClosed

from agent.link.closing import LinkDown
from agent.link.fetch import Fetcher
from agent.link.messages import Device, Measurements
from agent.link.store import Store
from agent.link.store_errors import StoreError
from agent.link.transfer import FetchError
from agent.measured import Held, MeasurementBook, Wanted
from agent.settings import AgentSettings
from agent.stage.benchmark_process import LIMIT_S, POLL_S, NotMeasured, RunChild, measure_in_child
from agent.stage.speeds import ROWS, Measurement, MeasureSpec
from agent.stage.types import Epoch, Numerics, PipelineId, StageSpec
from agent.tested import TestedEngines
from agent.threads import finish_in_thread
from agent.volunteer.duty import Volunteer
from agent.volunteer.memory_book import Load, MemoryBook
from agent.volunteer.surroundings import StagesPhase
from shard_export.library.manifest import Manifest, Unit

log = logging.getLogger(__name__)

QUIET_S = 10.0
"""How long this PC must have had nothing to do: between two plans it is not idle."""
LOOK_S = 60.0
STACK_BYTES = 64 << 20
"""A layer is repeated until the weights are beyond what caches hold, as those of a whole stage are."""
FEWEST_COPIES, MOST_COPIES = 2, 16
LINK_LIFE_S, LINK_AGAIN_S = 24 * 3600.0, 3600.0
"""How old the link's figure may be before it is asked for, and how long after a failure it is asked for again."""


class Life(Protocol):
    """What measuring has to know of the session it happens in."""

    @property
    def stages_phase(self) -> StagesPhase:
        """The most advanced of all stages."""
        ...

    @property
    def usable_devices(self) -> Sequence[Device]:
        """The devices that may compute."""
        ...

    @property
    def openvino(self) -> str:
        """The runtime's version."""
        ...


class Measuring:
    """What outlives a session: the book, and what could not be measured. `run` it as a task of each session."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        fetcher: Fetcher,
        *,
        memory: MemoryBook,
        tested: TestedEngines,
        settings: AgentSettings,
        owner: Volunteer,
        life: Life,
        quiet_s: float = QUIET_S,
        run_child: RunChild | None = None,
    ) -> None:
        self._book = MeasurementBook(folder)
        self._store = store
        self._fetcher = fetcher
        self._memory = memory
        self._tested = tested
        self._settings = settings
        self._owner = owner
        self._life = life
        self._tried: set[tuple[Held, str, str, Numerics]] = set()
        self._doing: asyncio.Task[bool] | None = None
        self._news = asyncio.Event()
        self._told: tuple[list[Measurement] | None, int] = (None, 0)
        self._transfers = 0
        self._link_at_s = self._link_tried_s = 0.0
        self._quiet_s = quiet_s
        self._run_child = run_child or measure_in_child

    def layers_came(self, digest: str, manifest: Manifest, first: int, last: int) -> None:
        """Layers `first <= i < last` of a library that the console signed are here."""
        if self._book.hold(Held(digest, embed=first == 0, head=last == manifest.layer_count)):
            self._news.set()

    async def run(self, say: Callable[[Measurements], None], console_time: Callable[[], float]) -> None:
        """Tell what is known, then measure what is not, until cancelled. `console_time` returns Unix time."""
        self._told = (None, 0)
        while True:
            self._news.clear()
            self._tell(say, console_time())
            self._doing = asyncio.create_task(self._next(console_time), name="measure")
            try:
                goes_on = await self._doing
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise
                goes_on = False  # only that was ended, by `make_way`
            except Exception:  # the edge of a task nobody awaits: a PC that cannot be measured works all the same
                log.exception("Measuring this PC failed.")
                goes_on = False
            self._doing = None
            if not goes_on:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._news.wait()

    async def make_way(self) -> None:
        """End what is being measured and wait until it is gone: a stage wants the memory."""
        if self._doing is not None:
            self._doing.cancel()
            await asyncio.wait([self._doing])

    def _tell(self, say: Callable[[Measurements], None], now_s: float) -> None:
        """Tell all that is known, if there is more than was told."""
        seen, units = self._fetcher.throughput, self._book.measurements
        if seen.count != self._transfers:
            self._transfers, self._link_at_s = seen.count, now_s
        if (units or seen.count) and self._told != (units, seen.count):
            self._told = units, seen.count
            say(Measurements(units, seen.bytes_per_s or 0.0, self._link_at_s))

    async def _next(self, console_time: Callable[[], float]) -> bool:
        """Do one thing, if there is any and this is the time for it; returns whether there may be another at once."""
        life = self._life
        missing = [
            wanted
            for wanted in self._book.missing(life.usable_devices, life.openvino)
            if wanted.what not in self._tried
        ]
        now_s = console_time()
        stale = now_s - self._link_at_s > LINK_LIFE_S and now_s - self._link_tried_s > LINK_AGAIN_S
        if not (missing or (stale and self._book.libraries)) or not await self._quiet():
            return False
        if missing:
            return await self._measure(missing[0], console_time)
        self._link_tried_s = now_s
        return await self._probe_link()

    async def _quiet(self) -> bool:
        """Wait until this PC has had nothing to do for a while; False as soon as it has."""
        until_s = time.monotonic() + self._quiet_s
        while not self._busy():
            if time.monotonic() >= until_s:
                return True
            await asyncio.sleep(min(1.0, self._quiet_s))
        return False

    def _is_needed(self) -> bool:
        return bool(self._owner.refusal()) or self._life.stages_phase != "none"

    def _busy(self) -> bool:
        return self._is_needed() or self._fetcher.is_busy

    async def _measure(self, wanted: Wanted, console_time: Callable[[], float]) -> bool:
        name = f"measure-{wanted.library.digest[:16]}"
        try:
            measured = await self._measure_in(name, wanted, console_time)
        except StoreError as error:
            log.info("A model's layers are not here any more and are not measured: %s", error)
            self._book.lose(wanted.library)
        except NotMeasured as error:
            log.info("%s is not measured: %s", wanted.device.name, error)
            if error.again:
                return False
        else:
            self._book.add(measured)
        finally:
            await finish_in_thread(lambda: self._store.discard_stage(name))
        # Once for each start of the agent: what failed would fail again, and nothing is measured for ever.
        self._tried.add(wanted.what)
        return True

    async def _measure_in(self, name: str, wanted: Wanted, console_time: Callable[[], float]) -> Measurement:
        held, device, settings = wanted.library, wanted.device, self._settings
        manifest, layer, folder = await finish_in_thread(lambda: _materialise(self._store, held, name))
        copies = max(FEWEST_COPIES, min(MOST_COPIES, STACK_BYTES // layer.size_bytes))
        ends = [unit for unit, here in (("embed", held.embed), ("head", held.head)) if here]
        weights = copies * layer.size_bytes + sum(manifest.unit(unit).size_bytes for unit in ends)
        load = Load(held.digest, device.name, weights, 0, max(layer.size_bytes, weights - copies * layer.size_bytes))
        if said := await asyncio.to_thread(self._memory.refusal, load):
            raise NotMeasured(f"the layer {said}", again=True)
        gate = self._owner.gates.make()
        try:
            stage = StageSpec(
                str(folder), layer.index, layer.index + 1, PipelineId(0), Epoch(0), 0,
                numerics=wanted.numerics, device=device.name, streams=ROWS, threads=settings.threads,
                cores=settings.cores, gate=str(gate.path or ""), gentle=settings.volunteer == "away",
            )  # fmt: skip
            spec = MeasureSpec(stage, device.engines, copies, held.embed, held.head)
            measured = await self._run_child(spec, lambda: gate.is_shut or self._busy())
        finally:
            self._owner.gates.remove(gate)
        self._tested.learn(held.digest, device.name, wanted.numerics, measured.tested)
        if not measured.speeds:
            raise NotMeasured("; ".join(measured.refused.values()) or "no engine runs on it")
        return Measurement(
            library_digest=held.digest, unit_sha256=layer.bin.sha256, layer_bytes=layer.size_bytes, device=device.name,
            driver=device.driver, openvino=self._life.openvino, numerics=wanted.numerics, speeds=measured.speeds,
            at_s=console_time(),
        )  # fmt: skip

    async def _probe_link(self) -> bool:
        """Ask for the end of a file again, where none was fetched lately and nothing limits it."""
        held = self._book.libraries[-1]
        if not self._fetcher.may_probe:
            return False
        try:
            manifest = await asyncio.to_thread(self._store.manifest, held.digest)
            largest = max((unit.bin for unit in manifest.units), key=lambda record: record.size_bytes)
            await self._while_idle(self._fetcher.probe(largest.sha256, largest.size_bytes))
        except StoreError:
            self._book.lose(held)
        except (FetchError, LinkDown, TimeoutError, ConnectionClosed) as error:
            log.info("The link to the console is not measured: %s", str(error) or type(error).__name__)
        return True

    async def _while_idle(self, work: Coroutine[None, None, None]) -> None:
        """Do it as long as nobody needs this PC. Raises TimeoutError when that ended it, or its time is over."""
        doing = asyncio.create_task(work, name="measure-link")
        try:
            async with asyncio.timeout(LIMIT_S):
                while not doing.done():
                    if self._is_needed():
                        raise TimeoutError("this PC is needed for something else.")
                    await asyncio.wait({doing}, timeout=POLL_S)
            doing.result()
        finally:
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _materialise(store: Store, held: Held, name: str) -> tuple[Manifest, Unit, Path]:
    """Lay out one whole layer, an inner one if there is a choice, and the ends that are here. Raises StoreError."""
    manifest = store.manifest(held.digest)
    inner = sorted(range(manifest.layer_count), key=lambda index: index in {0, manifest.layer_count - 1})
    for index in inner:
        layer = manifest.layer(index)
        rope = layer.attention.rope if layer.attention is not None else ""
        units = [unit for unit in manifest.units if unit.kind == "rope" and unit.name == rope] + [layer]
        units += [manifest.unit("embed")] if held.embed else []
        units += [manifest.unit("head")] if held.head else []
        files = [record for unit in units for record in (unit.xml, unit.bin)]
        if all(store.has(record.sha256, record.size_bytes) for record in files):
            return manifest, layer, store.materialise(held.digest, units, name)
    raise StoreError(f"No layer of {manifest.model_id} is whole here.")
