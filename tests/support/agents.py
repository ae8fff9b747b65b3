"""An agent's service against a real hub, with a scripted child process."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from agent.devices import Runtime, find_runtime
from agent.link.channel import Backoff
from agent.link.closing import DuplicateSession
from agent.link.frames import FrameType, decode, encode
from agent.link.stage_messages import AdvanceEpoch, CutDirect, DirectRoute, LoadStage
from agent.service import AgentService
from agent.settings import AgentSettings
from agent.stage.errors import StageGone
from agent.stage.gate import Gates
from agent.stage.steps import report_frame
from agent.stage.types import StageReport, StageSpec
from agent.volunteer.duty import Volunteer
from agent.volunteer.keeping import PolicyKeeper
from tests.support.fleet import Fleet, make_load, make_report
from tests.support.patience import PATIENCE_S

Answer = Callable[[bytes], None]


@dataclass
class FakeChild:
    """Stands in for StageProcess: answers every STEP with the next stage's, as a middle stage does."""

    spec: StageSpec
    report: StageReport
    on_frame: Answer
    on_exit: Callable[[str], None]
    closed: bool = False
    pid: int = 0
    """No process: nothing is measured."""
    orders: list[DirectRoute | CutDirect | AdvanceEpoch] = field(default_factory=list)
    """What it was told of direct links and epochs."""

    def write(self, frame: bytes) -> bool:
        if self.closed:
            raise StageGone("The stage's child process has ended; load the stage again.")
        header = decode(frame)
        if header.type is FrameType.DIRECT:
            order = msgspec.msgpack.decode(header.table, type=DirectRoute | CutDirect | AdvanceEpoch)
            self.orders.append(order)
            if isinstance(order, AdvanceEpoch):
                self.spec = msgspec.structs.replace(self.spec, epoch=order.epoch, stage=order.stage)
                self.on_frame(report_frame(self.spec, self.report))
            return True
        self.on_frame(encode(msgspec.structs.replace(header, stage=header.stage + 1)))
        return True

    async def writable(self) -> None:
        return

    async def close(self) -> None:
        self.closed = True


@dataclass
class Children:
    """Starts fake children and remembers them."""

    started: list[FakeChild] = field(default_factory=list)
    failure: Exception | None = None
    hold: asyncio.Event | None = None

    async def __call__(
        self, spec: StageSpec, *, on_frame: Callable[[bytes], None], on_exit: Callable[[str], None]
    ) -> FakeChild:
        if self.hold is not None:
            await self.hold.wait()
        if self.failure is not None:
            raise self.failure
        request = make_load(first=spec.first, last=spec.last, engine=spec.engine, numerics=spec.numerics)
        digest = hashlib.sha256((Path(spec.folder) / "manifest.json").read_bytes()).hexdigest()
        addresses = ["127.0.0.1:8470"] if spec.direct is not None and spec.direct.listens else []
        report = make_report(request, library_digest=digest, addresses=addresses)
        child = FakeChild(spec, report, on_frame, on_exit)
        self.started.append(child)
        return child


@dataclass
class Agent:
    """A running service."""

    service: AgentService
    children: Children
    folder: Path
    device_id: str
    task: asyncio.Task[None]


def always_here(folder: Path) -> Volunteer:
    """A volunteer that nothing ever holds, as on a machine nobody sits at."""
    return Volunteer(PolicyKeeper(folder, now_s=time.time()), Gates(folder / "gates"), None)


@contextlib.asynccontextmanager
async def running_agent(
    fleet: Fleet,
    name: str = "ann",
    settings: AgentSettings | None = None,
    list_devices: Callable[[], Runtime] = find_runtime,
) -> AsyncIterator[Agent]:
    folder = fleet.folder / f"{name}-data"
    folder.mkdir(exist_ok=True)
    identity = fleet.enrol(f"{name}-data/identity")
    children = Children()
    service = AgentService(
        folder,
        identity,
        settings or AgentSettings(volunteer="always"),
        always_here(folder),
        list_devices=list_devices,
        start_child=children,
        backoff=Backoff(uniform=lambda low, high: 0.05),
    )
    task = asyncio.create_task(service.run())
    try:
        await fleet.wait_for(lambda: any(view.device_id == identity.device_id for view in fleet.hub.agents()))
        yield Agent(service, children, folder, identity.device_id, task)
    finally:
        service.stop()
        with contextlib.suppress(DuplicateSession):
            await task


async def load(fleet: Fleet, agent: Agent, request: LoadStage) -> StageReport:
    async with asyncio.timeout(PATIENCE_S):
        return await fleet.hub.load(agent.device_id, request)
