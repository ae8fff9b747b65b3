"""Keeps deployments up: watches them, lets others take over what is lost, and brings back what went down.

Everything runs on the service's event loop, one task for each deployment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence

from sqlalchemy.exc import SQLAlchemyError

from agent.logs.about import about
from agent.stage.types import Epoch
from console.api.admin.types import DeployRequest
from console.byhand import as_possible
from console.deployments.book import Book
from console.deployments.entry import AVOID_S, Entry
from console.deployments.live import LivePipeline, take_down, withdraw
from console.deployments.rollout import Rollout
from console.deployments.standbys import Standbys
from console.deployments.takeover import Takeover
from console.drafting import draft_library
from console.errors import DeployError, DeployFailed
from console.facts import FleetFacts
from console.fleet.hub import Hub
from console.libraries import LibraryShelf, LoadedLibrary
from console.registry.audit import CONSOLE, Actor
from shard_export.library.counts import counted

log = logging.getLogger(__name__)

LOOK_S = 1.0
PROBE_EVERY_S = 15.0
"""An idle model proves itself this often; one that answers people needs no probe."""
SAME_PCS_FIRST_S = 20.0
"""After a restart the former PCs get this long to come back before others are taken."""
MAX_PAUSE_S = 60.0
TAKEOVER_PAUSE_S = 0.5
PROVEN_LOOK_S = 0.05


class Keeper:
    """One for all deployments of a console."""

    def __init__(self, hub: Hub, shelf: LibraryShelf, facts: FleetFacts, book: Book) -> None:
        self._hub = hub
        self._shelf = shelf
        self._facts = facts
        self._book = book
        self._standbys = Standbys(hub, facts, book)

    def keep(self, entry: Entry) -> None:
        """Keep a deployment up from now on."""
        with about(fresh=True, model=entry.model):
            entry.keeper = asyncio.create_task(self._keep_up(entry), name=f"keep {entry.model}")

    async def stop(self, entry: Entry) -> None:
        """Let everything that works on a deployment end; what is up stays up."""
        tasks = [task for task in (entry.keeper, entry.tending) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        entry.keeper = entry.tending = None

    async def take_down(self, entry: Entry) -> None:
        """End the streams, free the PCs and tell them which of its files need not stay."""
        holders = entry.holders()
        if entry.live is not None:
            live, entry.live = entry.live, None
            await take_down(self._hub, live)
            self._note_speeds(entry, live)
        elif entry.plan.stages:
            await withdraw(self._hub, entry.plan.pipeline, entry.device_ids())
        self._book.say_what_stays(holders)

    async def roll_out(
        self, entry: Entry, agents: Sequence[str], actor: Actor, request: DeployRequest | None = None
    ) -> None:
        """Try once to bring a deployment up on these PCs, as it was asked for or as another `request` says.

        Raises DeployError; nothing is left of it then.
        """
        library = self._library(entry)
        epoch = self._book.new_epoch(entry, actor)
        rollout = Rollout(
            self._hub,
            library,
            request or entry.request,
            pipeline=entry.plan.pipeline,
            epoch=epoch,
            report=entry.tell,
            draft=draft_library(self._shelf, entry.request),
            number=entry.number,
        )
        beside = self._book.live_beside(entry)
        facts = self._facts.collect(entry.request, agents, beside, library.digest, library.manifest)
        live = await rollout.run(facts)
        for device_id in set(entry.device_ids()) - set(live.device_ids):
            await self._hub.unload(device_id, entry.plan.pipeline)
        entry.live, entry.state, entry.message, entry.failures = live, "ready", "", 0
        entry.lost.clear()
        entry.leaving.clear()
        live.coordinator.on_lost = lambda reason: self.lose(entry, reason)
        live.coordinator.on_ended = lambda ended: self._book.answered(entry, ended)
        self._book.settle(entry, live, actor, "deployed")
        log.info("%s is ready, stages: %d, epoch: %d.", entry.model, len(live.plan.stages), entry.epoch)

    def lose(self, entry: Entry, reason: str, device_id: str = "") -> None:
        """What a PC held is gone; without `device_id` nobody knows of which. Never blocks."""
        live = entry.live
        if live is None:
            return
        live.lost.add(device_id)
        live.held.pop(device_id, None)
        live.warm.pop(device_id, None)
        if device_id and device_id not in live.device_ids:
            return
        live.coordinator.suspend(reason)
        if entry.state == "ready":
            log.info("%s is interrupted: %s", entry.model, reason)
            entry.state = "recovering"
        entry.message = reason
        entry.lost.set()
        entry.try_again.set()

    def lose_reserve(self, device_id: str) -> None:
        """A PC cannot load anything now, so it is no warm standby any more. Never blocks."""
        lives = [entry.live for entry in self._book.all() if entry.live is not None and device_id in entry.live.warm]
        for live in lives:
            del live.warm[device_id]
        if lives:
            self._book.say_what_stays([device_id])

    def leave(self, entry: Entry, device_id: str) -> None:
        """A PC wants to leave, and still works for a few seconds. Never blocks."""
        live = entry.live
        if live is None or not entry.name_of(device_id):
            return
        if device_id in live.device_ids and entry.state == "ready" and entry.keeper is not None:
            entry.leaving.add(device_id)
            entry.lost.set()  # the keeper hands over
        else:
            self.lose(entry, f"{entry.name_of(device_id)} leaves.", device_id)
            self._hub.unload_soon(device_id, live.pipeline)

    async def _keep_up(self, entry: Entry) -> None:
        """Watch a model while it is up and bring it back while it is not, until cancelled."""
        while True:
            try:
                if entry.live is not None:
                    await self._watch(entry, entry.live)
                    await self._hand_over(entry, entry.live)
                    if entry.state == "ready":  # who wanted to leave stays
                        entry.lost.clear()
                        continue
                    await self._let_go(entry)
                    if await self._recover(entry, entry.live):
                        continue
                    await self.take_down(entry)
                entry.waiting_since_s = time.monotonic()
                while entry.live is None:
                    await self._try_again(entry)
            except Exception:  # the edge of a task nobody awaits: a model must not stay down because of one surprise
                log.exception("Keeping %s up failed unexpectedly; it goes on.", entry.model)
                if entry.live is not None:
                    entry.live.coordinator.stage_lost("The console failed unexpectedly; its log says why.")
                    entry.state = "waiting"
                    await self.take_down(entry)
                await asyncio.sleep(MAX_PAUSE_S)

    async def _watch(self, entry: Entry, live: LivePipeline) -> None:
        """Return when the pipeline cannot answer any more."""
        checked_s = time.monotonic()
        while not entry.lost.is_set():
            self._standbys.tend(entry)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await entry.lost.wait()
            if time.monotonic() - checked_s >= PROBE_EVERY_S and not entry.lost.is_set():
                checked_s = time.monotonic()
                self._note_speeds(entry, live)
                readiness = await live.coordinator.ready(PROBE_EVERY_S)
                if not readiness.ready and not entry.lost.is_set():
                    self.lose(entry, f"A probe token did not come through: {readiness.reason}")

    async def _hand_over(self, entry: Entry, live: LivePipeline) -> None:
        """Let standbys get ready for PCs that want to leave, while these still work; then they are lost."""
        if entry.leaving_route() and not live.coordinator.suspended:
            entry.lost.clear()
            await self._standbys.hand_over(entry, live, entry.leaving_route())
        # Others may have joined them meanwhile, and who is available again stays.
        for device_id in entry.leaving_route():
            self.lose(entry, f"{entry.name_of(device_id)} leaves.", device_id)

    async def _let_go(self, entry: Entry) -> None:
        """Tell PCs that waited that they may leave: nothing is computed there any more, whoever takes over."""
        leaving, entry.leaving = entry.leaving, set()
        for device_id in leaving:
            await self._hub.unload(device_id, entry.plan.pipeline)

    async def _recover(self, entry: Entry, live: LivePipeline) -> bool:
        """Let others take over what was lost; False when nobody did in time, and the answers have ended."""
        await self._standbys.rest(entry)
        reason = entry.message
        try:
            async with asyncio.timeout(entry.request.recover_s):
                await self._take_over(entry, live)
            return True
        except TimeoutError:
            more = "" if entry.message == reason else f" {entry.message}"
            waited = f"Nobody took over within {entry.request.recover_s:g} s."
            entry.state, entry.message = "waiting", f"{reason} {waited}{more}"
            live.coordinator.stage_lost(entry.message)
            self._book.totals_of(entry.model).given_up += 1
            return False

    async def _take_over(self, entry: Entry, live: LivePipeline) -> None:
        avoid: dict[str, float] = {}
        began_s = time.monotonic()
        while True:
            entry.lost.clear()
            entry.try_again.clear()
            try:
                now_s = time.monotonic()
                await self._take_over_once(entry, live, [who for who, until_s in avoid.items() if until_s > now_s])
                if await self._proves(entry, live):
                    took_s = time.monotonic() - began_s
                    self._book.totals_of(entry.model).recovered.add(took_s)
                    log.info("%s goes on after %.2f s, epoch: %d.", entry.model, took_s, live.epoch)
                    return
            except DeployError as error:
                log.info("%s does not go on yet: %s", entry.model, error)
                entry.message = str(error)
                if isinstance(error, DeployFailed) and error.device_id:
                    avoid[error.device_id] = time.monotonic() + AVOID_S
            if not entry.try_again.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TAKEOVER_PAUSE_S):
                        await entry.try_again.wait()

    async def _take_over_once(self, entry: Entry, live: LivePipeline, avoid: Sequence[str]) -> None:
        def new_epoch() -> Epoch:
            return self._book.new_epoch(entry)

        available = self._facts.available(entry.request, self._book.taken(entry))
        library, beside = self._library(entry), self._book.live_beside(entry)
        agents = self._facts.collect(entry.request, available, beside, library.digest, library.manifest)
        takeover = Takeover(self._hub, library, entry.request, live, new_epoch)
        await takeover.run(agents, avoid)
        self._book.settle(entry, live, CONSOLE, "taken_over")

    async def _proves(self, entry: Entry, live: LivePipeline) -> bool:
        """Wait until a token came through all stages; False when it does not, or another PC is lost first."""
        probe = asyncio.create_task(live.coordinator.ready(PROBE_EVERY_S))
        lost = asyncio.create_task(entry.lost.wait())
        try:
            # Answers that go on prove it, too, and a probe may have to wait behind them.
            while not (probe.done() or lost.done() or live.coordinator.is_proven):
                await asyncio.wait({probe, lost}, timeout=PROVEN_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (probe, lost):
                task.cancel()
            await asyncio.gather(probe, lost, return_exceptions=True)
        if entry.lost.is_set():
            return False
        if live.coordinator.is_proven:
            entry.state, entry.message = "ready", ""
            return True
        # What the stages hold is of no use: they are loaded anew.
        live.held.clear()
        live.coordinator.suspend("A probe token did not come through.")
        return False

    async def _try_again(self, entry: Entry) -> None:
        """Wait for PCs, then try once; a failed try makes the next pause longer."""
        pause_s = min(MAX_PAUSE_S, 2.0**entry.failures)
        agents = self._candidates(entry)
        if agents:
            entry.message = f"Being loaded again on {counted(len(agents), 'PC')} or fewer."
            try:
                wanted = as_possible(entry.request, entry.number, agents, entry.failures)
                await self.roll_out(entry, agents, CONSOLE, wanted)
                return
            except DeployError as error:
                entry.failures += 1
                entry.message = f"Not up again yet: {error}"
                log.info("%s is not up again yet: %s", entry.model, error)
            await asyncio.sleep(pause_s)
        entry.try_again.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s if agents else SAME_PCS_FIRST_S):
                await entry.try_again.wait()

    def _candidates(self, entry: Entry) -> list[str]:
        """Choose the former PCs once all are there, else, after a while, whoever is."""
        available = self._facts.available(entry.request, self._book.taken(entry))
        former = entry.device_ids()
        if former and set(former) <= set(available):
            return former
        patient = time.monotonic() - entry.waiting_since_s < SAME_PCS_FIRST_S
        return [] if former and patient else available

    def _library(self, entry: Entry) -> LoadedLibrary:
        if entry.library is None:
            entry.library = self._shelf.by_digest(entry.digest)
        return entry.library

    def _note_speeds(self, entry: Entry, live: LivePipeline) -> None:
        """Save what the stages take. What cannot be saved now is measured again: no answer depends on it."""
        try:
            self._facts.measured(live, entry.request)
        except SQLAlchemyError as error:
            log.warning("What stages of %s take cannot be noted now (%s).", entry.model, type(error).__name__)
