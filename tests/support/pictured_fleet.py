"""A fleet to look at: what a service would say of it, always the same, and a bridge that says so at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from PySide6.QtCore import QObject

from agent.look.loop import Job
from console import calls
from console.access import Access
from console.api.admin import build_types as builds
from console.api.admin import types as wire
from console.call import Call, LineCall
from console.errors import ServiceRefused
from console.fleet.direct import StageLink
from console.gui.bridge import Bridge
from console.gui.feed import Feed
from console.gui.page import Desk
from console.pipeline.parts import StageTime, TimeParts
from console.pipeline.types import SpeculationStatus, StageStatus
from console.planner.given import CheckedPipeline, CheckedPlan, CheckedStage, UsablePc
from console.planner.types import Plan, PlannedStage
from console.registry.records import ApiKey, AuditEntry, InviteRecord, Quota, User

NOW_S = 1_796_000_000.0
MODEL = "Qwen3-8B"
DAY_S = 86_400.0

NAMES = ["desk-03", "desk-07", "desk-11", "lab-2", "lab-4", "office-17", "office-21", "reception"]
IDS = [f"{7919 * (place + 1):016x}" for place in range(len(NAMES))]


def agents() -> list[wire.Agent]:
    """Eight PCs: two serve, three wait for work, one is held, one waits to be let in, one is off."""
    volunteering = ["serving", "serving", "available", "available", "available", "held", "", ""]
    made = []
    for place, (device_id, name) in enumerate(zip(IDS, NAMES, strict=True)):
        made.append(
            wire.Agent(
                device_id=device_id,
                name=name,
                state="pending" if place == 6 else "active",
                reason="",
                device_code=f"{1000 + 37 * place}-{2000 + 91 * place}",
                link="offline" if place == 7 else "connected",
                seen_s=NOW_S - (3 if place != 7 else 5 * 3600),
                os="Windows 11" if place % 2 else "Linux 6.1",
                version="0.1.0",
                memory_bytes=(8 + place % 3 * 4) << 30,
                memory_free_bytes=(5 + place % 3 * 3) << 30,
                devices=["CPU", "GPU.0"] if place % 2 else ["CPU"],
                volunteering=volunteering[place],
                held_because=["user_input"] if place == 5 else [],
                key_protection="keyring",
                tags=["site:north"] if place < 4 else ["site:south"],
                rests_percent=90 - 9 * place,
            )
        )
    return made


def status() -> wire.Status:
    """One model in two stages, with a standby."""
    stages = [
        StageStatus(IDS[0], NAMES[0], 0, 19, "paged", True, 61.0, 38.4),
        StageStatus(IDS[1], NAMES[1], 19, 36, "paged", True, 57.0, 35.9),
    ]
    pipeline = wire.PipelineView(
        model=MODEL,
        state="ready",
        message="",
        epoch=4,
        probe=wire.Probe(True, 2.0, 74.0, ""),
        request=wire.DeployRequest(model=MODEL, standbys=1),
        stages=stages,
        links=[StageLink(0, "console"), StageLink(1, "relay", "", 2.1)],
        tokens_per_second=31.4,
        overhead_ms=1.3,
        running=3,
        queued=0,
        endings={"stop": 412, "length": 17},
        pace="2 steps of 2 rows take about 84 ms a round.",
        speculation=SpeculationStatus("lookup", 0.41, 2.6, 1.8),
        standbys=[wire.StandbyView(IDS[2], NAMES[2], "warm", 0, 36)],
    )
    return wire.Status(
        "0.1.0", NOW_S - 3 * DAY_S, "https://console.example:8460", ["wss://console.example:8461"], 7, 8, [pipeline]
    )


def libraries() -> list[wire.Library]:
    """One that is served and one that is not."""
    return [
        wire.Library(
            "a" * 64, MODEL, "/srv/models/qwen3-8b", NOW_S - 2 * DAY_S, 36, 4_700_000_000, 40_960, family="qwen3",
            layer_mode="int4_gptq", bits_per_weight=4.6, top1_agreement=0.91, mean_kl=0.05,
        ),
        wire.Library(
            "b" * 64, "SmolLM2-135M-Instruct", "/srv/models/smollm2", NOW_S - 9 * DAY_S, 30, 90_000_000, 2_048,
            family="llama", layer_mode="gguf", bits_per_weight=5.0, top1_agreement=0.99, mean_kl=0.002,
        ),
    ]  # fmt: skip


def performances() -> wire.Performances:
    """A quarter of an hour in which the model got busier."""
    rates = [12 + place % 5 + place for place in range(30)]
    firsts: list[float | None] = [420.0 + 9 * (place % 7) for place in range(30)]
    betweens: list[float | None] = [62.0 + place % 4 for place in range(30)]
    return wire.Performances(
        30.0, [wire.ModelPerformance(MODEL, 57, 471.0, 65.0, [float(rate) for rate in rates], firsts, betweens)]
    )


def answer_times() -> list[wire.AnswerTime]:
    """Three answers, each slow for a reason of its own."""
    stages = [StageTime("desk-03", 9_240.0, 390.0, 2_310.0), StageTime("desk-07", 19_120.0, 440.0, 3_520.0)]
    slow = wire.AnswerTime(
        NOW_S - 70, "req_5c1e88f0a3d24b7c", "k1", MODEL, 0, "stop", "", 812, 512, 96, 1_480.0, 40_710.0,
        TimeParts(120.0, 1_360.0, 2_380.0, 28_360.0, 830.0, 5_830.0, 696.0, 1_118.0, 0.0, 16.0), stages,
        ["desk-03", "desk-07"], 44, 31, "Most of 40.7 s was inference: 28.4 s (70%), 19.1 s of it at desk-07.",
    )  # fmt: skip
    lost = msgspec.structs.replace(
        slow, ended_s=NOW_S - 900, request_id="req_90ab34c1", total_ms=31_900.0, ending="error", code="stage_lost",
        parts=TimeParts(queue_ms=400.0, prompt_ms=900.0, recovery_ms=30_600.0), stages=[],
        slowest="Most of 31.9 s was others taking over from a PC that was lost: 30.6 s (96%).",
    )  # fmt: skip
    waited = msgspec.structs.replace(
        slow, ended_s=NOW_S - 200, request_id="req_77d0", total_ms=9_800.0, first_token_ms=8_900.0, answer_tokens=12,
        parts=TimeParts(queue_ms=8_200.0, prompt_ms=700.0, compute_ms=800.0, link_ms=100.0),
        slowest="Most of 9.8 s was waiting for a place: 8.2 s (84%).",
    )  # fmt: skip
    return [slow, lost, waited]


def answers() -> dict[str, Any]:
    """What each question is answered with, by its path."""
    made: dict[Call[Any], Any] = {
        calls.status(): status(),
        calls.agents(): agents(),
        calls.libraries(): libraries(),
        calls.performances(): performances(),
        calls.answer_times("slowest", 200): answer_times(),
        calls.deliveries(): [wire.DeliveryView("SmolLM2-135M-Instruct", 0, 30, 7, 4, 0, NOW_S - 90)],
        calls.builds(): builds.Builds([build()]),
        calls.invites(): [
            InviteRecord("11aa", "auto", 20, 7, "Second floor", NOW_S - DAY_S, "owner", NOW_S + DAY_S, None, ["north"]),
            InviteRecord("22bb", "manual", 1, 1, "Lab", NOW_S - 3 * DAY_S, "owner", NOW_S - DAY_S, None),
        ],
        calls.users(): [User("owner", "owner", NOW_S - 30 * DAY_S, None, True)],
        calls.keys(): [
            ApiKey("k1", "Editor plug-in", ["chat"], NOW_S - 5 * DAY_S, NOW_S + 25 * DAY_S, None, "owner",
                   Quota(4, 2_000_000), 48_200),
        ],
        calls.policy(): wire.PolicyView(
            [
                wire.PolicyScope("", {"idle_start_s": 600.0, "schedule": "Mon-Fri 18:00-07:00"}, 3, NOW_S - DAY_S),
                wire.PolicyScope("lab", {"idle_start_s": 120.0}, 1, NOW_S - 3 * DAY_S),
            ],
            [], {},
        ),
        calls.authority(): wire.AuthorityView("f" * 16, "Example fleet", "ab" * 32, "steady", 0.0, ["7b01"], "keyring"),
        calls.audit(): [
            AuditEntry(9 - place, NOW_S - 600.0 * place, "owner", action, IDS[place], "192.0.2.7", {}, "")
            for place, action in enumerate(("deployment.begin", "device.approve", "invite.create", "key.create"))
        ],
        calls.check_plan(wire.DeployRequest(model=MODEL)): checked(),
    }  # fmt: skip
    return {urlsplit(call.path).path: answer for call, answer in made.items()}


def checked() -> CheckedPlan:
    """The plan that runs, as the service finds it."""
    stages = [
        PlannedStage(IDS[place], NAMES[place], "CPU", "paged", first, last, ms, 2_700_000_000)
        for place, (first, last, ms) in enumerate(((0, 19, 38.4), (19, 36, 35.9)))
    ]
    plan = Plan(MODEL, 2048, 8, stages, 25.8, 51.6, ["Two PCs are needed to hold it."])
    usable = [
        UsablePc(agent.device_id, agent.name, 5_000_000_000, 2.0 + place / 10, measured=True, site="north")
        for place, agent in enumerate(agents()[:5])
    ]
    pipeline = CheckedPipeline([CheckedStage(stage, 5_000_000_000) for stage in stages], plan)
    return CheckedPlan(MODEL, 36, [pipeline], [], ["desk-03 is the slowest stage."], usable, runs=True)


def build() -> builds.Build:
    """A build half way."""
    return builds.Build(
        build_id="b1", request=builds.BuildRequest("/srv/checkpoints/llama-3.1-8b", "/srv/models/llama-3.1-8b"),
        model_id="Llama-3.1-8B-Instruct", state="running", phase="layers", by="owner", family="llama", layer=18,
        layer_count=32, layer_s=6.1, left_s=96.0, created_s=NOW_S - 130, begun_s=NOW_S - 120, news_s=NOW_S - 2,
        spent_s=118.0, memory_bytes=1_300_000_000, memory_peak_bytes=1_500_000_000, estimated_bytes=4_900_000_000,
        estimated_s=230.0, estimated_memory_bytes=1_700_000_000,
    )  # fmt: skip


class SayingBridge(Bridge):
    """Answers every question at once, on the thread that asks; what it does not know it refuses."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(Access("https://console.example:8460", "token", Path("ca.pem")), parent)
        self.answers = answers()

    def ask(
        self,
        call: Call[Any],
        on_answer: Callable[[Any], object] = lambda _: None,
        on_failed: Callable[[Any], object] = lambda _: None,
    ) -> Job:
        path = urlsplit(call.path).path
        if path in self.answers and (call.method == "GET" or path.endswith("/check")):
            on_answer(self.answers[path])
        else:
            on_failed(ServiceRefused(f"Nothing is known of {path}.", status=404))
        return Job(self)

    def follow(
        self, call: LineCall[Any], on_line: Callable[[Any], object], on_end: Callable[[Any], object] = lambda _: None
    ) -> Job:
        on_end(ServiceRefused(f"Nothing is known of {call.path}.", status=404))
        return Job(self)


def shown_desk(folder: Path) -> Desk:
    """Return a desk whose service says what this module says."""
    bridge = SayingBridge()
    feeds = [Feed(bridge, call, 3600.0, bridge) for call in (calls.status(), calls.agents(), calls.libraries())]
    me = wire.Me("owner", "owner", sorted(["chat", "view", "operate", "audit", "admin"]))
    return Desk(bridge, feeds[0], feeds[1], feeds[2], me, folder)
