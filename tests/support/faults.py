"""What goes wrong with the PCs of a loopback fleet, done to real processes and links, and how it is put right again."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Literal, Self, get_args

import psutil

from agent.control.client import ControlClient
from agent.control.errors import ControlError
from agent.control.protocol import Pause, Resume
from installer.loopback import LoopbackFleet
from tests.bench.net import NEAR, Link, Network, Shape
from tests.support.patience import PATIENCE_S

Fault = Literal[
    "kill-agent", "kill-stage", "freeze-agent", "freeze-stage", "black-hole", "slow-link", "yield", "wrong-epoch"
]
FAULTS: tuple[Fault, ...] = get_args(Fault)
SLOW = Shape(delay_ms=100, jitter_ms=50, bytes_per_s=1_000_000)
"""A bad radio link: far more than a PC in the house, far less than none."""
STAGE_MODULES = ("agent.stage.worker", "tests.support.erring_stage", "tests.support.soaked_stage")


def stage_processes(agent: int) -> list[psutil.Process]:
    """Find the stages of an agent by its process id; none when it has ended."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(agent).children():
            with contextlib.suppress(psutil.Error):
                if any(module in child.cmdline() for module in STAGE_MODULES):
                    found.append(child)
    return found


class Faults:
    """Does one thing after the other to a fleet and can undo all of it. A context manager: nothing stays frozen.

    `links` are the PCs' links by name, if they have any of `network`'s. Blocking calls.
    """

    def __init__(self, fleet: LoopbackFleet, network: Network | None = None, links: Mapping[str, Link] | None = None):
        self._fleet, self._network, self._links = fleet, network, links if links is not None else {}
        self._remedies: list[Callable[[], None]] = []
        self._starts: list[Callable[[], None]] = []
        self._ways: dict[Fault, Callable[[str], None]] = {
            "kill-agent": self._kill_agent,
            "kill-stage": self._kill_stage,
            "freeze-agent": self._freeze_agent,
            "freeze-stage": self._freeze_stage,
            "black-hole": self._black_hole,
            "slow-link": self._slow_link,
            "yield": self._yield,
            "wrong-epoch": self._wrong_epoch,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._remedies:
            with contextlib.suppress(psutil.Error, ControlError, OSError):
                self._remedies.pop()()

    def do(self, fault: Fault, name: str) -> float:
        """Let it happen to a PC; returns when it began to, on the monotonic clock."""
        began_s = time.monotonic()
        self._ways[fault](name)
        return began_s

    def undo(self) -> None:
        """Put everything right: wake what was frozen, heal links, end pauses, start what was killed."""
        for calls in (self._remedies, self._starts):
            while calls:
                calls.pop()()

    def _kill_agent(self, name: str) -> None:
        process = self._fleet.process(name)
        process.send_signal(signal.SIGKILL)

        def start() -> None:
            process.wait()
            self._fleet.start_agent(name)

        self._starts.append(start)

    def _kill_stage(self, name: str) -> None:
        for stage in stage_processes(self._fleet.process(name).pid):
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended since it was found
                stage.kill()

    def _freeze_agent(self, name: str) -> None:
        self._freeze(psutil.Process(self._fleet.process(name).pid))

    def _freeze_stage(self, name: str) -> None:
        for stage in stage_processes(self._fleet.process(name).pid):
            self._freeze(stage)

    def _freeze(self, process: psutil.Process) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended since it was found
            process.suspend()

        def wake() -> None:
            with contextlib.suppress(psutil.NoSuchProcess):  # whoever owns it may have ended it meanwhile
                process.resume()

        self._remedies.append(wake)

    def _black_hole(self, name: str) -> None:
        link = self._links[name]
        assert self._network is not None
        self._network.tell(link.stall)
        self._remedies.append(lambda: self._tell(link.heal))

    def _slow_link(self, name: str) -> None:
        link = self._links[name]

        def shape(value: Shape) -> Callable[[], None]:
            def change() -> None:
                link.shape = value

            return change

        self._tell(shape(SLOW))
        self._remedies.append(lambda: self._tell(shape(NEAR)))

    def _tell(self, call: Callable[[], None]) -> None:
        assert self._network is not None
        self._network.tell(call)

    def _yield(self, name: str) -> None:
        """Let the owner pause it, through the agent's control socket."""

        async def pause(client: ControlClient) -> None:
            await client.order(Pause(client.next_id(), "resumed"))

        async def resume(client: ControlClient) -> None:
            await client.order(Resume(client.next_id()))

        self._remedies.append(lambda: self._order(name, resume))
        self._order(name, pause)

    def _order(self, name: str, give: Callable[[ControlClient], Awaitable[None]]) -> None:
        async def order() -> None:
            async with (
                asyncio.timeout(PATIENCE_S),
                ControlClient.open(self._fleet.agent_folder(name), "cli") as client,
            ):
                await give(client)

        asyncio.run(order())

    def _wrong_epoch(self, name: str) -> None:
        for stage in stage_processes(self._fleet.process(name).pid):
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended since it was found
                stage.send_signal(signal.SIGUSR1)
