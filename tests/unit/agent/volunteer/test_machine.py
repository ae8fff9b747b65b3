"""The volunteer machine, on a clock that the test turns."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from agent.volunteer.facts import Heat, Memory, Power, Reading
from agent.volunteer.hysteresis import FORGET_S
from agent.volunteer.machine import step
from agent.volunteer.policy import GIB, Policy
from agent.volunteer.presence import Presence, observe
from agent.volunteer.reasons import ReasonCode
from agent.volunteer.schedule import NEVER
from agent.volunteer.states import (
    ContributeNow,
    OwnerSeen,
    Pause,
    Phase,
    Release,
    Resume,
    Situation,
    StageFault,
    VolunteerState,
)
from tests.support.volunteer import PlayedPc, make_facts


def available(state: VolunteerState) -> bool:
    return state.phase is Phase.AVAILABLE


def serving_pc(policy: Policy | None = None) -> PlayedPc:
    pc = PlayedPc(policy)
    pc.serve()
    assert pc.state.phase is Phase.SERVING
    return pc


class TestComingAndGoing:
    def test_a_pc_at_rest_starts_after_the_start_up_delay_and_settling(self) -> None:
        pc = PlayedPc()
        assert pc.step().codes() == ["startup_delay"]
        assert pc.until(available) == pytest.approx(130, abs=2)

    def test_a_pc_in_use_starts_after_the_owner_has_been_away_for_the_whole_time(self) -> None:
        pc = PlayedPc(idle_s=0)
        pc.live(200, every_s=2)
        pc.touch()
        assert pc.until(available) == pytest.approx(310, abs=2)

    def test_one_input_stops_the_computing_in_the_same_step_and_gives_the_memory_back_later(self) -> None:
        pc = serving_pc()
        state = pc.touch()
        assert (state.phase, state.may_submit, state.offers) == (Phase.PAUSED, False, False)
        assert state.releases_s == pc.now_s + 5
        assert pc.until(lambda state: state.gives_back) == pytest.approx(5, abs=2)
        assert pc.stage("ending").phase is Phase.RELEASING
        assert pc.stage("none").phase is Phase.HELD

    def test_the_earliest_sign_of_the_owner_counts_though_the_probe_still_says_nobody(self) -> None:
        pc = serving_pc()
        pc.now_s += 0.01
        assert pc.step(OwnerSeen("raw input")).phase is Phase.PAUSED
        assert pc.step(after_s=0.25).phase is Phase.PAUSED

    def test_input_while_loading_gives_the_memory_back_at_once(self) -> None:
        pc = PlayedPc()
        pc.until(available)
        pc.stage("loading")
        assert pc.touch().phase is Phase.RELEASING

    def test_giving_back_is_finished_though_the_owner_left_again(self) -> None:
        pc = serving_pc()
        pc.step(Release())
        pc.step(Resume())
        assert pc.live(60).phase is Phase.RELEASING
        assert pc.stage("none").phase is Phase.AVAILABLE

    def test_a_short_hold_with_the_memory_kept_goes_on_serving(self) -> None:
        pc = serving_pc(Policy(release_after_s=300))
        pc.see(fullscreen=True)
        assert pc.state.phase is Phase.PAUSED
        pc.see(fullscreen=False)
        assert pc.until(lambda state: state.phase is Phase.SERVING) == pytest.approx(20, abs=2)

    def test_after_a_pause_with_the_memory_kept_a_shorter_absence_is_enough(self) -> None:
        pc = serving_pc(Policy(release_after_s=300))
        pc.touch()
        assert pc.until(lambda state: state.phase is Phase.SERVING) == pytest.approx(130, abs=2)

    def test_a_locked_pc_starts_sooner_and_unlocking_is_presence(self) -> None:
        pc = PlayedPc(idle_s=0)
        pc.live(200)
        pc.touch()
        pc.see(locked=True)
        assert pc.until(available) == pytest.approx(40, abs=2)
        pc.serve()
        assert pc.see(locked=False).codes() == ["user_input"]

    @pytest.mark.parametrize("probe", ["locked", "displays_off"])
    def test_a_probe_that_says_dark_for_ever_shortens_nothing_while_somebody_types(self, probe: str) -> None:
        pc = PlayedPc(idle_s=0)
        pc.seen[probe] = True
        pc.live(200)
        for _ in range(10):
            pc.touch()
            assert not pc.live(60).offers

    def test_an_unload_by_the_console_is_no_yield(self) -> None:
        pc = serving_pc()
        assert pc.stage("ending").phase is Phase.AVAILABLE
        assert pc.stage("none").yields.times_s == ()


class TestPresence:
    @pytest.mark.parametrize(
        "idle",
        [Reading(), Reading(500.0, "late", 4.0), *(Reading(value, "odd") for value in (math.nan, math.inf, 1e12))],
    )
    def test_what_is_not_known_counts_as_somebody_being_here(self, idle: Reading[float]) -> None:
        pc = serving_pc()
        state = pc.see(idle_s=idle)
        assert state.phase is Phase.PAUSED
        assert state.codes() == ["probe_unknown"]

    def test_a_probe_that_missed_one_deadline_changes_nothing(self) -> None:
        pc = serving_pc()
        assert pc.see(idle_s=Reading(pc.now_s - pc.input_s, "slow", 2.5)).phase is Phase.SERVING

    def test_a_negative_idle_time_is_an_input_now(self) -> None:
        assert serving_pc().see(idle_s=-3.0).codes() == ["user_input"]

    def test_a_source_that_rounds_does_not_look_like_input(self) -> None:
        pc = serving_pc()
        for tenth in range(50):
            pc.seen["idle_s"] = float(int(pc.now_s - pc.input_s))
            assert pc.step(after_s=0.13).phase is Phase.SERVING, tenth

    def test_many_roundings_in_a_row_hide_no_input(self) -> None:
        presence = Presence(input_s=0.0, since_s=None)
        for tenth in range(1, 20):  # a source whose last input creeps towards the present
            facts = make_facts(at_s=100.0, idle_s=100.0 - tenth / 10)
            presence = observe(presence, facts, 100.0)
        assert presence.since_s == 100.0

    def test_jitter_keeps_a_pc_from_ever_starting(self) -> None:
        pc = PlayedPc(idle_s=0)
        for _ in range(60):
            pc.live(20)
            assert not pc.touch().offers

    def test_an_unattended_pc_needs_no_presence_probe_but_yields_to_input_it_sees(self) -> None:
        pc = PlayedPc(Policy(unattended=True))
        pc.seen = {"idle_s": Reading(), "power": Reading(), "memory": Reading()}
        pc.serve()
        assert pc.see(idle_s=0.1).phase is Phase.PAUSED


HOLDS: dict[ReasonCode, dict[str, Any]] = {
    ReasonCode.SESSION_REMOTE: {"remote_session": True},
    ReasonCode.SESSION_SWITCHED: {"session_switched": True},
    ReasonCode.FULLSCREEN: {"fullscreen": True},
    ReasonCode.PRESENTATION: {"presentation": True},
    ReasonCode.INHIBITED: {"inhibitors": ("film",)},
    ReasonCode.EXCLUSIVE_APP: {"exclusive": ("recorder",)},
    ReasonCode.CPU_BUSY: {"other_cpu_percent": 51.0},
    ReasonCode.MEDIA_GPU_BUSY: {"other_gpu_percent": 16.0},
    ReasonCode.MEM_LOW: {"memory": Memory(16 * GIB, 4 * GIB - 1)},
    ReasonCode.DISK_LOW: {"disk_free_bytes": GIB},
    ReasonCode.ON_BATTERY: {"power": Power(on_mains=False, has_battery=True, battery_percent=100.0)},
    ReasonCode.POWER_SAVER: {"power": Power(on_mains=True, has_battery=True, saver=True)},
    ReasonCode.THERMAL: {"heat": Heat(91.0)},
    ReasonCode.METERED_NET: {"metered": True},
    ReasonCode.PROBE_UNKNOWN: {"power": Reading()},
}
CALM_AGAIN_S = {
    ReasonCode.CPU_BUSY: 60, ReasonCode.MEDIA_GPU_BUSY: 60, ReasonCode.MEM_LOW: 60, ReasonCode.DISK_LOW: 60,
    ReasonCode.ON_BATTERY: 30, ReasonCode.POWER_SAVER: 30, ReasonCode.THERMAL: 300, ReasonCode.METERED_NET: 30,
    ReasonCode.EXCLUSIVE_APP: 15, ReasonCode.PROBE_UNKNOWN: 0,
}  # fmt: skip
NEEDED = {"power", "memory"}
"""What has to be known."""
HURRIES = {ReasonCode.EXCLUSIVE_APP, ReasonCode.MEM_LOW, ReasonCode.THERMAL}


class TestOtherReasons:
    @pytest.mark.parametrize("code", HOLDS)
    def test_each_holds_the_pc_and_lets_go_after_its_calm_time(self, code: ReasonCode) -> None:
        pc = serving_pc()
        pc.seen |= HOLDS[code]
        pc.until(lambda state: not state.offers)
        assert pc.state.codes() == [code]
        assert pc.state.gives_back == (code in HURRIES)
        pc.stage("none")
        pc.live(20)
        pc.seen = {}
        expected_s = CALM_AGAIN_S.get(code, 10) + 10
        assert pc.until(available) == pytest.approx(expected_s, abs=5)

    @pytest.mark.parametrize("code", [code for code, seen in HOLDS.items() if not NEEDED & set(seen)])
    def test_a_source_that_goes_away_for_good_holds_the_pc_for_minutes_only(self, code: ReasonCode) -> None:
        pc = serving_pc()
        pc.seen |= HOLDS[code]
        pc.until(lambda state: not state.offers)
        pc.stage("none")
        pc.live(10)
        pc.seen = {name: Reading() for name in HOLDS[code]}
        state = pc.live(FORGET_S - 10)
        assert state.codes() == [code]
        assert state.reasons[0].clears_s == pytest.approx(pc.now_s + 10, abs=5)
        assert pc.until(available) == pytest.approx(20, abs=6)

    @pytest.mark.parametrize("code", [ReasonCode.MEM_LOW, ReasonCode.ON_BATTERY])
    def test_what_has_to_be_known_holds_the_pc_until_it_is(self, code: ReasonCode) -> None:
        pc = serving_pc()
        pc.see(**HOLDS[code])
        pc.stage("none")
        pc.seen = {name: Reading() for name in HOLDS[code]}
        assert pc.live(4 * FORGET_S, every_s=9).codes() == ["probe_unknown"]

    def test_a_source_that_falters_is_believed_as_long_as_it_comes_back(self) -> None:
        pc = serving_pc()
        pc.see(metered=True)
        for _ in range(5):
            pc.seen = {"metered": Reading()}
            pc.live(FORGET_S - 20, every_s=9)
            assert pc.see(metered=True).codes() == ["metered_net"]

    @pytest.mark.parametrize("code", [ReasonCode.CPU_BUSY, ReasonCode.MEDIA_GPU_BUSY])
    def test_a_short_spike_of_load_holds_nothing(self, code: ReasonCode) -> None:
        pc = serving_pc()
        for _ in range(20):
            pc.see(**HOLDS[code])
            pc.live(3, every_s=0.25)
            pc.seen = {}
            assert pc.live(9, every_s=0.25).phase is Phase.SERVING

    def test_load_between_calm_and_busy_keeps_what_is(self) -> None:
        pc = serving_pc()
        pc.see(other_cpu_percent=40.0)
        assert pc.live(120).phase is Phase.SERVING
        pc.see(other_cpu_percent=80.0)
        pc.live(10)
        pc.see(other_cpu_percent=40.0)
        assert "cpu_busy" in pc.live(2 * FORGET_S).codes()

    @pytest.mark.parametrize(
        ("power", "holds"),
        [
            (Power(None, has_battery=True), True),
            (Power(None, has_battery=False), False),
            (Power(False, has_battery=True, battery_percent=80), False),
            (Power(False, has_battery=True, battery_percent=70), True),
            (Power(False, has_battery=True), True),
            (Power(True, has_battery=True, battery_percent=5), False),
        ],
    )
    def test_a_battery_may_be_used_above_what_the_policy_says(self, power: Power, holds: bool) -> None:
        pc = serving_pc(Policy(on_battery_above_percent=70 if power.on_mains is not None else 100))
        assert (pc.see(power=power).phase is Phase.PAUSED or pc.state.gives_back) == holds

    def test_what_the_policy_allows_does_not_hold(self) -> None:
        pc = serving_pc(Policy(fullscreen=True, remote_session=True, inhibited=True, metered=True, power_saver=True))
        pc.see(fullscreen=True, presentation=True, remote_session=True, inhibitors=("film",), metered=True)
        assert pc.see(power=Power(True, has_battery=True, saver=True)).phase is Phase.SERVING

    def test_reasons_are_a_set_with_the_most_severe_first(self) -> None:
        pc = serving_pc()
        pc.touch()
        since_s = pc.now_s
        pc.live(2)
        state = pc.see(exclusive=("game",), fullscreen=True)
        assert state.codes() == ["exclusive_app", "user_input", "fullscreen"]
        assert state.reasons[1].since_s == since_s


class TestOrders:
    def test_a_timed_pause_shows_its_end_and_ends(self) -> None:
        pc = serving_pc()
        state = pc.step(Pause(pc.now_s + 900))
        assert (state.phase, state.pause_until_s) == (Phase.RELEASING, pc.now_s + 900)
        pc.stage("none")
        assert pc.until(available) == pytest.approx(910, abs=2)

    def test_a_pause_until_resume_does_not_end_by_itself_and_a_resume_ends_it(self) -> None:
        pc = PlayedPc()
        pc.step(Pause(None))
        assert pc.live(10_000, every_s=9).codes() == ["paused_by_user"]
        pc.step(Resume())
        assert pc.until(available) == pytest.approx(10, abs=2)

    def test_a_resume_does_not_undo_the_administrators_pause_nor_the_other_way_round(self) -> None:
        pc = PlayedPc(Policy(paused=True))
        pc.live(200)
        assert pc.step(Resume()).codes() == ["paused_by_admin"]
        pc.step(Pause(None))
        pc.policy = Policy()
        assert pc.live(1000).codes() == ["paused_by_user"]

    def test_a_pause_lasts_over_a_sleep_by_the_clock_that_counts_sleep(self) -> None:
        pc = PlayedPc()
        pc.step(Pause(pc.now_s + 3600))
        pc.step(after_s=7200)
        assert "paused_by_user" not in pc.state.codes()

    def test_release_gives_the_memory_back_and_waits_as_for_an_owner_who_leaves(self) -> None:
        pc = serving_pc()
        assert pc.step(Release()).phase is Phase.RELEASING
        pc.stage("none")
        assert pc.until(available) == pytest.approx(310, abs=2)

    def test_contribute_now_skips_the_wait_once_but_never_serves_a_moving_mouse(self) -> None:
        pc = PlayedPc(idle_s=0)
        pc.step(ContributeNow())
        for _ in range(10):
            pc.live(5)
            assert not pc.touch().offers
        assert pc.until(available) == pytest.approx(20, abs=2)
        pc.touch()
        pc.live(100)
        assert pc.until(available) == pytest.approx(210, abs=2)

    def test_contribute_now_does_nothing_where_the_policy_forbids_it(self) -> None:
        pc = PlayedPc(Policy(contribute_now=False), idle_s=0)
        pc.step(ContributeNow())
        assert pc.until(available) == pytest.approx(310, abs=2)


class TestTime:
    @pytest.mark.parametrize("gap_s", [11.0, 3 * 86_400.0])
    def test_a_gap_counts_as_somebody_waking_the_pc_up(self, gap_s: float) -> None:
        pc = serving_pc()
        assert pc.step(after_s=gap_s).codes() == ["user_input", "startup_delay"]
        pc.stage("none")
        assert pc.until(available) == pytest.approx(310, abs=2)

    def test_a_sleep_that_the_steady_clock_missed_counts_too(self) -> None:
        pc = serving_pc()
        assert "startup_delay" in pc.see(suspend_gap_s=30.0).codes()

    def test_old_samples_are_forgotten_over_a_gap(self) -> None:
        pc = PlayedPc()
        pc.live(200)
        pc.seen["other_cpu_percent"] = 99.0
        pc.live(4)
        pc.step(after_s=600)
        assert ReasonCode.CPU_BUSY not in pc.state.signals or pc.state.signals[ReasonCode.CPU_BUSY].on_since_s is None

    @pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
    def test_a_step_of_the_wall_clock_changes_no_duration(self, jump_s: float) -> None:
        pc = PlayedPc()
        pc.step(Pause(pc.now_s + 900))
        pc.live(300)
        pc.unix_s += jump_s
        assert pc.until(available) == pytest.approx(610, abs=2)

    def test_a_clock_that_goes_backwards_stands_still(self) -> None:
        pc = serving_pc()
        state = step(pc.state, pc.facts(), pc.policy, pc.situation, now_s=pc.now_s - 1000)
        assert (state.now_s, state.phase) == (pc.now_s, Phase.SERVING)

    def test_the_schedule_holds_and_says_when_it_opens(self) -> None:
        pc = serving_pc()
        noon = 12 * 60
        pc.policy = Policy(schedule=((noon + 30, noon + 60),))
        state = pc.step()
        assert state.codes() == ["schedule"]
        assert state.reasons[0].clears_s == pytest.approx(pc.now_s + (30 * 60 - (pc.unix_s % 3600)))
        pc.policy = Policy(schedule=NEVER)
        assert pc.step().reasons[0].clears_s is None

    def test_the_schedule_goes_by_the_clock_on_the_wall(self) -> None:
        facts = make_facts(at_s=1000.0, utc_offset_s=2 * 3600.0)
        policy = Policy(schedule=((13 * 60, 15 * 60),))
        pc = PlayedPc()
        assert "schedule" not in step(pc.state, facts, policy, Situation(), now_s=1000.0).codes()


class TestFlapping:
    def test_twenty_short_visits_cost_at_most_three_yields_in_ten_minutes(self) -> None:
        pc = PlayedPc(Policy(idle_start_s=60, settle_s=5, startup_delay_s=10))
        yields_s: list[float] = []
        cooled = 0
        for _ in range(8):
            pc.serve()
            pc.touch()
            yields_s.append(pc.now_s)
            pc.until(lambda state: state.gives_back)
            cooled += "cool_down" in pc.stage("none").codes()
        assert cooled
        assert all(sum(0 <= later - first < 600 for later in yields_s) <= 3 for first in yields_s)

    def test_the_cool_down_grows_and_is_forgotten_after_a_calm_hour(self) -> None:
        pc = PlayedPc(Policy(idle_start_s=60, settle_s=5, startup_delay_s=10))
        levels = []
        for _ in range(5):
            pc.serve()
            pc.step(Pause(pc.now_s + 1))
            pc.stage("none")
            levels.append(pc.state.yields.level)
        assert levels[-1] > levels[2] > 0
        pc.live(4000, every_s=8)
        pc.serve()
        pc.touch()
        assert pc.state.yields.level == 0

    def test_a_lost_link_is_no_yield(self) -> None:
        pc = serving_pc()
        pc.situation = msgspec.structs.replace(pc.situation, link="down")
        assert pc.step().phase is Phase.PAUSED
        assert pc.state.yields.times_s == ()

    def test_each_fault_waits_longer(self) -> None:
        pc = PlayedPc()
        pc.until(available)
        waits_s = []
        for _ in range(3):
            assert pc.step(StageFault("memory did not come back")).phase is Phase.FAULT
            waits_s.append(pc.until(available))
        assert waits_s == [pytest.approx(wait_s, abs=2) for wait_s in (70, 130, 310)]


class TestSituation:
    @pytest.mark.parametrize(
        ("situation", "phase"),
        [
            (Situation(link="unenrolled"), Phase.UNENROLLED),
            (Situation(link="pending"), Phase.PENDING),
            (Situation(link="suspended"), Phase.OFF),
            (Situation(link="revoked"), Phase.OFF),
            (Situation(link="down"), Phase.HELD),
            (Situation(link="certificate"), Phase.HELD),
            (Situation(link="clock"), Phase.HELD),
            (Situation(shutting_down=True), Phase.HELD),
            (Situation(device_lost=True), Phase.HELD),
            (Situation(settings_unreadable=True), Phase.HELD),
        ],
    )
    def test_each_holds_the_pc(self, situation: Situation, phase: Phase) -> None:
        pc = PlayedPc()
        pc.until(available)
        pc.situation = situation
        assert pc.step().phase is phase

    @pytest.mark.parametrize("change", [{"suspending": True}, {"shutting_down": True}, {"device_lost": True}])
    def test_the_memory_goes_back_at_once_when_the_pc_is_going_away(self, change: dict[str, bool]) -> None:
        pc = serving_pc()
        pc.situation = msgspec.structs.replace(pc.situation, **change)
        assert pc.step().phase is Phase.RELEASING

    @pytest.mark.parametrize(
        ("policy", "phase"), [(Policy(drain=True), Phase.DRAINING), (Policy(enabled=False), Phase.RELEASING)]
    )
    def test_the_administrator_can_take_a_pc_out(self, policy: Policy, phase: Phase) -> None:
        pc = serving_pc()
        pc.policy = policy
        assert pc.step().phase is phase
        pc.stage("none")
        assert pc.state.phase in (Phase.HELD, Phase.OFF)
