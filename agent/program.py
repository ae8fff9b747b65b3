"""One running agent: the volunteer that decides, the service that works, and the socket that tray and command line use.

Without an identity it waits for one, which tray or command line bring through the socket. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agent.control.endpoint import endpoint_of
from agent.control.errors import ControlUnavailable, OrderRefused
from agent.control.server import ControlServer
from agent.control.status import Status
from agent.link.authorities import read_authorities
from agent.link.closing import DuplicateSession
from agent.link.identity import Identity
from agent.link.keystore import Keystore
from agent.link.leftovers import forget_identity
from agent.logs.about import about
from agent.logtail import LogTail
from agent.metering import Metering
from agent.orders import Orders
from agent.reporting import Parts, status_of
from agent.service import AgentService
from agent.settings import AgentSettings, AgentState
from agent.stage.gate import Gates
from agent.threads import finish_in_thread
from agent.unenrolled import Unenrolled
from agent.update.permission import Means
from agent.update.proof import Trial
from agent.update.releases import Here, own_platform
from agent.update.updates import Updates
from agent.volunteer.clock import steady_s
from agent.volunteer.duty import Volunteer
from agent.volunteer.group_policy import wishes_of_machine
from agent.volunteer.keeping import PolicyKeeper, forget_policy
from agent.volunteer.policy import Policy
from agent.volunteer.probes.base import SystemEvent
from agent.volunteer.probes.board import ProbeBoard, Row
from agent.volunteer.probes.thispc import open_board
from agent.volunteer.sleep import SleepDelay

log = logging.getLogger(__name__)

SLEEP_DELAY_S = 4.0
"""logind waits 5 s at most."""


class Program:
    """Made on the event loop, in a locked data folder; `run` returns after `stop`. Raises OSError.

    Without an identity it joins with the invite in `invite_file` as soon as there is one, or when it is told to.
    """

    def __init__(
        self,
        folder: Path,
        settings: AgentSettings,
        keystore: Keystore,
        identity: Identity | None,
        *,
        why_none: str = "",
        invite_file: Path | None = None,
        adjust: Callable[[Policy], Policy] = lambda policy: policy,
        make_service: Callable[..., AgentService] = AgentService,
        means: Means | None = None,
        trial: Trial | None = None,
    ) -> None:
        """`why_none`: why there is no identity, if one was here.

        `means` is what updates are made with, none unless given; on `trial` this program proves itself first.
        """
        self._folder, self._settings, self._keystore = folder, settings, keystore
        self._identity = identity
        self._make_service = make_service
        self._service: AgentService | None = None
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._enrolled = asyncio.Event()
        self._metering = Metering(folder, settings.watts)
        self._log_tail = LogTail()
        self._board: ProbeBoard | None = None
        if settings.volunteer == "away":
            self._board = open_board(folder, on_input=self._see, on_event=self._hear)
        self._delay = SleepDelay()
        self._machine_wishes = wishes_of_machine()
        self._volunteer = Volunteer(
            self._keeper(),
            Gates(folder / "gates"),
            self._board,
            adjust=adjust,
            on_change=self._on_change,
            on_contributed=self._metering.end,
            on_devices=self._on_devices,
        )
        self._unenrolled = Unenrolled(folder, keystore, self._on_enrolling, invite_file=invite_file, why_none=why_none)
        self.restarts = False
        """Whether the program is to be started again, as whatever version is current then."""
        here = Here("agent", version("fallow"), own_platform(), settings.update_channel)
        means = means or Means(None, why_off="Self-update is off: this agent was started without a place for versions.")
        self._updates = Updates(means, here, self, trial=trial, on_change=self._tell_clients)
        self._server = ControlServer(endpoint_of(folder), Orders(folder, self._volunteer, self._metering.history, self))

    def stop(self) -> None:
        """End the agent: children, links, socket. Event loop only."""
        self._stopping.set()
        if self._service is not None:
            self._service.stop()

    # What an update has to know

    @property
    def allows_updates(self) -> bool:
        """Whether everybody who may say so lets this agent update itself."""
        return self._volunteer.policy.self_update

    @property
    def is_away(self) -> bool:
        """Whether nobody is at this PC; what is not known counts as somebody."""
        return self._volunteer.always or self._volunteer.state.presence.since_s is None

    @property
    def pays(self) -> bool:
        """Whether a transfer would cost the owner something: a metered network, a battery."""
        return self._volunteer.pays

    @property
    def is_serving(self) -> bool:
        """Whether a stage is loaded or loading."""
        return self._service is not None and self._service.stages_phase != "none"

    def restart(self) -> None:
        """End as `stop` does, to be started again; stages are handed over first. Event loop only."""
        self.restarts = True
        self._stopping.set()
        if self._service is not None:
            self._service.restart()

    async def check_updates(self, *, now: bool) -> str:
        """Ask the console for a release; returns a sentence."""
        return await self._updates.check(now=now)

    async def run(self) -> None:
        """Work until `stop`. Raises DuplicateSession when another program runs with this identity."""
        async with contextlib.AsyncExitStack() as closing:
            own_log = logging.getLogger("agent")
            own_log.addHandler(self._log_tail)
            closing.callback(own_log.removeHandler, self._log_tail)
            try:
                await self._server.start()
                closing.push_async_callback(self._server.close)
            except ControlUnavailable as error:
                log.warning("Tray and command line cannot reach this agent: %s", error)
            if self._board is not None:
                self._board.start()
                closing.push_async_callback(finish_in_thread, self._board.close)
                await self._delay.take()
                closing.callback(self._delay.let_go)
            metering = self._metering.run(self._volunteer, self._server.changed, self._tell_resting)
            closing.push_async_callback(_end, asyncio.create_task(metering, name="metering"))
            while not self._stopping.is_set():
                if self._identity is None:
                    await self._wait_for_identity()
                else:
                    await self._serve(self._identity)

    # What the orders want

    def status(self) -> Status:
        """Describe the agent now."""
        service, identity = self._service, self._identity
        why_none = self._unenrolled.said or self._unenrolled.why_none
        state = AgentState("stopped", 0, time.time(), message=why_none) if service is None else service.state
        return status_of(
            Parts(
                state=self._volunteer.state,
                merged=self._volunteer.merged,
                revision=self._volunteer.keeper.revision,
                agent=state,
                devices=[] if service is None else service.devices,
                loading=[] if service is None else service.stages_loading,
                contribution=self._metering.history.contribution(),
                unix_ahead_s=time.time() - steady_s(),
                fleet_name="" if identity is None else identity.record.fleet_name,
                device_code=self._unenrolled.device_code,
                told=None if service is None else service.told,
                always=self._volunteer.always,
                update=self._updates.sentence,
            )
        )

    def probes(self) -> list[Row]:
        """List what each probe sees; nothing on a machine where nothing is looked at."""
        return [] if self._board is None else self._board.rows()

    async def enrol(self, invite: str, name: str, tell: Callable[[str, str], None]) -> str:
        """Join a fleet with an invite; returns a sentence. Raises OrderRefused."""
        if self._identity is not None:
            raise OrderRefused("This PC is in a fleet already; leave it first.", "not_now")
        return self._be(await self._unenrolled.join(invite, name, tell))

    async def cancel_enrolment(self) -> str:
        """Stop waiting for an administrator's approval; returns a sentence. Raises OrderRefused."""
        return await self._unenrolled.cancel()

    def _be(self, identity: Identity) -> str:
        self._identity = identity
        self._unenrolled.forget_file()
        self._enrolled.set()
        return f"Enrolled as device {identity.device_id} of {identity.record.fleet_name}."

    async def leave(self) -> None:
        """Leave the fleet: say so to the console, end everything, delete the identity. Raises OrderRefused."""
        identity, service = self._identity, self._service
        if identity is None or service is None:
            raise OrderRefused("This PC is in no fleet.", "not_now")
        self._identity = None
        self._enrolled.clear()
        await service.leave()
        await finish_in_thread(partial(self._forget, identity))

    # The two lives

    async def _wait_for_identity(self) -> None:
        log.info("This PC is in no fleet yet; enrol it: fallow-agent enrol")
        self._volunteer.keeper = self._keeper()
        async with self._volunteering(self._unenrolled):
            waits = [asyncio.create_task(event.wait()) for event in (self._stopping, self._enrolled)]
            joining = asyncio.create_task(self._unenrolled.join_by_itself(self._be), name="joining")
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in (*waits, joining):
                    await _end(wait)

    async def _serve(self, identity: Identity) -> None:
        self._volunteer.keeper = self._keeper()
        service = self._make_service(
            self._folder,
            identity,
            self._settings,
            self._volunteer,
            keystore=self._keystore,
            on_told=self._server.changed,
            log_tail=self._log_tail,
            updates=self._updates,
        )
        self._service = service
        try:
            with about(device=identity.device_id):
                async with self._volunteering(service):
                    await service.run()
        except DuplicateSession:
            self._stopping.set()
            raise
        finally:
            self._service = None

    @contextlib.asynccontextmanager
    async def _volunteering(self, work: AgentService | Unenrolled) -> AsyncIterator[None]:
        task = asyncio.create_task(self._volunteer.run(work), name="volunteer")
        try:
            yield
        finally:
            await _end(task)

    def _keeper(self) -> PolicyKeeper:
        identity = self._identity
        if identity is None:
            return PolicyKeeper(self._folder, machine=self._machine_wishes, now_s=time.time())
        return PolicyKeeper(
            self._folder,
            fleet=identity.fleet_id,
            device=identity.device_id,
            authorities=lambda: read_authorities(identity.authorities_pem),
            machine=self._machine_wishes,
            now_s=time.time(),
        )

    def _forget(self, identity: Identity) -> None:
        forget_identity(identity, self._keystore)
        shutil.rmtree(identity.folder, ignore_errors=True)
        forget_policy(self._folder)
        log.info("This PC has left the fleet %s; its identity is deleted.", identity.record.fleet_name)

    # What is heard

    def _see(self, source: str) -> None:
        """Called in a thread of the board."""
        self._volunteer.seen(source)

    def _on_enrolling(self) -> None:
        self._tell_clients()
        self._volunteer.look_again()

    def _tell_clients(self) -> None:
        self._server.changed()

    def _on_change(self) -> None:
        self._tell_clients()
        self._updates.look_again()
        if self._board is not None:
            self._board.look_for(self._volunteer.policy.exclusive_programs)

    def _on_devices(self) -> None:
        if self._service is not None:
            self._service.introduce_again()

    def _hear(self, event: SystemEvent) -> None:
        """Called in a thread of the board."""
        self._volunteer.hear(event)
        if event in ("suspending", "resumed", "shutting_down"):
            asyncio.run_coroutine_threadsafe(self._for_sleep(event), self._loop)

    async def _for_sleep(self, event: SystemEvent) -> None:
        """Let the PC sleep or shut down once its memory is back; hold the next time up again after a sleep."""
        if event == "resumed":
            await self._delay.take()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SLEEP_DELAY_S):
                await self._volunteer.given_back()
        self._delay.let_go()

    def _tell_resting(self) -> None:
        if self._service is not None:
            self._service.tell_resting()


async def _end(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
