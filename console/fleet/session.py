"""One agent's live session: its control link, its data link, and the stage loads it was asked for. Event loop only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from websockets.asyncio.server import ServerConnection

from agent.link.messages import Heartbeat, Hello, LayerRange, Yield
from agent.link.stage_messages import AdvanceEpoch, LoadStage, StageFailed, StageProgress, StageReady
from agent.stage.types import StageReport
from console.fleet.errors import StageLoadFailed
from console.fleet.events import AgentView
from console.fleet.uplinks import Uplink
from console.registry.records import DeviceRecord

MISSED_HEARTBEATS, MISSED_FAST_BEATS = 3, 5
MISSED_COVERED_BEATS = 3
"""Of a PC whose stages others hold in reserve, loaded: being wrong only costs a replay there."""
OnProgress = Callable[[StageProgress], None]


@dataclass
class PendingLoad:
    """A LoadStage or AdvanceEpoch that was not answered yet."""

    request: LoadStage | AdvanceEpoch
    on_progress: OnProgress | None
    done: asyncio.Future[StageReport]
    moved_s: float
    """Loop time of the last sign of progress."""


@dataclass
class Session:
    """An authenticated agent. `data` is None until its data link is up; `seen_s` is loop time."""

    record: DeviceRecord
    control: ServerConnection
    hello: Hello
    connected_s: float
    seen_s: float
    data: ServerConnection | None = None
    uplinks: dict[int, Uplink] = field(default_factory=dict)
    """The stages' own links, by pipeline."""
    heartbeat: Heartbeat | None = None
    lost: bool = False
    loads: dict[int, PendingLoad] = field(default_factory=dict)
    """By pipeline."""
    deliveries: dict[LayerRange, asyncio.Future[str]] = field(default_factory=dict)
    """What it was asked to fetch without loading; the result is the problem, empty for none."""
    log: asyncio.Future[list[str]] | None = None
    """The lines of its log that it was asked for, until they come."""

    @property
    def device_id(self) -> str:
        return self.record.device_id

    @property
    def name(self) -> str:
        return self.record.name or self.hello.host

    def __post_init__(self) -> None:
        if self.hello.state != "available":
            self.heartbeat = Heartbeat(0, self.hello.state, self.hello.reasons)

    def patience_s(self, heartbeat_s: float, *, covered: bool) -> float:
        """How long it may be silent: several of the pauses between heartbeats it has promised.

        `covered` says that others hold all its stages in reserve, loaded.
        """
        if self.heartbeat is not None and 0 < self.heartbeat.next_s < heartbeat_s:
            return self.heartbeat.next_s * (MISSED_COVERED_BEATS if covered else MISSED_FAST_BEATS)
        return heartbeat_s * MISSED_HEARTBEATS

    @property
    def is_held(self) -> bool:
        """Whether no plan may count on this PC now."""
        return self.heartbeat is not None and self.heartbeat.state != "available"

    def take_yield(self, message: Yield) -> None:
        """The PC goes back to its owner: it is held, and what it was loading fails."""
        free_bytes = self.heartbeat.memory_free_bytes if self.heartbeat is not None else 0
        self.heartbeat = Heartbeat(free_bytes, "held", message.reasons)
        for pipeline in list(self.loads):
            self.fail_load(pipeline, "held", "its owner needs it; plan without it.")

    def view(self) -> AgentView:
        """Describe the agent for listeners and windows."""
        return AgentView(self.device_id, self.name, self.hello, self.heartbeat, self.connected_s, self.record.tags)

    def begin_load(
        self, request: LoadStage | AdvanceEpoch, on_progress: OnProgress | None, now_s: float
    ) -> PendingLoad:
        """Note a load; one already under way for the same pipeline fails as replaced."""
        self.fail_load(request.pipeline, "replaced", "a newer plan took its place.")
        done: asyncio.Future[StageReport] = asyncio.get_running_loop().create_future()
        load = PendingLoad(request, on_progress, done, now_s)
        self.loads[request.pipeline] = load
        return load

    def fail_load(self, pipeline: int, code: str, message: str) -> None:
        """End a pending load with an error, if there is one."""
        load = self.loads.pop(pipeline, None)
        if load is not None and not load.done.done():
            load.done.set_exception(StageLoadFailed(code, message, self.name))

    def fail_all_loads(self, code: str, message: str) -> None:
        """End every pending load with an error."""
        for pipeline in list(self.loads):
            self.fail_load(pipeline, code, message)
        for layers in list(self.deliveries):
            self.end_delivery(layers, f"it left: {message}")
        self.end_log([])

    def begin_delivery(self, layers: LayerRange) -> asyncio.Future[str]:
        """Note a delivery; the same one asked for again is the same."""
        if layers not in self.deliveries:
            self.deliveries[layers] = asyncio.get_running_loop().create_future()
        return self.deliveries[layers]

    def end_delivery(self, layers: LayerRange, problem: str) -> None:
        """A delivery is done, or failed."""
        done = self.deliveries.pop(layers, None)
        if done is not None and not done.done():
            done.set_result(problem)

    def ask_log(self) -> asyncio.Future[list[str]]:
        """Note that its log is asked for; whoever asks meanwhile gets the same answer."""
        if self.log is None:
            self.log = asyncio.get_running_loop().create_future()
        return self.log

    def end_log(self, lines: list[str]) -> None:
        """Its log has come, or will not (no lines)."""
        asked, self.log = self.log, None
        if asked is not None and not asked.done():
            asked.set_result(lines)

    def take_answer(self, message: StageProgress | StageReady | StageFailed, now_s: float) -> bool:
        """Match what the agent says to a pending load of the same epoch; return whether there was one."""
        load = self.loads.get(message.pipeline)
        if load is None or (load.request.epoch, load.request.stage) != (message.epoch, message.stage):
            return False
        load.moved_s = now_s
        if isinstance(message, StageProgress):
            if load.on_progress is not None:
                load.on_progress(message)
        elif isinstance(message, StageFailed):
            self.fail_load(message.pipeline, message.code, message.message)
        else:
            del self.loads[message.pipeline]
            if not load.done.done():
                load.done.set_result(message.report)
        return True
