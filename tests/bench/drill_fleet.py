"""The fleet of the `drill` benchmark: four PCs to be disturbed, one that is left alone, and a look at the status."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from console.api.admin import types as wire
from console.client import AdminClient
from console.errors import ClientError
from installer.loopback import AgentSettings, LoopbackFleet
from installer.processes import LoopbackError
from tests.bench.drill_cases import Standby
from tests.bench.net import Link, Network
from tests.bench.two_pcs import named_copy
from tests.support.faults import Faults
from tests.support.streamed import Heard, Question, stream

Say = Callable[[str], None]
PCS = ("pc-0", "pc-1", "pc-2", "pc-3")
QUIET_PC = "pc-quiet"
MODEL, QUIET = "drilled", "undisturbed"
STAGES, STREAMS, CONTEXT = 2, 4, 256
STANDBYS = 2
"""So that each stage has a hot one of its own."""
WHOLE_WAIT_S = 90.0
POLL_S = 0.05


class Watched:
    """What the status said of the model, and when, from before a fault on."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, tuple[Any, ...]]] = []

    def differs_after_s(self, at_s: float) -> list[float]:
        """Return how long after a moment the status first said something else than before it, if it did."""
        before = [what for when_s, what in self.seen if when_s < at_s]
        first = next((when_s for when_s, what in self.seen if when_s >= at_s and what != before[-1]), None)
        return [] if first is None else [first - at_s]

    def wait_for_difference(self, at_s: float, wait_s: float) -> None:
        """Return once there is such a look, or so long after the moment."""
        while not self.differs_after_s(at_s) and time.monotonic() < at_s + wait_s:
            time.sleep(POLL_S)


class DrillFleet:
    """A context manager; blocking calls. `standby` is what the drilled model was deployed with last."""

    def __init__(self, root: Path, library: Path, say: Say) -> None:
        self._root, self._library, self._say = root, library, say
        self._stack = ExitStack()
        self._links: dict[str, Link] = {}
        self.standby: Standby | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._network = stack.enter_context(Network())

            def route(name: str, port: int) -> int:
                self._links[name] = self._network.link(port)
                return self._links[name].port

            agents = [AgentSettings(name, module="tests.support.erring_agent") for name in (*PCS, QUIET_PC)]
            self._fleet = stack.enter_context(LoopbackFleet(self._root / "fleet", agents, self._say, route=route))
            for model in (MODEL, QUIET):
                self._fleet.admin.add_library(named_copy(self._library, self._root / model, model))
            self._fleet.deploy(self._request(QUIET, [QUIET_PC], stages=1))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def faults(self) -> Faults:
        """What can be done to its PCs."""
        return Faults(self._fleet, self._network, self._links)

    def deploy(self, standby: Standby) -> None:
        """Serve the drilled model anew, with standbys of a kind, and wait for all of it."""
        self.standby = standby
        self._fleet.deploy(self._request(MODEL, PCS, stages=STAGES, standbys=STANDBYS, standby=standby))
        self.wait_until_whole(standby)

    def ask(
        self, question: Question, *, on_token: Callable[[int], None] = lambda count: None, heard: Heard | None = None
    ) -> Heard:
        """Ask the drilled pipeline."""
        return stream(self._fleet.api_url, self._fleet.chat_key, MODEL, question, on_token, heard)

    def ask_undisturbed(self, question: Question) -> Heard:
        """Ask the pipeline that nobody touches."""
        return stream(self._fleet.api_url, self._fleet.chat_key, QUIET, question)

    def stages(self) -> int:
        """How many stages serve now."""
        return len(self._view(self._fleet.admin).stages)

    def running(self) -> int:
        """How many answers have a place now."""
        return self._view(self._fleet.admin).running

    def pc_of(self, stage: int) -> str:
        """Who runs a stage now."""
        return self._view(self._fleet.admin).stages[stage].device_name

    @contextlib.contextmanager
    def watched(self) -> Iterator[Watched]:
        """Look at the status all the time; there is one look when this is entered."""
        watched, stop = Watched(), threading.Event()

        def look() -> None:
            with AdminClient.for_data_folder(self._fleet.console_folder) as admin:
                while not stop.is_set():
                    with contextlib.suppress(ClientError):  # a console that is busy is asked again
                        view = self._view(admin)
                        what = (view.state, view.epoch, [stage.device_id for stage in view.stages])
                        watched.seen.append((time.monotonic(), what))
                    stop.wait(POLL_S)

        thread = threading.Thread(target=look, name="status")
        thread.start()
        try:
            while not watched.seen and thread.is_alive():
                time.sleep(0.001)
            yield watched
        finally:
            stop.set()
            thread.join()

    def wait_until_whole(self, standby: Standby) -> None:
        """Wait until all PCs are there and the model serves with its standby. Raises LoopbackError."""
        self._fleet.wait_for_agents(len(PCS) + 1, WHOLE_WAIT_S)
        deadline_s = time.monotonic() + WHOLE_WAIT_S
        while not self._is_whole(standby):
            if time.monotonic() > deadline_s:
                raise LoopbackError(f"Not whole within {WHOLE_WAIT_S:.0f} s: {self._view(self._fleet.admin)}")
            time.sleep(POLL_S)

    def _is_whole(self, standby: Standby) -> bool:
        view = self._view(self._fleet.admin)
        there = [one for one in view.standbys if one.ready and one.kind == standby]
        if view.state != "ready" or len(view.stages) != STAGES:
            return False
        if standby == "hot":
            return {(one.first, one.last) for one in there} == {(one.first, one.last) for one in view.stages}
        return len({one.device_id for one in there}) == STANDBYS

    @staticmethod
    def _view(admin: AdminClient) -> wire.PipelineView:
        return next(view for view in admin.status().pipelines if view.model == MODEL)

    def _request(self, model: str, pcs: tuple[str, ...] | list[str], **fields: Any) -> wire.DeployRequest:
        devices = {agent.name: agent.device_id for agent in self._fleet.admin.agents()}
        return wire.DeployRequest(
            model=model,
            devices=[devices[name] for name in pcs],
            numerics="exact",
            context=CONTEXT,
            streams=STREAMS,
            **fields,
        )
