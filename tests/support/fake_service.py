"""A service for the windows to be clients of: the real control server, with a scripted agent behind it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from agent.control.endpoint import endpoint_of
from agent.control.errors import OrderRefused
from agent.control.protocol import (
    Answer,
    AskProbes,
    CancelEnrolment,
    Done,
    Enrol,
    Findings,
    FindingShown,
    History,
    HistoryRow,
    Order,
    Probes,
    ProbeShown,
    QueryHistory,
    RunDoctor,
    Told,
)
from agent.control.server import ControlServer
from agent.control.status import Contribution, Countdown, DeviceShown, PolicyRow, ReasonShown, StageShown, Status
from agent.link.messages import PROTOCOL, Device, FromAgent, Heartbeat, Hello, Holding, PolicyKept, Yield
from agent.seen import ConsoleView
from agent.volunteer.explain import SENTENCES
from agent.volunteer.reasons import ReasonCode

GIB = 2**30
NOW_S = 1_796_000_000.0

Tell = Callable[[Told], None]


def make_status(**changes: Any) -> Status:
    """A PC at rest that belongs to a fleet, serves nothing and is held by nothing."""
    status = Status(
        now_s=NOW_S, phase="available", icon="away", headline="", reasons=[], countdown=None, link="connected",
        link_message="", console_url="wss://console.example:8461", device_id="pc-7f3a", fleet_name="Example fleet",
        device_code="", devices=[], stages=[], contribution=Contribution(), policy=[], policy_revision=1,
        pause_until_s=None, may_contribute_now=False, may_quit=True, seen_by_console={},
    )  # fmt: skip
    return msgspec.structs.replace(status, **changes)


def make_reason(code: str, *, for_s: float = 0.0, now_s: float = NOW_S, text: str | None = None) -> ReasonShown:
    """A reason that has held for a while; the text is the service's own if none is given."""
    said = SENTENCES[ReasonCode(code)].replace(" ({detail})", "") if text is None else text
    return ReasonShown(code, "pause", said, now_s - for_s)


def make_row(field: str, kind: str, value: object, **changes: Any) -> PolicyRow:
    """A policy row that nobody but Fallow itself has set."""
    row = PolicyRow(field, kind, value, "built-in")  # type: ignore[arg-type]  # as the tests give them
    return msgspec.structs.replace(row, **changes)


def make_policy() -> list[PolicyRow]:
    """One row of each kind and origin."""
    return [
        make_row("enabled", "switch", True, set_by="employee", asked={"employee": True}),
        make_row("schedule", "schedule", "Mon-Fri 18:00-07:00", set_by="admin", asked={"admin": "Mon-Fri 18:00-07:00"}),
        make_row("idle_start_s", "seconds", 600.0, set_by="employee", asked={"admin": 300.0, "employee": 600.0},
                 minimum=60.0, maximum=86400.0),
        make_row("memory_max_percent", "percent", 50.0, set_by="admin", asked={"admin": 50.0, "employee": 80.0},
                 minimum=0.0, maximum=100.0),
        make_row("memory_floor_bytes", "bytes", 4 * GIB, minimum=0.0, maximum=float(2**48)),
        make_row("heat_limit_celsius", "number", 90.0, minimum=30.0, maximum=120.0),
        make_row("exclusive_programs", "names", ["blender", "resolve"], set_by="employee",
                 asked={"employee": ["blender", "resolve"]}),
        make_row("fullscreen", "switch", False, set_by="admin", asked={"admin": False}, locked=True),
        make_row("telemetry", "choice", "codes", choices=["none", "codes"]),
    ]  # fmt: skip


def make_told(*messages: FromAgent) -> ConsoleView:
    """What the console was told of that PC, as the agent keeps it, and some messages more."""
    told = ConsoleView(
        Hello(
            protocol=PROTOCOL, version="0.1.0", host="desk-17", os="Linux 6.1", cores=12, memory_bytes=12 * GIB,
            devices=[
                Device("CPU", "12th Gen Core i5-1240P", 12 * GIB, ["paged", "stateful"]),
                Device("GPU.0", "Iris Xe Graphics (iGPU)", 7 * GIB, ["stateful"], "32.0.101"),
            ],
            openvino="2026.4.1", key_protection="keyring", held_sha256=["a" * 64, "b" * 64], takes_policy=True,
        )
    )  # fmt: skip
    for message in (Holding(["192.0.2.17:8470"], added=["c" * 64]), PolicyKept(3), *messages):
        told.note(message)
    return told


def make_busy_status(now_s: float | None = None) -> Status:
    """A PC that serves two stages, with something on every page."""
    now_s = time.time() if now_s is None else now_s
    return make_status(
        now_s=now_s, phase="serving", icon="contributing",
        devices=[
            DeviceShown("CPU", "12th Gen Core i5-1240P", 12 * GIB, on=True),
            DeviceShown("GPU.0", "Iris Xe Graphics (iGPU)", 7 * GIB, on=True),
            DeviceShown("NPU", "AI Boost", 7 * GIB, on=False, set_by="admin"),
        ],
        stages=[StageShown(1, 0, 0, 14, "paged", "CPU"), StageShown(2, 3, 21, 28, "stateful", "GPU.0", 0.4)],
        contribution=Contribution(3.25, 41_230, 96.0, 512.5, 6_120_400, 15_300.0),
        policy=make_policy(), may_contribute_now=False,
        seen_by_console=make_told(Heartbeat(9 * GIB)).seen(),
    )  # fmt: skip


