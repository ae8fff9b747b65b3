"""The agent's service: keeps one session with the console alive and tells the world how it is. Headless.

A window or a tray icon is a client of this class; nothing here knows of one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from agent.devices import Runtime, ask_devices
from agent.introduction import Introduction
from agent.link.channel import Backoff
from agent.link.closing import ConsoleNotTrusted, DuplicateSession, LinkDown, LinkRefused, NotApproved, NotRecognised
from agent.link.fetch import Fetcher
from agent.link.identity import Identity
from agent.link.keystore import Keystore
from agent.link.messages import BULK_PATH, Device, Goodbye, MarkKept, OfferRelease, Welcome
from agent.link.pace import Pace
from agent.link.stage_messages import LoadStage, StageProgress
from agent.link.store import Store
from agent.loading import StageLoader, StartChild
from agent.logtail import LogTail
from agent.measuring import Measuring
from agent.membership import Membership
from agent.opening import open_unless
from agent.seeding import DirectSetup, Seeding
from agent.seen import ConsoleView
from agent.session import Session
from agent.settings import AgentSettings, AgentState, LinkState, write_state
from agent.stage.process import StageProcess
from agent.stage.types import DirectSpec
from agent.tested import TestedEngines
from agent.threads import finish_in_thread
from agent.update.fetching import fetch_with
from agent.update.updates import Updates
from agent.volunteer.duty import Volunteer
from agent.volunteer.memory_book import MemoryBook
from agent.volunteer.proof import Taken, missing
from agent.volunteer.surroundings import LinkPhase, StagesPhase

log = logging.getLogger(__name__)

STEADY_S = 60.0
"""A session this long means the link works: the next cut starts with short waits again."""


_MEMBERSHIPS: dict[str, LinkPhase] = {"pending": "pending", "suspended": "suspended"}
"""What a refusal's code means, where the PC is still the fleet's."""


class AgentService:
    """One agent process. `run` returns after `stop`, or raises what trying again cannot help."""

    def __init__(
        self,
        folder: Path,
        identity: Identity,
        settings: AgentSettings,
        volunteer: Volunteer,
        *,
        start_child: StartChild = StageProcess.start,
        list_devices: Callable[[], Runtime] = ask_devices,
        backoff: Backoff | None = None,
        keystore: Keystore | None = None,
        on_told: Callable[[], None] = lambda: None,
        log_tail: LogTail | None = None,
        updates: Updates | None = None,
    ) -> None:
        self._folder = folder
        self._updates = updates
        self._log_tail = log_tail or LogTail()
        self._on_told = on_told
        self._membership = Membership(identity, keystore)
        self._settings = settings
        self._volunteer = volunteer
        self._backoff = backoff or Backoff()
        self._stop = asyncio.Event()
        self._session_over = asyncio.Event()
        self._store = Store(folder, int(settings.store_gb * 1e9))
        self._memory = MemoryBook(folder, lambda: volunteer.policy, limit_bytes=settings.memory_mb << 20)
        self._introduction = Introduction(self._store, self._memory, volunteer, list_devices, updates)
        self._dialler = self._membership.dialler
        self._pace = _pace(settings)
        self._fetcher = Fetcher(self._store, lambda: self._dialler.dial(BULK_PATH), pace=self._pace)
        tested = TestedEngines(folder, lambda: self.devices, lambda: self.openvino)
        self._measuring = Measuring(
            folder, self._store, self._fetcher,
            memory=self._memory, tested=tested, settings=settings, owner=volunteer, life=self,
        )  # fmt: skip
        self._loader = StageLoader(
            self._store,
            self._fetcher,
            settings,
            start_child,
            memory=self._memory,
            tested=tested,
            uplink=self._membership.uplink,
            check=self._membership.check_signature,
            on_layers=self._measuring.layers_came,
            make_way=self._measuring.make_way,
        )
        self._setup = DirectSetup(lambda: self._membership.identity, settings)
        self._session: Session | None = None
        self._told: ConsoleView | None = None
        self._refusal: LinkDown | None = None
        self._state = AgentState("starting", os.getpid(), 0.0, device_id=identity.device_id)

    @property
    def state(self) -> AgentState:
        """How the agent is now; also in state.json."""
        return self._state

    # What the volunteer asks and wants

    @property
    def stages_phase(self) -> StagesPhase:
        """The most advanced of all stages."""
        return "none" if self._session is None else self._session.stages.phase

    @property
    def stages_loading(self) -> list[tuple[LoadStage, StageProgress]]:
        """The stages on their way, and how far they are."""
        return [] if self._session is None else self._session.stages.progress()

    @property
    def link_phase(self) -> LinkPhase:
        """Whether the console can be reached, and if not what kind of reason it has."""
        if self._session is not None:
            return "up"
        if isinstance(self._refusal, NotApproved):
            return _MEMBERSHIPS.get(self._refusal.code, "revoked")
        return "certificate" if isinstance(self._refusal, ConsoleNotTrusted | NotRecognised) else "down"

    def tell_availability(self) -> None:
        """Tell the console now whether plans may count on this PC."""
        if self._session is not None:
            self._session.tell_availability()

    def tell_resting(self) -> None:
        """Tell the console when this PC tends to rest, as far as it may know."""
        if self._session is not None and self._volunteer.resting is not None:
            self._session.say(self._volunteer.resting)

    async def give_back(self) -> str:
        """End every stage and wait until its process is gone; returns why its memory is not back, if so."""
        session = self._session
        if session is None:
            return ""
        children = session.stages.children()
        await session.give_back()
        taken = [
            Taken(pid, name, self._memory.device(name), self._memory.device_bytes_when_loaded(pid))
            for pid, name in children
        ]
        return await asyncio.to_thread(missing, taken)

    @property
    def devices(self) -> list[Device]:
        """Every device of this PC, used or not, as it was last looked at."""
        return self._introduction.devices

    @property
    def told(self) -> ConsoleView | None:
        """What the console was last told of this PC, in this session or the last; None: there was none yet."""
        return self._told

    @property
    def usable_devices(self) -> list[Device]:
        """The devices that may compute."""
        return self._introduction.usable_devices

    @property
    def openvino(self) -> str:
        """The version of OpenVINO here; empty when it does not work."""
        return self._introduction.openvino

    def stop(self) -> None:
        """Ask `run` to say goodbye, end its children and return. Event loop only."""
        self._stop.set()
        self._session_over.set()

    def introduce_again(self) -> None:
        """End the session, with its stages, and begin another: what this PC offers has changed."""
        self._session_over.set()

    def restart(self) -> None:
        """As `stop`; the console hears that this PC is back at once."""
        if self._session is not None:
            self._session.farewell = Goodbye("updating", "The agent starts again as another version.")
        self.stop()

    async def leave(self) -> None:
        """Let `run` return, and the console hear that this PC leaves the fleet."""
        if self._session is not None:
            self._session.farewell = Goodbye("left", "The PC's owner left the fleet.")
        self.stop()

    async def run(self) -> None:
        """Serve until `stop`. Raises DuplicateSession; any other failure of a link is tried again."""
        await finish_in_thread(self._store.discard_all_stages)
        try:
            while not self._stop.is_set():
                started_s = asyncio.get_running_loop().time()
                try:
                    await self._serve()
                except DuplicateSession:
                    raise
                except LinkDown as cut:
                    if isinstance(cut, ConsoleNotTrusted) and await self._membership.learn_authorities():
                        continue
                    error = await self._whole_reason(cut)
                    if asyncio.get_running_loop().time() - started_s > STEADY_S:
                        self._backoff.reset()
                    wait_s = self._backoff.next_wait_s(error)
                    self._refusal = error
                    log.info("Not connected: %s Next try in %.0f s.", error, wait_s)
                    self._tell("refused" if isinstance(error, LinkRefused) else "connecting", str(error))
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._stop.wait(), wait_s)
        except DuplicateSession as error:
            self._tell("stopped", str(error))
            raise
        self._tell("stopped")

    async def _serve(self) -> None:
        self._tell("connecting")
        if not self._stop.is_set():
            self._session_over.clear()
        await self._membership.renew_if_due()
        hello = await asyncio.to_thread(
            self._introduction.hello, await self._membership.mark(), self._membership.identity.key_protection
        )
        session = await open_unless(
            self._stop,
            Session.open(
                self._dialler,
                hello,
                self._loader,
                self._on_change,
                direct=self._direct_of,
                owner=self._volunteer,
                log_tail=self._log_tail,
                on_told=self._on_told,
                on_offer=self._on_offer,
            ),
        )
        if session is None:
            return
        self._session, self._told = session, session.told
        try:
            log.info("Connected to %s as device %s.", self._dialler.url, self._membership.identity.device_id)
            self._tell("connected")
            async with self._beside(session):
                await session.run(self._session_over)
        finally:
            self._session = None

    @contextlib.asynccontextmanager
    async def _beside(self, session: Session) -> AsyncIterator[None]:
        """Do what goes on as long as a session lasts."""
        works = {
            "membership": self._keep_up(session),
            "seeding": self._seeding(session).run(),
            "devices": self._look_for_devices(),
            "measuring": self._measuring.run(session.say, session.console_time),
        }
        if self._updates is not None and session.welcome.offers_releases:
            works["updates"] = self._updates.run(session.say, fetch_with(self._fetcher))
        tasks = [asyncio.create_task(work, name=name) for name, work in works.items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _seeding(self, session: Session) -> Seeding:
        return Seeding(
            self._setup, session.welcome, session.host, self._store, self._fetcher,
            say=session.say, pace=self._pace, spared=self._volunteer.spared,
        )  # fmt: skip

    async def _look_for_devices(self) -> None:
        if await self._introduction.finds_devices():
            self.introduce_again()

    async def _keep_up(self, session: Session) -> None:
        """Keep the session's mark and, as long as it lasts, the certificate fresh."""
        welcome = session.welcome
        self._membership.take_console_time(welcome.now_s)
        if await self._membership.keep(welcome.mark):
            session.say(MarkKept(welcome.mark))
        self.tell_resting()
        await self._membership.keep_renewed()

    async def _whole_reason(self, error: LinkDown) -> LinkDown:
        """Ask for the whole sentence behind a refusal: a close frame has room for its beginning only."""
        if not isinstance(error, NotApproved | NotRecognised):
            return error
        return await self._membership.why_refused() or error

    def _direct_of(self, request: LoadStage, welcome: Welcome, ahead_s: float, host: str) -> DirectSpec | None:
        """Say what direct links a stage may have: none, if the console or this PC does not want any."""
        settings = self._settings
        if not (welcome.route_key and settings.direct_links):
            return None
        listens = request.direct and request.stage > 0
        return self._membership.direct(welcome.route_key, ahead_s, host, settings.direct_ports, listens=listens)

    def _on_offer(self, offer: OfferRelease) -> None:
        if self._updates is not None:
            self._updates.offered(offer)

    def _on_change(self) -> None:
        self._tell(self._state.link, self._state.message)

    def _tell(self, link: LinkState, message: str = "") -> None:
        self._state = msgspec.structs.replace(
            self._state,
            link=link,
            updated_s=time.time(),
            console_url=self._dialler.url,
            message=message,
            stages=self._session.stages.loaded() if self._session is not None else [],
        )
        try:
            write_state(self._folder, self._state)
        except OSError as error:
            log.warning("state.json cannot be written: %s", error)
        self._volunteer.look_again()


def _pace(settings: AgentSettings) -> Pace:
    def hour() -> float:
        now = time.localtime()
        return now.tm_hour + now.tm_min / 60

    return Pace(settings.fetch_mbit * 1e6 / 8, *settings.fetch_hours, hour)
