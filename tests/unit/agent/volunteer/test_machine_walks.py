"""Random walks through the machine: whatever happens in whatever order, the promises hold."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent.volunteer.explain import explain
from agent.volunteer.facts import Heat, Memory, Power, Reading
from agent.volunteer.policy import GIB, Policy
from agent.volunteer.reasons import SEVERITY, Severity
from agent.volunteer.states import ContributeNow, Order, OwnerSeen, Pause, Phase, Release, Resume, Situation, StageFault
from tests.support.volunteer import PlayedPc

SEEN: dict[str, list[Any]] = {
    "locked": [True, False, Reading()],
    "displays_off": [True, False],
    "fullscreen": [True, False, Reading()],
    "inhibitors": [("film",), ()],
    "other_cpu_percent": [0.0, 40.0, 99.0, math.nan],
    "exclusive": [("game",), ()],
    "memory": [Memory(16 * GIB, 12 * GIB), Memory(16 * GIB, GIB), Memory(16 * GIB, 12 * GIB, low=True), Reading()],
    "power": [Power(True, has_battery=False), Power(False, has_battery=True), Power(None, has_battery=True), Reading()],
    "heat": [Heat(50.0), Heat(99.0), Heat(None, throttling=True)],
    "suspend_gap_s": [0.0, 500.0],
}
ORDERS: list[Order] = [Resume(), Release(), ContributeNow(), StageFault("odd"), Pause(None)]
POLICIES = [
    Policy(),
    Policy(release_after_s=0.0),
    Policy(idle_start_s=60.0, release_after_s=300.0),
    Policy(paused=True),
]


class Walk(RuleBasedStateMachine):
    """A PC, its owner, its administrator and a console, each doing anything at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.pc = PlayedPc(Policy(idle_start_s=60.0))
        self.pc.serve()
        self.yields_s: list[float] = []
        self.last_input_s = -math.inf

    def step(self, *orders: Order, after_s: float = 0.0) -> None:
        before = self.pc.state
        state = self.pc.step(*orders, after_s=after_s)
        nobodys = ("link_down", "suspended_by_admin", "revoked", "fault_backoff")
        counts = any(reason.code.value not in nobodys for reason in state.reasons)
        if before.phase in (Phase.LOADING, Phase.SERVING) and not state.offers and counts:
            self.yields_s.append(state.now_s)

    @rule(seconds=st.sampled_from([0.0, 0.25, 2.0, 9.0]))
    def time_passes(self, seconds: float) -> None:
        self.step(after_s=seconds)

    @rule(minutes=st.integers(1, 8))
    def nothing_happens(self, minutes: int) -> None:
        for _ in range(minutes * 7):
            self.step(after_s=9.0)

    @rule()
    def all_is_well_and_the_console_calls(self) -> None:
        self.pc.seen = {}
        self.pc.policy = Policy(idle_start_s=60.0)
        self.pc.situation = Situation()
        self.step(Resume())
        self.nothing_happens(minutes=5)
        for stage in ("loading", "ready"):
            if self.pc.state.offers:
                self.service_says(stage)

    @rule(pushed=st.booleans())
    def somebody_touches(self, pushed: bool) -> None:
        self.pc.input_s = self.last_input_s = self.pc.now_s
        self.step(*([OwnerSeen("push")] if pushed else []))
        assert not self.pc.state.offers

    @rule(seconds=st.sampled_from([11.0, 4000.0, 300_000.0]))
    def the_pc_sleeps(self, seconds: float) -> None:
        self.step(after_s=seconds)
        assert not self.pc.state.offers

    @rule(seen=st.sampled_from([(name, value) for name, values in SEEN.items() for value in values]))
    def a_probe_says(self, seen: tuple[str, Any]) -> None:
        self.pc.seen[seen[0]] = seen[1]
        self.step()

    @rule(order=st.sampled_from(ORDERS))
    def the_owner_orders(self, order: Order) -> None:
        self.step(order)

    @rule(seconds=st.sampled_from([-5.0, 60.0, 3600.0, math.nan]))
    def the_owner_pauses(self, seconds: float) -> None:
        self.step(Pause(self.pc.now_s + seconds))

    @rule(policy=st.sampled_from(POLICIES))
    def the_policy_changes(self, policy: Policy) -> None:
        self.pc.policy = policy
        self.step()

    @rule(stage=st.sampled_from(["none", "loading", "ready", "ending"]))
    def service_says(self, stage: Any) -> None:
        self.pc.situation = msgspec.structs.replace(self.pc.situation, stage=stage)
        self.step()

    @rule(link=st.sampled_from(["up", "up", "down", "suspended", "revoked"]))
    def the_link_is(self, link: Any) -> None:
        self.pc.situation = msgspec.structs.replace(self.pc.situation, link=link)
        self.step()

    @invariant()
    def nothing_is_computed_while_a_reason_holds(self) -> None:
        state = self.pc.state
        assert not (state.offers and state.reasons)
        assert not (state.may_submit and self.pc.now_s - self.last_input_s < self.pc.policy.settle_s)

    @invariant()
    def a_pause_of_the_owner_is_never_overruled(self) -> None:
        state = self.pc.state
        if state.pause_until_s is not None:
            assert "paused_by_user" in state.codes()
            assert state.phase not in (Phase.SERVING, Phase.PAUSED, Phase.LOADING, Phase.AVAILABLE)

    @invariant()
    def what_presses_hard_gives_the_memory_back(self) -> None:
        state = self.pc.state
        if any(SEVERITY[reason.code] >= Severity.RELEASE for reason in state.reasons):
            assert self.pc.situation.stage == "none" or state.gives_back

    @invariant()
    def every_hold_is_explained(self) -> None:
        state, told = self.pc.state, explain(self.pc.state)
        assert bool(state.reasons) == bool(told.lines)
        if not (state.offers or state.gives_back or state.phase in (Phase.SETTLING, Phase.PAUSED)):
            assert state.reasons
        assert told.headline.endswith(".")
        assert "{" not in told.headline

    @invariant()
    def there_is_never_a_fourth_yield_in_ten_minutes(self) -> None:
        assert all(later - first >= 600 for first, later in zip(self.yields_s, self.yields_s[3:], strict=False))


Walk.TestCase.settings = settings(max_examples=12, stateful_step_count=30, deadline=None)
TestWalk = Walk.TestCase
