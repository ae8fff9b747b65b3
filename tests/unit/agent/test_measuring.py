"""A PC measures itself while it has nothing to do, in a process that ends as soon as it has."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection

from agent.link.closing import LinkCut
from agent.link.fetch import Fetcher
from agent.link.messages import Device, Measurements
from agent.link.store import Store
from agent.measuring import Measuring
from agent.settings import AgentSettings
from agent.stage.benchmark_process import NotMeasured
from agent.stage.speeds import Measured, MeasureSpec
from agent.tested import TestedEngines
from agent.volunteer.duty import Volunteer
from agent.volunteer.memory_book import MemoryBook
from agent.volunteer.states import Pause
from agent.volunteer.surroundings import LinkPhase, StagesPhase
from shard_export.library.manifest import MANIFEST_NAME, FileRecord, Manifest
from shard_export.library.store import sha256_of
from tests.support.agents import always_here
from tests.support.measurements import make_speed
from tests.support.patience import PATIENCE_S, until
from tests.support.toy_library import toy_library

CPU = Device("CPU", "A processor", 8 << 30, ["paged"])


@dataclass
class Pc:
    """A PC whose store holds a toy library, and a child process that is played."""

    manifest: Manifest
    digest: str
    owner: Volunteer
    measuring: Measuring = field(init=False)
    tested: TestedEngines = field(init=False)
    said: list[Measurements] = field(default_factory=list)
    specs: list[MeasureSpec] = field(default_factory=list)
    stages_phase: StagesPhase = "none"
    usable_devices: list[Device] = field(default_factory=lambda: [CPU])
    openvino: str = "2026.4"
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: list[str] = field(default_factory=list)
    failure: NotMeasured | None = None

    async def run_child(self, spec: MeasureSpec, must_stop: Callable[[], bool]) -> Measured:
        self.specs.append(spec)
        assert (Path(spec.stage.folder) / MANIFEST_NAME).exists()
        while not self.hold.is_set():
            if must_stop():
                self.stopped.append(spec.stage.numerics)
                raise NotMeasured("this PC is needed for something else.", again=True)
            await asyncio.sleep(0.005)
        if self.failure is not None:
            raise self.failure
        speed = make_speed(embed_ms=0.1 if spec.embed else None, head_ms=0.9 if spec.head else None)
        return Measured([speed], tested={speed.engine: [0]})

    def come(self, first: int = 1, last: int = 2) -> None:
        self.measuring.layers_came(self.digest, self.manifest, first, last)


def put(store: Store, folder: Path, files: list[FileRecord]) -> None:
    for record in files:
        with store.open_part(record.sha256) as part:
            part.write((folder / record.path).read_bytes())
            part.finish()


@pytest.fixture
async def pc(tmp_path: Path) -> AsyncIterator[Pc]:
    library, data = tmp_path / "library", tmp_path / "data"
    manifest = toy_library(library)
    data.mkdir()
    store = Store(data)
    digest = sha256_of(library / MANIFEST_NAME)
    put(store, library, [FileRecord(MANIFEST_NAME, 0, digest), *manifest.files()])

    async def dial() -> ClientConnection:
        raise LinkCut("The console is not there.", "cut")

    owner = always_here(data)
    pc = Pc(manifest, digest, owner)
    pc.tested = TestedEngines(data, lambda: pc.usable_devices, lambda: pc.openvino)
    pc.measuring = Measuring(
        data, store, Fetcher(store, dial), memory=MemoryBook(data, lambda: owner.policy), tested=pc.tested,
        settings=AgentSettings(), owner=owner, life=pc, quiet_s=0.0, run_child=pc.run_child,
    )  # fmt: skip
    task = asyncio.create_task(pc.measuring.run(pc.said.append, lambda: 1e9))
    async with working(owner):
        yield pc
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert owner.gates.all() == []
    assert list((data / "stages").iterdir()) == []


class Idle:
    """The work of a PC that only the owner's orders concern."""

    stages_phase: StagesPhase = "none"
    link_phase: LinkPhase = "up"

    def tell_availability(self) -> None:
        """There is nobody to tell."""

    async def give_back(self) -> str:
        return ""