def make_held_status(now_s: float | None = None) -> Status:
    """The same PC while its owner works on battery, with a film in the background."""
    now_s = time.time() if now_s is None else now_s
    return msgspec.structs.replace(
        make_busy_status(now_s), phase="paused", icon="waiting", countdown=Countdown("releases", now_s + 4),
        reasons=[make_reason(code, for_s=for_s, now_s=now_s)
                 for code, for_s in (("user_input", 3), ("on_battery", 700), ("inhibited", 5400))],
        seen_by_console=make_told(Yield([], ["user_input", "on_battery", "inhibited"])).seen(),
    )  # fmt: skip


def make_history(order: QueryHistory) -> list[HistoryRow]:
    """Two rows out of three have something in them."""
    step = 3600.0 if order.by == "hour" else 86400.0
    count = int((order.to_s - order.from_s) // step)
    scale = 0.1 if order.by == "hour" else 1.0
    return [
        HistoryRow(order.from_s + step * place, scale * 3600 * (2 + place * 7 % 6), 4000 * (place % 5), 22.5 * place)
        for place in range(count)
        if place % 3
    ]


PROBES = [
    ProbeShown("idle_s", "4 s", "mutter", 0.2),
    ProbeShown("locked", "no", "logind", 0.2),
    ProbeShown("power", "mains, battery 80 %", "sysfs", 3.0),
    ProbeShown("heat", "", "thermal", 3.0),
]
FINDINGS = [
    FindingShown("disk", "ok", "41.3 GB are free"),
    FindingShown("port", "problem", "the console does not answer", "Check the network cable or ask for the firewall."),
    FindingShown("proxy", "unknown", "the settings cannot be read"),
]


@dataclass
class FakeAgent:
    """Says what the test wants; remembers what it was told to do."""

    now: Status = field(default_factory=make_status)
    orders: list[Order] = field(default_factory=list)
    refusals: dict[type[Order], str] = field(default_factory=dict)
    approved: bool = False
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether the order to join has its answer."""

    def status(self) -> Status:
        return self.now

    async def carry_out(self, order: Order, tell: Tell) -> Answer:
        self.orders.append(order)
        if type(order) in self.refusals:
            raise OrderRefused(self.refusals[type(order)], "not_allowed")
        if isinstance(order, QueryHistory):
            return History(order.id, make_history(order))
        if isinstance(order, AskProbes):
            return Probes(order.id, PROBES)
        if isinstance(order, RunDoctor):
            return Findings(order.id, FINDINGS)
        if isinstance(order, Enrol):
            tell(Told(order.id, "pending", "ABCD-EFGH-K"))
            await self.answered.wait()
            if not self.approved:
                raise OrderRefused("This PC no longer waits for approval.", "denied")
        if isinstance(order, CancelEnrolment):
            self.answered.set()
        return Done(order.id)


class FakeService:
    """Runs the control server of a data folder in a thread of its own. Methods: any other thread."""

    def __init__(self, folder: Path, status: Status | None = None) -> None:
        self.folder = folder
        self.agent = FakeAgent(status or make_status())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake service")
        self._server: ControlServer | None = None

    @property
    def orders(self) -> list[Order]:
        return self.agent.orders

    def start(self) -> None:
        if not self._thread.is_alive():
            self._thread.start()
        self._do(self._listen())

    def stop(self) -> None:
        """Close the socket, as a service does that ends; `start` opens it again."""
        if self._server is not None:
            self._do(self._server.close())
            self._server = None

    def end(self) -> None:
        if self._thread.is_alive():
            self.stop()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def say(self, status: Status) -> None:
        """Change the status and tell the clients."""
        self._loop.call_soon_threadsafe(self._say, status)

    def approve(self) -> None:
        """Let a PC that asks to join in."""
        self.agent.approved = True
        self._loop.call_soon_threadsafe(self.agent.answered.set)

    def refuse(self, order: type[Order], message: str) -> None:
        self.agent.refusals[order] = message

    def _say(self, status: Status) -> None:
        self.agent.now = status
        if self._server is not None:
            self._server.changed()

    async def _listen(self) -> None:
        self._server = ControlServer(endpoint_of(self.folder), self.agent)
        await self._server.start()

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


@contextlib.contextmanager
def fake_service(folder: Path, status: Status | None = None, *, running: bool = True) -> Iterator[FakeService]:
    """Give a service, running or not, and end it afterwards."""
    service = FakeService(folder, status)
    if running:
        service.start()
    try:
        yield service
    finally:
        service.end()
