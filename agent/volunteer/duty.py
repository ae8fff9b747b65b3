"""The volunteer at work: asks the probes, lets the machine decide, and carries out what it decided. Event loop only.

The owner's first input takes a shorter way: `seen` shuts every gate at once, in the thread of whoever hears of it, and
the next look makes of it whatever it has to be.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Callable

from agent.link.messages import PolicyKept, Resting, VolunteerPolicy
from agent.link.messages import VolunteerState as Availability
from agent.stage.gate import Gate, Gates
from agent.volunteer.clauses import told
from agent.volunteer.clock import steady_s
from agent.volunteer.documents import PolicyDocument
from agent.volunteer.doors import Doors
from agent.volunteer.errors import PolicyRefused
from agent.volunteer.explain import PHASES, explain
from agent.volunteer.keeping import PolicyKeeper
from agent.volunteer.leaving import HandingOver
from agent.volunteer.machine import step
from agent.volunteer.policy import Merged, Policy, allows_device
from agent.volunteer.probes.base import SystemEvent
from agent.volunteer.reasons import COSTS, NO_TRANSFERS, ReasonCode
from agent.volunteer.states import (
    Order,
    OwnerSeen,
    Pause,
    Phase,
    Release,
    Resume,
    Situation,
    StageFault,
    initial_state,
)
from agent.volunteer.surroundings import Board, Work, for_machines, resting_facts

log = logging.getLogger(__name__)

CLOSE_LOOK_S, LOOK_S = 0.25, 3.0
"""How long between two looks, while something is loaded and else; whatever happens is looked at at once."""
LONGEST_JITTER_S = 60.0
RELEASED_S = 60.0
"""How long a machine nobody sits at keeps away after it was told to give its memory back."""
GIVE_BACK_AGAIN_S = 2.0
FOREVER_UNIX_S = -1.0
LONGEST_PAUSE_S = 7 * 86_400.0
"""Of the pauses that end by themselves."""


class Volunteer:
    """Decides for one agent. `run` it as a task; the work asks `availability` and `refusal`.

    Without a board this is a machine nobody sits at, and nothing but orders ever holds it. `adjust` changes the merged
    policy; measurements do not wait for minutes. `on_devices` hears that other devices may be used now.
    """

    def __init__(
        self,
        keeper: PolicyKeeper,
        gates: Gates,
        board: Board | None,
        *,
        adjust: Callable[[Policy], Policy] = lambda policy: policy,
        on_change: Callable[[], None] = lambda: None,
        on_contributed: Callable[[Gate], None] = lambda gate: None,
        on_devices: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = steady_s,
        jitter_s: float | None = None,
    ) -> None:
        self.gates = gates
        self.keeper = keeper
        self._board = board
        self._adjust = adjust if board is not None else for_machines
        self._on_change = on_change
        self._clock = clock
        self._on_devices = on_devices
        self.contributed = on_contributed
        self.resting: Resting | None = None
        """When this PC tends to rest, as far as the console may know it; None: nothing was looked at yet."""
        self._merged = keeper.merged(time.time())
        jitter_s = random.uniform(0, LONGEST_JITTER_S) if jitter_s is None else jitter_s  # noqa: S311 - spreads starts
        delay_s = self.policy.startup_delay_s
        self.state = initial_state(clock(), startup_delay_s=delay_s, jitter_s=0.0 if board is None else jitter_s)
        self._orders: list[Order] = self._kept_pause()
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._doors = Doors(gates)
        self._suspending = self._shutting_down = False
        self._handing_over = HandingOver()
        self._empty = asyncio.Event()
        self._giving_back: asyncio.Task[None] | None = None
        self._give_back_again_s = 0.0

    async def run(self, work: Work) -> None:
        """Look until cancelled; then everything is given back."""
        try:
            while True:
                self._news.clear()
                self._look_safely(work)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_LOOK_S if work.stages_phase != "none" else LOOK_S):
                        await self._news.wait()
        finally:
            self._doors.shut()
            if self._giving_back is not None:
                await asyncio.gather(self._giving_back, return_exceptions=True)

    # What others say. `seen` and `hear` from any thread

    def seen(self, source: str) -> None:
        """The owner is here: shut every gate now, if one is open, and let no look that is under way open it again."""
        if self._doors.seen(source):
            self._loop.call_soon_threadsafe(self.order, OwnerSeen(source))

    def hear(self, event: SystemEvent) -> None:
        """The system says what happens to the PC."""
        self._loop.call_soon_threadsafe(self._take_event, event)

    def order(self, order: Order) -> None:
        """Take an order into account at once. Raises SettingsUnreadable when a pause cannot be kept for a restart."""
        if isinstance(order, Release) and self.always:
            # There is no owner whose leaving could be waited for.
            away = Pause(self._clock() + RELEASED_S)
            order = order if self._pauses_beyond(away) else away
        self._orders.append(order)
        self._news.set()
        if isinstance(order, Pause):
            until_s = order.until_s
            forever = until_s is None or not math.isfinite(until_s)
            until_unix_s = FOREVER_UNIX_S if until_s is None or forever else time.time() + until_s - self._clock()
            self.keeper.keep_pause(until_unix_s)
        elif isinstance(order, Resume):
            self.keeper.keep_pause(0.0)

    def _pauses_beyond(self, pause: Pause) -> bool:
        """Say whether this PC is paused for longer than that already, with the orders that still wait."""
        until_s = self.state.pause_until_s
        for order in self._orders:
            if isinstance(order, Pause):
                until_s = math.inf if order.until_s is None else order.until_s
            elif isinstance(order, Resume):
                until_s = None
        return until_s is not None and pause.until_s is not None and until_s > pause.until_s

    def look_again(self) -> None:
        """Something of the work changed."""
        self._news.set()

    def policy_changed(self) -> None:
        """Somebody wants something else: `merged` says it from now on."""
        self._merge()
        self._on_change()
        self._news.set()

    def take_policy(self, message: VolunteerPolicy, console_now_s: float) -> PolicyKept:
        """Judge what the administrator wants, by the console's clock, and keep it; returns the answer."""
        try:
            self.keeper.take(PolicyDocument(message.body, message.signature), console_now_s)
            answer = PolicyKept(self.keeper.revision)
        except PolicyRefused as error:
            log.warning("%s", error)
            answer = PolicyKept(self.keeper.revision, error.code, str(error))
        self.policy_changed()
        return answer

    def fault(self, detail: str) -> None:
        """A stage's process failed on this PC: do not try again at once."""
        if not self.always:
            self.order(StageFault(detail))

    async def given_back(self) -> None:
        """Wait until nothing of this PC is in use by others."""
        await self._empty.wait()

    # What others ask

    @property
    def merged(self) -> Merged:
        """The policy that holds, and who set what."""
        return self._merged

    @property
    def policy(self) -> Policy:
        """What holds now."""
        return self._adjust(self._merged.policy)

    @property
    def always(self) -> bool:
        """Whether nothing is looked at."""
        return self._board is None

    def availability(self) -> tuple[Availability, list[str]]:
        """Say whether plans may count on this PC, and the codes of the reasons why not."""
        if self._is_willing:
            # Who is taken out of service works on until others have taken over, and is planned with no more.
            return ("held", [ReasonCode.DRAIN.value]) if self._handing_over.is_on else ("available", [])
        return "held", self.state.codes()

    def refusal(self, device: str = "") -> str:
        """Say why nothing may run now, or not on that device; empty: it may."""
        if self._is_willing:
            if not device or allows_device(self.policy, device):
                return ""
            return f"{device} may not be used on this PC any more; plan with what it offers."
        why = told(self.state.codes()) or PHASES[self.state.phase].lower()
        return f"this PC is not available now ({why}); plan without it."

    def spared(self) -> str:
        """Say why no model files should come or go now; empty: they may, also while this PC is held."""
        return told(reason.code for reason in self.state.reasons if reason.code in NO_TRANSFERS)

    @property
    def pays(self) -> bool:
        """Whether a transfer would cost the owner something: a metered network, a battery. Part of `spared`."""
        return any(reason.code in COSTS for reason in self.state.reasons)

    @property
    def _is_willing(self) -> bool:
        # A machine nobody sits at has nothing to wait for once its link is up.
        return self.state.offers or (self.always and set(self.state.codes()) <= {ReasonCode.LINK_DOWN.value})

    def _merge(self) -> None:
        """Combine what the parties want now; the one place that notices other devices, whoever wants them."""
        before, self._merged = self._merged.policy, self.keeper.merged(time.time())
        now = self._merged.policy
        if (before.devices, before.devices_off) != (now.devices, now.devices_off):
            self._on_devices()

    # One look

    def _look_safely(self, work: Work) -> None:
        try:
            self._look(work)
        except Exception:  # the edge of a task nobody awaits: a PC that cannot decide is its owner's
            log.exception("Looking at this PC failed; nothing is computed until it works again.")
            self._doors.shut()

    def _look(self, work: Work) -> None:
        inputs = self._doors.begin_look()
        orders, self._orders = self._orders, []
        self._merge()
        before, now_s = self.state, self._clock()
        situation = Situation(
            stage=work.stages_phase,
            link=work.link_phase,
            suspending=self._suspending,
            shutting_down=self._shutting_down,
            settings_unreadable=self.keeper.settings_unreadable,
            unanswered=self._merged.asked["enabled"].employee is None,
        )
        if situation.stage == "none":
            self._empty.set()
        else:
            self._empty.clear()
        facts = self._board.snapshot() if self._board is not None else resting_facts(now_s)
        handed_over = self._handing_over.is_on
        policy = self._handing_over.spare(self.policy, serves=situation.stage == "ready", now_s=now_s)
        self.state = state = step(before, facts, policy, situation, now_s=now_s, orders=orders)
        if self._is_willing:
            self._reopen(inputs)
        else:
            self._doors.shut()
        if before.offers != state.offers or handed_over != self._handing_over.is_on:
            work.tell_availability()
        if before.phase is not state.phase:
            log.info("%s", explain(state).headline)
            if self._board is not None:
                self._board.watch_closely(state.offers or state.phase is Phase.PAUSED)
        if state.gives_back and self._giving_back is None and now_s >= self._give_back_again_s:
            self._giving_back = asyncio.create_task(self._give_back(work), name="give back")
        if before.phase is not state.phase or before.reasons != state.reasons or orders:
            self._on_change()

    def _reopen(self, inputs: int) -> None:
        """Let inferences begin again, unless the owner was seen since the look before."""
        source = self._doors.reopen(inputs, unattended=self.policy.unattended)
        if source is not None:
            self._orders.append(OwnerSeen(source))
            self._news.set()

    async def _give_back(self, work: Work) -> None:
        started_s = self._clock()
        try:
            problem = await work.give_back()
        except Exception:  # the edge of a task nobody awaits: the memory may still be taken
            log.exception("Giving the memory back failed.")
            problem = "a stage could not be ended"
        if problem:
            log.error("The memory of a stage did not come back: %s.", problem)
            if work.stages_phase != "none":
                # It is tried again as long as something is there, but not all the time.
                self._give_back_again_s = self._clock() + GIVE_BACK_AGAIN_S
            self.fault(problem)
        else:
            log.info("The memory is back after %.3f s.", self._clock() - started_s)
        self._giving_back = None
        self._news.set()

    def _take_event(self, event: SystemEvent) -> None:
        if event == "resumed":
            self._suspending = self._shutting_down = False
        elif event == "suspending":
            self._suspending = True
        elif event == "shutting_down":
            self._shutting_down = True
        # Something may have begun to load since the last look; the next one says whether all is given back.
        self._empty.clear()
        self._news.set()

    def _kept_pause(self) -> list[Order]:
        """Take up the pause that the owner ordered before the agent was started again."""
        until_unix_s = self.keeper.owner.pause_until_unix_s
        if until_unix_s == FOREVER_UNIX_S:
            return [Pause(None)]
        # A clock that begins in the past after its battery died must not make years of an hour.
        left_s = min(until_unix_s - time.time(), LONGEST_PAUSE_S)
        return [Pause(self._clock() + left_s)] if left_s > 0 else []
