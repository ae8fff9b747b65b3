"""A desk for pages about plans, without a service: the planner itself answers, on a fleet of toys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import msgspec
from PySide6.QtCore import QTimer

from console.api.admin import types as wire
from console.api.admin.plan_types import PlannedPipeline, PlanRequest, Plans
from console.errors import ClientError, ServiceRefused
from console.fleet.direct import StageLink
from console.gui.bridge import Bridge
from console.gui.feed import Feed
from console.gui.page import Desk
from console.pipeline.types import StageStatus
from console.planner.fleets import plan_fleet
from console.planner.given import GivenStage, check_given
from console.planner.types import AgentFacts, Demand, ModelFacts, Plan
from console.registry.records import Scope
from console.standing import rules_of
from tests.support.plans import SCRATCH, make_fleet, make_model

MODEL = "toy"


class ToyService:
    """What a service would say. Answers come at once, or when `held` is let go."""

    def __init__(self, fleet: list[AgentFacts], model: ModelFacts | None = None) -> None:
        self.fleet = fleet
        self.toy = model or make_model(layers=12)
        self.away: set[str] = set()
        self.running: list[wire.PipelineView] = []
        self.asked: list[tuple[str, Any]] = []
        self.refuses = ""
        self.events: list[wire.DeployEvent] = []
        self.held: list[Callable[[], None]] | None = None
        self.models = [MODEL]

    def usable(self, request: wire.DeployRequest) -> list[AgentFacts]:
        return [
            one
            for one in self.fleet
            if one.device_id not in self.away and (not request.devices or one.device_id in request.devices)
        ]

    def answer(self, path: str, body: bytes | None) -> Any:
        if self.refuses:
            raise ServiceRefused(self.refuses, status=409)
        if path.endswith("/plans/check"):
            request = msgspec.json.decode(body or b"", type=wire.DeployRequest)
            self.asked.append(("check", request))
            return check_given(
                self.toy,
                self.usable(request),
                [[GivenStage(one.device, one.first, one.last) for one in lane] for lane in request.plan],
                context_tokens=request.context,
                streams=request.streams,
                scratch_bytes=SCRATCH,
                rules=rules_of(request),
                current=self.plans(),
                names={one.device_id: one.name for one in self.fleet},
            )
        asked = msgspec.json.decode(body or b"", type=PlanRequest)
        self.asked.append(("plan", asked))
        demand = Demand(
            model=self.toy,
            agents=self.usable(asked.request),
            context_tokens=asked.request.context,
            streams=asked.request.streams,
            pipelines=asked.pipelines,
            rules=rules_of(asked.request),
        )
        found = plan_fleet([demand], scratch_bytes=SCRATCH)
        pipelines = [PlannedPipeline(plan, []) for plan in found.plans[MODEL]]
        return Plans(MODEL, pipelines, found.reasons, found.missing.get(MODEL, ""))

    def plans(self) -> list[Plan]:
        """Return what runs as the planner knows it."""
        running = []
        for view in self.running:
            if not view.stages:
                continue  # it waits for PCs
            lane = [GivenStage(one.device_id, one.first, one.last) for one in view.stages]
            checked = check_given(self.toy, self.fleet, [lane], context_tokens=16, streams=1, scratch_bytes=0)
            plan = checked.pipelines[0].plan
            assert plan is not None
            running.append(plan)
        return running

    def run(self, *lanes: list[tuple[int, int, int]], state: wire.DeploymentState = "ready", **fields: Any) -> None:
        """Let these run: the PC's place in the fleet, its first layer and the one after its last."""
        request = wire.DeployRequest(MODEL, context=1000, streams=2, replicas=max(1, len(lanes)), **fields)
        self.running = []
        for number, lane in enumerate(lanes):
            stages = [
                StageStatus(self.fleet[at].device_id, self.fleet[at].name, first, last, "paged", True, 1.0, 1.0)
                for at, first, last in lane
            ]
            links = [
                StageLink(index, "console" if index == 0 else "direct" if index % 2 else "relay", "", 0.8 * index)
                for index in range(len(lane))
            ]
            self.running.append(
                wire.PipelineView(
                    MODEL, state, "", 1, wire.Probe(True, 1.0), request, number=number, stages=stages, links=links
                )
            )

    def status(self) -> wire.Status:
        return wire.Status("1", 0.0, "http://console:8460", ["wss://console:8461"], 0, 0, self.running)

    def agents(self) -> list[wire.Agent]:
        return [self._agent(one) for one in self.fleet]

    def _agent(self, facts: AgentFacts) -> wire.Agent:
        here = facts.device_id not in self.away
        return wire.Agent(
            facts.device_id,
            facts.name,
            "active",
            "",
            "",
            "connected" if here else "offline",
            0.0,
            memory_bytes=facts.memory_budget_bytes,
            volunteering="available" if here else "",
        )

    def libraries(self) -> list[wire.Library]:
        return [
            wire.Library(f"{number:064}", model, f"/libraries/{model}", 0.0, self.toy.layers, 10**9, 4096)
            for number, model in enumerate(self.models)
        ]


class ToyJob:
    """Stands in for a Job."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ToyBridge:
    """Carries calls to a ToyService."""

    def __init__(self, service: ToyService) -> None:
        self.service = service

    def ask(self, call: Any, on_answer: Callable[[Any], object], on_failed: Callable[[ClientError], object]) -> ToyJob:
        job = ToyJob()

        def carry() -> None:
            if job.cancelled:
                return
            try:
                answer = self.service.answer(call.path, call.body)
            except ClientError as error:
                on_failed(error)
            else:
                on_answer(call.read(msgspec.json.encode(answer)))

        self._soon(carry)
        return job

    def follow(
        self, call: Any, on_line: Callable[[Any], object], on_end: Callable[[ClientError | None], object]
    ) -> ToyJob:
        job = ToyJob()
        self.service.asked.append(("deploy", msgspec.json.decode(call.body, type=wire.DeployRequest)))

        def carry() -> None:
            for event in self.service.events:
                on_line(event)
            on_end(None)

        self._soon(carry)
        return job

    def _soon(self, carry: Callable[[], None]) -> None:
        if self.service.held is not None:
            self.service.held.append(carry)
        else:
            QTimer.singleShot(0, carry)


@contextmanager
def toy_desk(service: ToyService, scopes: Sequence[Scope] = ("admin",)) -> Iterator[Desk]:
    """Return a desk whose feeds have heard everything; `tell` of its feeds says it again."""
    bridge = cast(Bridge, ToyBridge(service))
    feeds = [ToyFeed(bridge) for _ in range(3)]
    yield Desk(bridge, feeds[0], feeds[1], feeds[2], wire.Me("key", "", list(scopes)))


class ToyFeed(Feed):
    """A feed that says what it is told."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__(bridge, cast(Any, None), 1.0)

    def now(self) -> None:
        """Ask nobody."""

    def tell(self, answer: Any) -> None:
        self._take(answer)


def tell_all(desk: Desk, service: ToyService) -> None:
    """Let the service say how it is."""
    for feed, answer in (
        (desk.agents, service.agents()),
        (desk.status, service.status()),
        (desk.libraries, service.libraries()),
    ):
        cast(ToyFeed, feed).tell(answer)


def toy_service(*memory_mb: int, layers: int = 12, speeds: list[float | None] | None = None) -> ToyService:
    return ToyService(make_fleet(list(memory_mb), speeds), make_model(layers=layers))
