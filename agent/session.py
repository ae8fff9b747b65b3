"""One connected session with the console: a control link, a data link, and the stages that live and die with them.

The console counts an agent as lost with the first link that drops, and plans again; so a session that ends also ends
its stages. The files stay in the store, and a stage that comes back loads from there. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from agent.delivering import deliver_gently
from agent.devices import memory_free_bytes
from agent.link.channel import Dialler
from agent.link.closing import CloseCode, close_reason
from agent.link.frames import FrameError
from agent.link.messages import (
    FetchLayers,
    FromAgent,
    Goodbye,
    Heartbeat,
    Hello,
    Keep,
    LayersFetched,
    LogLines,
    MessageError,
    OfferRelease,
    SendLog,
    VolunteerPolicy,
    VolunteerState,
    Welcome,
    Yield,
)
from agent.link.stage_messages import AdvanceEpoch, CutDirect, DirectRoute, LoadStage, UnloadStage
from agent.loading import StageLoader
from agent.logtail import LogTail
from agent.seen import ConsoleView
from agent.session_links import LINK_FAILURES, SessionLinks, as_link_down
from agent.stage.types import DirectSpec
from agent.stages import Stages
from agent.volunteer.duty import Volunteer
from agent.volunteer.leaving import HAND_OVER_S
from agent.volunteer.reasons import ReasonCode

log = logging.getLogger(__name__)

MOST_LOG_LINES = 200
"""Of the longest they take as much as one message may."""
SERVING_SHARE = 0.25
"""Whoever serves a stage beats four times as often: answers wait while it is not known that it is gone."""

DirectOf = Callable[[LoadStage, Welcome, float, str], DirectSpec | None]
"""What direct links a stage may have, given how far the console's Unix time is ahead of this PC's steady clock, and
the address this PC talks to the console from."""


class Session:
    """Open it with `open`, then `run` it until a link drops (raises LinkDown) or it is told to stop (returns)."""

    def __init__(
        self,
        links: SessionLinks,
        loader: StageLoader,
        on_change: Callable[[], None],
        *,
        direct: DirectOf,
        owner: Volunteer,
        told: ConsoleView,
        log_tail: LogTail,
        on_offer: Callable[[OfferRelease], None],
    ) -> None:
        self._owner = owner
        self._on_offer = on_offer
        self._log = log_tail
        self.told = told
        """What the console was told of this PC; it stays after the session's end."""
        self._links = links
        self._leaving = False
        self.farewell = Goodbye("stopping", "The agent was stopped.")
        """What the console hears when this is told to stop."""
        self._loader = loader
        self._deliveries: set[asyncio.Task[None]] = set()
        self._ahead_s = ahead_s = links.welcome.now_s - time.monotonic()
        self._stages = Stages(
            loader,
            self.say,
            links.send_frame,
            on_change,
            direct=lambda request: direct(request, links.welcome, ahead_s, self.host),
            owner=owner,
        )

    @classmethod
    async def open(
        cls,
        dialler: Dialler,
        hello: Hello,
        loader: StageLoader,
        on_change: Callable[[], None],
        *,
        direct: DirectOf,
        owner: Volunteer,
        log_tail: LogTail,
        on_told: Callable[[], None] = lambda: None,
        on_offer: Callable[[OfferRelease], None] = lambda offer: None,
    ) -> Session:
        """Dial both links and introduce this PC. Raises LinkDown; nothing stays open then."""
        links = await SessionLinks.open(dialler, hello)
        told = ConsoleView(hello, on_told)
        return cls(
            links, loader, on_change,
            direct=direct, owner=owner, told=told, log_tail=log_tail, on_offer=on_offer,
        )  # fmt: skip

    @property
    def welcome(self) -> Welcome:
        """What the console greeted with."""
        return self._links.welcome

    @property
    def host(self) -> str:
        """The address of this PC that leads to the console."""
        return self._links.host

    def console_time(self) -> float:
        """Return Unix time by the console's clock."""
        return self._ahead_s + time.monotonic()

    def say(self, message: FromAgent) -> None:
        """Send a control message without waiting."""
        if self._links.say(message):
            self.told.note(message)

    @property
    def stages(self) -> Stages:
        """What is loaded and loading."""
        return self._stages

    def tell_availability(self) -> None:
        """Tell the console now whether plans may count on this PC; with a stage that means to yield it, if not."""
        if self._owner.refusal() and self._stages.phase in ("ready", "loading"):
            self.say(Yield(self._stages.epochs(), self._owner.availability()[1]))
        else:
            self.say(self._heartbeat())

    async def give_back(self) -> None:
        """End every stage and wait until its process is gone; the session goes on."""
        await self._stages.close()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`: then hand over, say goodbye and return. Raises LinkDown when a link drops first."""
        ended: list[BaseException] = []
        works = {
            "control": self._read_control(),
            "data": self._read_data(),
            "beat": self._beat(),
            "stop": self._hand_over(stop),
        }
        workers = [asyncio.create_task(work, name=f"session-{name}") for name, work in works.items()]
        try:
            done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
            ended = [error for task in done if (error := task.exception()) is not None]
        finally:
            for task in workers:
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await self._close(ended)
        if self._links.broken is not None:
            raise self._links.broken
        for error in ended:
            if isinstance(error, LINK_FAILURES):
                raise as_link_down(error) from error
            raise error

    async def _hand_over(self, stop: asyncio.Event) -> None:
        """Wait for `stop`, then until others have taken over what is served here, if they do so soon.

        What may not run here any more, or not on its device, ends at once.
        """
        await stop.wait()
        is_unwanted = any(self._owner.refusal(device) for _, device in self._stages.children())
        if not self._links.welcome.hands_over or self._stages.phase != "ready" or is_unwanted:
            return
        log.info("Handing the stages over.")
        self._leaving = True
        self.tell_availability()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_S):
                await self._stages.idle()

    def _availability(self) -> tuple[VolunteerState, list[str]]:
        state, reasons = self._owner.availability()
        return ("held", [ReasonCode.DRAIN.value]) if self._leaving and state == "available" else (state, reasons)

    async def _close(self, ended: list[BaseException]) -> None:
        """End stages and links; the stages first, so that the next session finds their memory free."""
        code, reason = CloseCode.GOING_AWAY, close_reason(self.farewell.code, self.farewell.message)
        if any(isinstance(error, FrameError | MessageError) for error in ended):
            code, reason = CloseCode.BAD_FRAME, close_reason("bad_frame", str(ended[0]))
        elif not ended:
            self.say(self.farewell)
        for task in self._deliveries:
            task.cancel()
        await asyncio.gather(*self._deliveries, return_exceptions=True)
        await self._stages.close()
        await self._links.close(code, reason)

    async def _read_control(self) -> None:
        while True:
            message = await self._links.heard()
            if isinstance(message, LoadStage):
                self._stages.load(message)
            elif isinstance(message, Keep):
                await self._loader.keep(message.ranges)
            elif isinstance(message, FetchLayers):
                self._begin_delivery(message)
            elif isinstance(message, AdvanceEpoch):
                self._stages.advance(message)
            elif isinstance(message, UnloadStage):
                self._stages.unload(message.pipeline)
            elif isinstance(message, DirectRoute | CutDirect):
                self._stages.route(message)
            elif isinstance(message, OfferRelease | VolunteerPolicy | SendLog):
                self._answer(message)
            elif isinstance(message, Goodbye):
                log.info("The console says goodbye: %s", message.message)
            else:
                raise MessageError("Welcome is only the first message.")

    def _answer(self, message: OfferRelease | VolunteerPolicy | SendLog) -> None:
        if isinstance(message, OfferRelease):
            self._on_offer(message)
        elif isinstance(message, SendLog):
            self.say(LogLines(self._log.last(min(message.lines, MOST_LOG_LINES))))
        else:
            self.say(self._owner.take_policy(message, self.console_time()))

    def _begin_delivery(self, request: FetchLayers) -> None:
        async def deliver() -> None:
            problem = await deliver_gently(
                lambda: self._loader.deliver(request.layers, request.signature), self._owner.spared
            )
            self.say(LayersFetched(request.layers, problem))

        task = asyncio.create_task(deliver(), name="delivery")
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)

    async def _read_data(self) -> None:
        receive, take = self._links.data.recv, self._stages.take
        while True:
            full = take(await receive(decode=False))
            if full is not None:
                await full

    async def _beat(self) -> None:
        while True:
            beat = self._heartbeat()
            self.say(beat)
            await asyncio.sleep(beat.next_s)

    def _heartbeat(self) -> Heartbeat:
        pause_s = self._links.welcome.heartbeat_s
        if self._stages.phase in ("ready", "loading"):
            pause_s *= SERVING_SHARE
        return Heartbeat(memory_free_bytes(), *self._availability(), pause_s)