@contextlib.asynccontextmanager
async def working(owner: Volunteer) -> AsyncIterator[None]:
    task = asyncio.create_task(owner.run(Idle()))
    await until(lambda: not owner.refusal())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_came_is_measured_once_and_told(pc: Pc) -> None:
    pc.hold.set()
    pc.come()
    await until(lambda: len(pc.said) == 2)
    assert [known.numerics for known in pc.said[-1].units] == ["fast", "exact"]
    assert pc.said[-1].units[0].layer_bytes == pc.manifest.layer(1).size_bytes
    assert [(spec.stage.first, spec.embed, spec.head) for spec in pc.specs] == [(1, False, False)] * 2
    # What was tested ahead is not tested again by a load in a hurry.
    engine = pc.said[-1].units[0].speeds[0].engine
    assert [pc.tested.windows(pc.digest, "CPU", numerics) for numerics in ("fast", "exact")] == [{engine: [0]}] * 2
    pc.come(2, 3)
    await until(lambda: len(pc.specs) == 4)
    assert pc.specs[-1].head


async def test_a_stage_that_is_to_be_loaded_ends_it_and_it_is_done_later(pc: Pc) -> None:
    pc.come()
    await until(lambda: bool(pc.specs))
    pc.stages_phase = "loading"
    await until(lambda: bool(pc.stopped))
    assert pc.said == []
    pc.stages_phase = "none"
    pc.hold.set()
    pc.come(2, 3)
    await until(lambda: len(pc.said) == 2)


async def test_the_owner_ends_it_by_the_gate_that_ends_everything(pc: Pc) -> None:
    pc.come()
    await until(lambda: bool(pc.specs))
    pc.owner.gates.shut()
    await until(lambda: bool(pc.stopped))


async def test_a_device_that_cannot_be_measured_is_not_tried_again_and_again(pc: Pc) -> None:
    pc.failure = NotMeasured("it took more than 120 s.")
    pc.hold.set()
    pc.come()
    await until(lambda: len(pc.specs) == 2)
    pc.failure = None
    pc.come(0, 1)
    await until(lambda: len(pc.said) == 2)
    assert len(pc.specs) == 4


async def test_a_device_that_offers_other_memory_now_is_not_tried_again(pc: Pc) -> None:
    pc.failure = NotMeasured("it took more than 120 s.")
    pc.hold.set()
    pc.come()
    await until(lambda: len(pc.specs) == 2)
    pc.failure = None
    gpu = Device("GPU", "Graphics", 1 << 30, ["paged"])
    pc.usable_devices = [Device("CPU", "A processor", 7 << 30, ["paged"]), gpu]
    pc.measuring._news.set()
    await until(lambda: len(pc.said) == 2)
    assert [spec.stage.device for spec in pc.specs] == ["CPU", "CPU", "GPU", "GPU"]


async def test_who_loads_a_stage_waits_until_nothing_is_measured_any_more(pc: Pc) -> None:
    pc.come()
    await until(lambda: bool(pc.specs))
    assert pc.owner.gates.all()
    await pc.measuring.make_way()
    assert pc.owner.gates.all() == []
    assert not Path(pc.specs[0].stage.folder).exists()
    await pc.measuring.make_way()
    pc.hold.set()
    pc.come(2, 3)
    await until(lambda: len(pc.said) == 2)


@pytest.mark.parametrize("needed_by", ["owner", "stage", "load"])
async def test_the_look_at_the_link_ends_when_the_pc_is_needed(
    pc: Pc, needed_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    probing, ended = asyncio.Event(), asyncio.Event()

    async def probe(*_: object) -> None:
        probing.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(pc.measuring._fetcher, "probe", probe)
    pc.hold.set()
    pc.come()
    async with asyncio.timeout(PATIENCE_S):
        await probing.wait()
        if needed_by == "owner":
            pc.owner.order(Pause(None))
        elif needed_by == "stage":
            pc.stages_phase = "loading"
        else:
            await pc.measuring.make_way()
            assert ended.is_set()
        await ended.wait()
