"""Plays a trace of `office` through the volunteer machine, with a console that gives the PC work whenever it may."""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass, field

from agent.volunteer.explain import explain
from agent.volunteer.policy import Policy
from agent.volunteer.states import OwnerSeen, Phase, VolunteerState
from tests.support.office import DAY_S, Event, Trace
from tests.support.volunteer import PlayedPc

POLL_S = 0.25
DARK_AFTER_S = 600.0
COARSE_S = 8.0
"""Between events nothing changes, so looking this rarely is enough; a gap of 10 s would be a sleep."""


@dataclass
class PlayedOffice:
    """Plays a trace: probes say what happens, a console gives the PC work whenever it offers itself."""

    trace: Trace
    seed: int
    pc: PlayedPc = field(default_factory=lambda: PlayedPc(Policy(), start_s=0.0, idle_s=0.0))
    served_s: float = 0.0
    yields_s: list[float] = field(default_factory=list)
    intrusions: list[str] = field(default_factory=list)
    offered: list[tuple[float, float]] = field(default_factory=list)
    """When the console might use the PC: each time from the offer to its end."""
    unexplained: list[str] = field(default_factory=list)
    stage_changes_s: float = 0.0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._starts = [start_s for start_s, _ in self.trace.present]
        self.pc.unix_s = 1_767_571_200.0  # 5 January 2026, 00:00 UTC, a Monday

    def play(self) -> PlayedOffice:
        for event in self.trace.events:
            if event.at_s < self.pc.now_s:
                self._happen(event)  # while asleep, or within the last poll
                continue
            self._live_until(event.at_s)
            self._happen(event)
        self._live_until(self.trace.days * DAY_S)
        return self

    def _happen(self, event: Event) -> None:
        pc = self.pc
        pc.seen |= event.seen
        if event.sleeps_until_s > pc.now_s:
            self._turn(event.sleeps_until_s - pc.now_s)
        elif event.is_input:
            pc.input_s = max(pc.input_s, event.at_s)
            early = self._random.random() < 0.5
            self._look(*([OwnerSeen("push")] if early else []), after_s=0.0 if early else POLL_S)

    def _live_until(self, end_s: float) -> None:
        step_s = POLL_S
        while self.pc.now_s < end_s:
            self._look(after_s=min(step_s, end_s - self.pc.now_s))
            step_s = COARSE_S

    def _look(self, *orders: OwnerSeen, after_s: float) -> None:
        self._turn(after_s, *orders)
        self._serve()

    def _turn(self, after_s: float, *orders: OwnerSeen) -> None:
        before, seen = self.pc.state, self.pc.seen
        if before.may_submit:
            self.served_s += after_s
        if before.offers and after_s <= COARSE_S:  # else it sleeps
            self._offer(self.pc.now_s, self.pc.now_s + after_s)
        kept_awake = seen.get("inhibitors") or seen.get("fullscreen") or seen.get("other_gpu_percent", 0.0) > 10
        still_s = self.pc.now_s + after_s - self.pc.input_s
        seen["displays_off"] = still_s >= DARK_AFTER_S and not kept_awake
        self._note(before, self.pc.step(*orders, after_s=after_s))

    def _offer(self, since_s: float, until_s: float) -> None:
        if self.offered and self.offered[-1][1] == since_s:
            since_s, _ = self.offered.pop()
        self.offered.append((since_s, until_s))

    def _serve(self) -> None:
        """The console loads a stage some time after the PC offers itself; an ending child takes a moment."""
        pc, stage = self.pc, self.pc.situation.stage
        if pc.now_s < self.stage_changes_s:
            return
        moves = {"none": "loading", "loading": "ready"} if pc.state.offers else {}
        if pc.state.gives_back:
            moves = {"loading": "ending", "ready": "ending", "ending": "none"}
        if stage in moves:
            before = pc.state
            self._note(before, pc.stage(moves[stage]))
            self.stage_changes_s = pc.now_s + (1.0 if pc.state.gives_back else self._random.uniform(3, 60))

    def _note(self, before: VolunteerState, state: VolunteerState) -> None:
        if before.phase in (Phase.LOADING, Phase.SERVING) and not state.offers:
            self.yields_s.append(state.now_s)
        if state.may_submit and self._somebody_is_here(state.now_s):
            self.intrusions.append(f"{state.now_s:.1f} s of seed {self.seed}")
        if state.offers or (before.phase is state.phase and before.codes() == state.codes()):
            return
        told = explain(state)
        holds = state.phase not in (Phase.SETTLING, Phase.RELEASING, Phase.DRAINING)
        bad = holds and (not told.lines or "Starts" not in told.headline)
        if bad or "{" in told.headline or not all(line.text.endswith(".") for line in told.lines):
            self.unexplained.append(f"{state.phase}: {told}")

    def _somebody_is_here(self, now_s: float) -> bool:
        """Whether somebody has been at the PC for longer than the time between two looks."""
        index = bisect_right(self._starts, now_s - POLL_S - 0.01) - 1
        return index >= 0 and now_s < self.trace.present[index][1]
