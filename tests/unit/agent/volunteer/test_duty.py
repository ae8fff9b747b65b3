"""The volunteer's loop, with probes and work that the test plays."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from agent.stage.gate import Gates
from agent.volunteer.clock import steady_s
from agent.volunteer.documents import PolicyBody
from agent.volunteer.duty import GIVE_BACK_AGAIN_S, LONGEST_PAUSE_S, Volunteer
from agent.volunteer.facts import Facts
from agent.volunteer.keeping import PolicyKeeper
from agent.volunteer.policy import Policy, Wishes
from agent.volunteer.presence import Presence
from agent.volunteer.reasons import Reason, ReasonCode, Severity
from agent.volunteer.states import Pause, Phase, Release, Resume
from agent.volunteer.surroundings import LinkPhase, StagesPhase
from tests.support.patience import PATIENCE_S
from tests.support.volunteers import PlayedBoard, quick


@dataclass
class Work:
    """A stage, as far as the volunteer sees it."""

    volunteer: Volunteer
    stages_phase: StagesPhase = "none"
    link_phase: LinkPhase = "up"
    told: list[tuple[str, list[str]]] = field(default_factory=list)
    given_back: int = 0
    problem: str = ""
    slow: asyncio.Event | None = None

    def tell_availability(self) -> None:
        state, reasons = self.volunteer.availability()
        self.told.append((state, reasons))

    async def give_back(self) -> str:
        self.given_back += 1
        self.stages_phase = "ending"
        if self.slow is not None:
            await self.slow.wait()
        self.stages_phase = "none"
        return self.problem


@dataclass
class Duty:
    volunteer: Volunteer
    work: Work
    board: PlayedBoard
    changes: list[Phase]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self.volunteer.look_again()
                await asyncio.sleep(0.01)

    async def reach(self, phase: Phase) -> None:
        await self.until(lambda: self.volunteer.state.phase is phase)

    async def serve(self) -> None:
        await self.reach(Phase.AVAILABLE)
        self.work.stages_phase = "ready"
        await self.reach(Phase.SERVING)


@contextlib.asynccontextmanager
async def on_duty(
    folder: Path, adjust: Callable[[Policy], Policy] = quick, *, always: bool = False
) -> AsyncIterator[Duty]:
    board, changes = PlayedBoard(), list[Phase]()
    keeper = PolicyKeeper(folder, now_s=time.time())
    volunteer = Volunteer(
        keeper,
        Gates(folder / "gates"),
        None if always else board,
        adjust=adjust,
        on_change=lambda: changes.append(volunteer.state.phase),
        jitter_s=0.0,
    )
    # Nobody has been here for long; as it is, the start counts as an input.
    volunteer.state = msgspec.structs.replace(volunteer.state, presence=Presence(steady_s() - 1e6, None))
    work = Work(volunteer)
    task = asyncio.create_task(volunteer.run(work))
    try:
        yield Duty(volunteer, work, board, changes)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def duty(tmp_path: Path) -> AsyncIterator[Duty]:
    async with on_duty(tmp_path) as duty:
        yield duty


async def test_a_resting_pc_becomes_available_and_the_console_hears_it_once(duty: Duty) -> None:
    await duty.serve()
    assert duty.work.told == [("available", [])]
    assert duty.volunteer.refusal("CPU") == ""
    assert not duty.volunteer.gates.are_shut
    assert duty.board.closely[-1]


async def test_the_first_input_shuts_the_gates_in_the_thread_that_hears_it(duty: Duty) -> None:
    await duty.serve()
    shut = list[bool]()

    def hear() -> None:
        duty.board.idle_s = 0.0
        duty.volunteer.seen("played")
        shut.append(duty.volunteer.gates.are_shut)

    thread = threading.Thread(target=hear)
    thread.start()
    thread.join()  # the loop has not had a turn
    assert shut == [True]
    await duty.until(lambda: duty.work.given_back == 1)
    assert duty.work.told[-1] == ("held", ["user_input"])
    assert "somebody is using it" in duty.volunteer.refusal("CPU")
    await duty.reach(Phase.HELD)
    assert duty.volunteer.gates.are_shut


async def test_input_while_the_pc_is_held_costs_nothing(duty: Duty) -> None:
    duty.board.idle_s = 0.0
    await duty.reach(Phase.HELD)
    duty.volunteer.seen("a push")
    duty.volunteer.look_again()
    await duty.until(lambda: duty.volunteer.state.presence.source == "played")


@pytest.mark.parametrize("was_armed", [True, False])
async def test_a_look_under_way_does_not_undo_what_the_first_input_did(
    duty: Duty, monkeypatch: pytest.MonkeyPatch, was_armed: bool
) -> None:
    await duty.serve()
    volunteer, snapshot = duty.volunteer, duty.board.snapshot
    volunteer._doors._are_watched = was_armed

    def snapshot_before_the_input() -> Facts:
        assert not volunteer.gates.are_shut
        facts = snapshot()
        thread = threading.Thread(target=volunteer.seen, args=("a push",))
        thread.start()
        thread.join()
        return facts

    monkeypatch.setattr(duty.board, "snapshot", snapshot_before_the_input)
    volunteer._look(duty.work)
    assert volunteer.gates.are_shut
    assert not volunteer._doors._are_watched
    assert volunteer._news.is_set()
    monkeypatch.setattr(duty.board, "snapshot", snapshot)
    await duty.until(lambda: duty.work.given_back == 1)
    assert volunteer.state.presence.source == "a push"


async def test_an_input_right_before_a_look_keeps_the_gates_shut_though_no_probe_knows_it(duty: Duty) -> None:
    volunteer = duty.volunteer
    volunteer.order(Pause(None))
    await duty.reach(Phase.HELD)
    volunteer.order(Resume())
    volunteer.seen("a push")
    volunteer._look(duty.work)
    assert volunteer.state.offers, "the probes know of nobody"
    assert volunteer.gates.are_shut
    volunteer._look(duty.work)
    assert volunteer.state.codes() == ["user_input"]
    await duty.reach(Phase.AVAILABLE)
    assert not volunteer.gates.are_shut


async def test_a_short_grace_keeps_the_memory_and_gives_it_back_if_the_owner_stays(tmp_path: Path) -> None:
    release_after_s = math.inf

    def patient(policy: Policy) -> Policy:
        return msgspec.structs.replace(quick(policy), release_after_s=release_after_s)

    async with on_duty(tmp_path, patient) as duty:
        await duty.serve()
        duty.board.idle_s = 0.0
        await duty.reach(Phase.PAUSED)
        assert duty.volunteer.gates.are_shut
        assert duty.work.given_back == 0
        assert duty.work.told[-1][0] == "held"
        release_after_s = 0.3
        await duty.until(lambda: duty.work.given_back == 1)
        await duty.reach(Phase.HELD)


async def test_input_during_loading_ends_the_load(duty: Duty) -> None:
    await duty.reach(Phase.AVAILABLE)
    duty.work.stages_phase = "loading"
    await duty.reach(Phase.LOADING)
    duty.volunteer.seen("played")
    await duty.until(lambda: duty.work.given_back == 1)


async def test_input_during_the_release_starts_no_second_one(duty: Duty) -> None:
    await duty.serve()
    duty.work.slow = asyncio.Event()
    duty.volunteer.order(Release())
    await duty.reach(Phase.RELEASING)
    for _ in range(5):
        duty.board.idle_s = 0.0
        duty.volunteer.seen("played")
        duty.volunteer.look_again()
        await asyncio.sleep(0.01)
    assert duty.work.given_back == 1
    duty.work.slow.set()
    await duty.reach(Phase.HELD)


async def test_memory_that_does_not_come_back_is_a_fault(duty: Duty, expected_logs: Callable[..., None]) -> None:
    expected_logs("agent.volunteer.duty", "did not come back")
    await duty.serve()
    duty.work.problem = "the graphics memory is still taken"
    duty.volunteer.order(Release())
    await duty.until(lambda: "fault_backoff" in duty.volunteer.state.codes())
    assert duty.volunteer.state.fault_detail == "the graphics memory is still taken"


async def test_giving_back_that_fails_is_tried_again_but_not_all_the_time(
    duty: Duty, monkeypatch: pytest.MonkeyPatch, expected_logs: Callable[..., None]
) -> None:
    expected_logs("agent.volunteer.duty", "Giving the memory back failed")
    expected_logs("agent.volunteer.duty", "did not come back")
    await duty.serve()
    tried = list[str]()

    async def fail() -> str:
        tried.append(duty.work.stages_phase)
        raise OSError

    monkeypatch.setattr(duty.work, "give_back", fail)
    later = [0.0]
    monkeypatch.setattr(duty.volunteer, "_clock", lambda: steady_s() + later[0])
    duty.volunteer.order(Release())
    await duty.until(lambda: "fault_backoff" in duty.volunteer.state.codes())
    for _ in range(5):
        duty.volunteer._look(duty.work)
        await asyncio.sleep(0)
    assert tried == ["ready"]
    later[0] = GIVE_BACK_AGAIN_S
    await duty.until(lambda: tried == ["ready", "ready"])


async def test_giving_back_waits_for_no_console(duty: Duty) -> None:
    await duty.serve()
    duty.work.link_phase = "down"
    duty.board.idle_s = 0.0
    duty.volunteer.seen("played")
    await duty.until(lambda: duty.work.given_back == 1)


async def test_a_pause_beats_everything_and_survives_a_restart(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as duty:
        await duty.serve()
        duty.volunteer.order(Pause(None))
        await duty.until(lambda: duty.work.given_back == 1)
    async with on_duty(tmp_path) as duty:
        await duty.until(lambda: duty.volunteer.state.pause_until_s == math.inf)
        duty.volunteer.order(Resume())
        await duty.reach(Phase.AVAILABLE)
    async with on_duty(tmp_path) as duty:
        duty.volunteer.order(Pause(steady_s() + 3600))
    async with on_duty(tmp_path) as duty:
        await duty.until(lambda: duty.volunteer.state.pause_until_s is not None)
        assert duty.volunteer.state.pause_until_s == pytest.approx(steady_s() + 3600, abs=60)


async def test_an_unanswered_question_holds_a_pc_only_where_consent_is_needed(duty: Duty) -> None:
    volunteer, keeper = duty.volunteer, duty.volunteer.keeper
    await duty.serve()
    keeper._admin = PolicyBody(1, "fleet", "pc", 7, 0.0, math.inf, Wishes(enabled=True, consent_needed=True))
    volunteer.policy_changed()
    await duty.until(lambda: duty.work.given_back == 1)
    await duty.reach(Phase.HELD)
    assert volunteer.state.codes() == ["consent"]
    keeper.change("enabled", True)
    volunteer.policy_changed()
    await duty.reach(Phase.AVAILABLE)
    keeper.change("enabled", False)
    volunteer.policy_changed()
    await duty.reach(Phase.OFF)


async def test_a_machine_nobody_sits_at_asks_nobody(tmp_path: Path) -> None:
    async with on_duty(tmp_path, always=True) as duty:
        admin = PolicyBody(1, "fleet", "pc", 7, 0.0, math.inf, Wishes(consent_needed=True))
        duty.volunteer.keeper._admin = admin
        duty.volunteer.policy_changed()
        await duty.reach(Phase.AVAILABLE)
        assert duty.volunteer.state.codes() == []


async def test_a_clock_that_is_years_late_does_not_pause_for_years(tmp_path: Path) -> None:
    keeper = PolicyKeeper(tmp_path, now_s=time.time())
    keeper.keep_pause(time.time() + 20 * 365 * 86_400.0)
    volunteer = Volunteer(keeper, Gates(tmp_path / "gates"), None, clock=lambda: 100.0)
    volunteer._look(Work(volunteer))
    assert volunteer.state.pause_until_s == 100.0 + LONGEST_PAUSE_S


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ([], ""), (["user_input", "cpu_busy", "session_remote"], ""),
        (["user_input", "metered_net"], "its network connection is metered"),
        (["on_battery", "fullscreen"], "it runs on its battery, a program fills its screen"),
        (["consent"], "its owner has not agreed yet"), (["disk_low"], "its disk is nearly full"),
    ],
)  # fmt: skip
async def test_files_come_and_go_beside_an_owners_work_but_not_at_their_expense(
    tmp_path: Path, codes: list[str], said: str
) -> None:
    volunteer = Volunteer(PolicyKeeper(tmp_path, now_s=time.time()), Gates(tmp_path / "gates"), None)
    reasons = tuple(Reason(ReasonCode(code), Severity.PAUSE, since_s=0.0) for code in codes)
    volunteer.state = msgspec.structs.replace(volunteer.state, reasons=reasons)
    assert volunteer.spared() == said


@pytest.mark.parametrize("code", ReasonCode)
async def test_what_an_owner_pays_for_is_among_what_they_are_spared(tmp_path: Path, code: ReasonCode) -> None:
    volunteer = Volunteer(PolicyKeeper(tmp_path, now_s=time.time()), Gates(tmp_path / "gates"), None)
    reasons = (Reason(code, Severity.PAUSE, since_s=0.0),)
    volunteer.state = msgspec.structs.replace(volunteer.state, reasons=reasons)
    assert volunteer.pays == (code in {"metered_net", "on_battery", "battery_low", "power_saver"})
    assert bool(volunteer.spared()) >= volunteer.pays


async def test_who_refuses_work_says_why_in_words(tmp_path: Path) -> None:
    volunteer = Volunteer(PolicyKeeper(tmp_path, now_s=time.time()), Gates(tmp_path / "gates"), None)
    reasons = (Reason(ReasonCode.METERED_NET, Severity.PAUSE, since_s=0.0),)
    volunteer.state = msgspec.structs.replace(volunteer.state, reasons=reasons)
    assert volunteer.refusal() == ("this PC is not available now (its network connection is metered); plan without it.")


@pytest.mark.parametrize(
    "order", list(itertools.permutations(["admin resumes", "owner pauses", "look"])), ids=", ".join
)
@pytest.mark.parametrize("again", [False, True], ids=["once", "and the administrator again"])
async def test_an_administrators_resume_never_ends_the_owners_pause(
    tmp_path: Path, order: tuple[str, ...], again: bool
) -> None:
    keeper = PolicyKeeper(tmp_path, now_s=time.time())
    volunteer = Volunteer(keeper, Gates(tmp_path / "gates"), None)
    work = Work(volunteer)

    def admin(*, paused: bool) -> None:
        keeper._admin = PolicyBody(1, "fleet", "pc", 7, 0.0, math.inf, Wishes(paused=paused))
        volunteer.policy_changed()

    ways: dict[str, Callable[[], None]] = {
        "admin resumes": lambda: admin(paused=False),
        "owner pauses": lambda: volunteer.order(Pause(None)),
        "look": lambda: volunteer._look(work),
    }
    admin(paused=True)
    volunteer._look(work)
    assert volunteer.state.codes() == ["paused_by_admin"]
    for one in [*order, *(["admin resumes", "look"] if again else [])]:
        ways[one]()
    volunteer._look(work)
    assert volunteer.state.codes() == ["paused_by_user"]
    assert volunteer.refusal("CPU")
    assert volunteer.gates.are_shut


async def test_other_devices_are_noticed_once_whoever_wants_them(tmp_path: Path) -> None:
    heard = list[str]()
    keeper = PolicyKeeper(tmp_path, now_s=time.time())
    volunteer = Volunteer(keeper, Gates(tmp_path / "gates"), None, on_devices=lambda: heard.append("devices"))
    keeper.change("idle_start_s", 600)
    volunteer.policy_changed()
    assert heard == []
    keeper.change("devices_off", ["GPU.1"])
    volunteer.policy_changed()
    volunteer.policy_changed()
    assert heard == ["devices"]
    keeper._admin = PolicyBody(1, "fleet", "pc", 7, 0.0, math.inf, Wishes(devices=frozenset({"CPU"})))
    volunteer._look(Work(volunteer))
    volunteer._look(Work(volunteer))
    assert heard == ["devices", "devices"]
    assert volunteer.refusal("CPU") == ""
    assert "GPU.0 may not be used" in volunteer.refusal("GPU.0")


async def test_sleep_waits_until_everything_is_given_back(duty: Duty) -> None:
    await duty.serve()
    duty.work.slow = asyncio.Event()
    duty.volunteer.hear("suspending")
    await duty.reach(Phase.RELEASING)
    waiting = asyncio.create_task(duty.volunteer.given_back())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    duty.work.slow.set()
    await asyncio.wait_for(waiting, PATIENCE_S)
    duty.volunteer.hear("resumed")
    await duty.reach(Phase.AVAILABLE)


async def test_sleep_waits_for_a_load_that_began_since_the_last_look(tmp_path: Path) -> None:
    volunteer = Volunteer(PolicyKeeper(tmp_path, now_s=time.time()), Gates(tmp_path / "gates"), PlayedBoard())
    work = Work(volunteer)
    volunteer._look(work)
    work.stages_phase = "loading"
    volunteer._take_event("suspending")
    waiting = asyncio.create_task(volunteer.given_back())
    await asyncio.sleep(0)
    assert not waiting.done()
    volunteer._look(work)
    await asyncio.sleep(0)
    assert not waiting.done()
    work.stages_phase = "none"
    volunteer._look(work)
    await asyncio.wait_for(waiting, PATIENCE_S)


async def test_a_pc_that_shuts_down_gives_everything_back(duty: Duty) -> None:
    await duty.serve()
    duty.volunteer.hear("shutting_down")
    await duty.until(lambda: duty.work.given_back == 1)
    assert duty.work.told[-1] == ("held", ["shutting_down"])
    duty.volunteer.hear("suspending")
    await duty.until(lambda: set(duty.volunteer.state.codes()) == {"shutting_down", "suspending"})
    duty.volunteer.hear("resumed")  # it was called off
    await duty.reach(Phase.AVAILABLE)


async def test_a_machine_nobody_sits_at_is_available_at_once_and_held_by_orders_only(tmp_path: Path) -> None:
    async with on_duty(tmp_path, always=True) as duty:
        assert duty.volunteer.availability() == ("available", [])
        await duty.serve()
        duty.volunteer.seen("played")
        duty.volunteer.fault("its child died")
        duty.volunteer.look_again()
        await asyncio.sleep(0.05)
        assert duty.volunteer.state.phase is Phase.SERVING
        duty.volunteer.order(Pause(None))
        await duty.until(lambda: duty.work.given_back == 1)
        assert duty.volunteer.refusal("CPU")


@pytest.mark.parametrize("until_s", [None, 3600.0], ids=["until it is ended", "for an hour"])
@pytest.mark.parametrize("is_looked_at", [True, False])
async def test_to_give_memory_back_does_not_shorten_a_longer_pause(
    tmp_path: Path, until_s: float | None, is_looked_at: bool
) -> None:
    async with on_duty(tmp_path, always=True) as duty:
        await duty.serve()
        duty.volunteer.order(Pause(until_s if until_s is None else steady_s() + until_s))
        if is_looked_at:
            await duty.until(lambda: duty.volunteer.state.pause_until_s is not None)
        kept = duty.volunteer.keeper.owner.pause_until_unix_s
        duty.volunteer.order(Release())
        await duty.until(lambda: not duty.volunteer._orders)
        assert duty.volunteer.state.pause_until_s is not None
        assert duty.volunteer.state.pause_until_s > steady_s() + 3000
        assert duty.volunteer.keeper.owner.pause_until_unix_s == kept != 0.0
        duty.volunteer.order(Resume())
        duty.volunteer.order(Release())
        await duty.until(lambda: not duty.volunteer._orders)
        assert duty.volunteer.state.pause_until_s == pytest.approx(steady_s() + 60, abs=30)


async def test_the_end_of_the_agent_shuts_the_gates(tmp_path: Path) -> None:
    async with on_duty(tmp_path) as duty:
        await duty.serve()
        gates = duty.volunteer.gates
    assert gates.are_shut


def drain(duty: Duty) -> None:
    """Let the administrator take the PC out of service."""
    duty.volunteer.keeper._admin = PolicyBody(1, "fleet", "pc", 8, 0.0, math.inf, Wishes(drain=True))
    duty.volunteer.policy_changed()


async def test_a_pc_that_is_taken_out_of_service_works_on_until_others_have_taken_over(duty: Duty) -> None:
    await duty.serve()
    drain(duty)
    await duty.until(lambda: duty.work.told[-1] == ("held", ["drain"]))
    assert duty.volunteer.refusal() == ""
    assert not duty.volunteer.gates.are_shut
    assert duty.volunteer.state.phase is Phase.SERVING
    duty.work.stages_phase = "none"  # the console has unloaded it
    await duty.until(lambda: bool(duty.volunteer.refusal()))
    assert "drain" in duty.volunteer.state.codes()
    assert not duty.work.given_back


async def test_the_owner_is_waited_for_by_no_handing_over(duty: Duty) -> None:
    await duty.serve()
    drain(duty)
    await duty.until(lambda: duty.work.told[-1] == ("held", ["drain"]))
    duty.volunteer.seen("keyboard")
    assert duty.volunteer.gates.are_shut
    await duty.until(lambda: bool(duty.volunteer.refusal()))
