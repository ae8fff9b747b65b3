"""A PC that is played: its facts, its service and its steady clock, driven through the volunteer machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from agent.volunteer.facts import Facts, Heat, Memory, Power, Reading
from agent.volunteer.machine import step
from agent.volunteer.policy import GIB, Policy
from agent.volunteer.states import Order, Phase, Situation, VolunteerState, initial_state

MONDAY_NOON_UNIX_S = 1_767_614_400.0  # 5 January 2026, 12:00 UTC


def known(value: Any, age_s: float = 0.0) -> Reading[Any]:
    return Reading(value, "played", age_s)


def make_facts(**changes: Any) -> Facts:
    """A desktop at rest, on mains, where every probe answers. Plain values become readings."""
    values: dict[str, Any] = {
        "at_s": 0.0,
        "unix_s": MONDAY_NOON_UNIX_S,
        "idle_s": 3600.0,
        "locked": False,
        "displays_off": False,
        "remote_session": False,
        "session_switched": False,
        "fullscreen": False,
        "presentation": False,
        "inhibitors": (),
        "other_cpu_percent": 3.0,
        "other_gpu_percent": 1.0,
        "exclusive": (),
        "memory": Memory(16 * GIB, 12 * GIB),
        "power": Power(on_mains=True, has_battery=False),
        "heat": Heat(50.0),
        "metered": False,
        "disk_free_bytes": 100 * GIB,
        "suspend_gap_s": 0.0,
    } | changes
    plain = ("at_s", "unix_s", "utc_offset_s")
    readings: dict[str, Any] = {
        name: value if name in plain or isinstance(value, Reading) else known(value) for name, value in values.items()
    }
    return Facts(**readings)


class PlayedPc:
    """One PC on a steady clock that the test turns. Input is what `touch` says; everything else what `see` says."""

    def __init__(self, policy: Policy | None = None, *, start_s: float = 1000.0, idle_s: float = 3600.0) -> None:
        self.policy = policy or Policy()
        self.now_s = start_s
        self.unix_s = MONDAY_NOON_UNIX_S
        self.input_s = start_s - idle_s
        self.seen: dict[str, Any] = {}
        self.situation = Situation()
        self.state: VolunteerState = initial_state(start_s, startup_delay_s=self.policy.startup_delay_s, jitter_s=0.0)

    def facts(self) -> Facts:
        values = {"idle_s": self.now_s - self.input_s} | self.seen
        return make_facts(at_s=self.now_s, unix_s=self.unix_s, **values)

    def step(self, *orders: Order, after_s: float = 0.0) -> VolunteerState:
        """Turn the clock and look."""
        self.now_s += after_s
        self.unix_s += after_s
        self.state = step(self.state, self.facts(), self.policy, self.situation, now_s=self.now_s, orders=orders)
        return self.state

    def live(self, for_s: float, every_s: float = 2.0) -> VolunteerState:
        """Look every `every_s` for a while."""
        end_s = self.now_s + for_s
        while self.now_s < end_s - 1e-9:
            self.step(after_s=min(every_s, end_s - self.now_s))
        return self.state

    def touch(self) -> VolunteerState:
        """Move the mouse, and have it seen."""
        self.input_s = self.now_s
        return self.step()

    def see(self, **facts: Any) -> VolunteerState:
        """Let probes answer something else from now on, and look."""
        self.seen |= facts
        return self.step()

    def serve(self) -> VolunteerState:
        """Wait until the console may have this PC, and serve it."""
        self.until(lambda state: state.phase is Phase.AVAILABLE)
        self.stage("loading")
        return self.stage("ready")

    def stage(self, stage: Any) -> VolunteerState:
        self.situation = msgspec.structs.replace(self.situation, stage=stage)
        return self.step()

    def until(self, wanted: Callable[[VolunteerState], bool], within_s: float = 7200.0) -> float:
        """Live until something is so; return how long it took."""
        start_s = self.now_s
        while not wanted(self.state):
            assert self.now_s - start_s < within_s, f"still {self.state.phase}: {self.state.reasons}"
            self.step(after_s=2.0)
        return self.now_s - start_s
