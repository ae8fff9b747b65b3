"""What an admin deploys takes the place of what is served: beside it where the memory allows, else after it made room.

Until the new one is ready the old one answers. If the new one fails the old one stays, or comes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from agent.logs.about import about
from console.api.admin import types as wire
from console.byhand import checked, refuse_faults
from console.deployments.book import Book
from console.deployments.entry import Entry, SavedPlan, broken
from console.deployments.keeper import Keeper
from console.deployments.rollout import check_context, make_plan
from console.drafting import check_draft, drafts_from
from console.errors import DeployError, DeployFailed, DeployRefused
from console.facts import FleetFacts
from console.libraries import LibraryShelf
from console.planner.types import AgentFacts
from console.registry.audit import Actor
from console.registry.errors import RegistryError

log = logging.getLogger(__name__)

FINISH_S = 120.0
"""How long answers of a replaced deployment may take to end."""
FINISH_LOOK_S = 0.25


class Replacing:
    """The attempts under way, at most one for a model."""

    def __init__(self, shelf: LibraryShelf, facts: FleetFacts, book: Book, keeper: Keeper) -> None:
        self._shelf = shelf
        self._facts = facts
        self._book = book
        self._keeper = keeper
        self._attempts: dict[str, Entry] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        shelf.ask_before_removing(self._user_of)

    def check(self, model_id: str) -> None:
        """Raise DeployRefused while the model is being deployed."""
        if model_id in self._attempts:
            raise DeployRefused(f"{model_id} is being deployed already; see: fallow-console status")

    def begin(self, entry: Entry, formers: Sequence[Entry], actor: Actor) -> None:
        """Start an attempt; `entry` takes the place of a model's pipelines when it is ready."""
        self._attempts[entry.model] = entry
        if formers:
            self._book.others.append(entry)
        else:
            self._book.entries[entry.key] = entry
        with about(model=entry.model):
            entry.job = asyncio.create_task(self._run(entry, formers, actor), name=f"deploy {entry.model}")

    async def cancel(self, model_id: str) -> Entry | None:
        """End an attempt, if there is one; what was served before is not touched."""
        entry = self._attempts.get(model_id)
        if entry is None or entry.job is None:
            return None
        entry.job.cancel()
        await asyncio.gather(entry.job, return_exceptions=True)
        self._end(entry, wire.Broken("undeployed", f"{model_id} was taken down during its deployment."))
        return entry

    async def close(self) -> None:
        """End every attempt, and what waits for its last answers."""
        for model_id in list(self._attempts):
            entry = self._attempts[model_id]
            if entry.job is not None:
                entry.job.cancel()
                await asyncio.gather(entry.job, return_exceptions=True)
            stopped = "The console was stopped during the deployment; start it again."
            self._end(entry, wire.Broken("stopping", stopped))
        for task in list(self._retiring):
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)

    def shown(self, entry: Entry, view: wire.PipelineView) -> wire.PipelineView:
        """Add to a view that something else is to take its place."""
        attempt = self._attempts.get(entry.model)
        # What is down answers nobody, and an attempt that serves already only brings up its further pipelines.
        if entry.live is None or attempt not in self._book.others:
            return view
        message = f"{view.message} Another deployment is on its way; until it is ready this one answers.".strip()
        return msgspec.structs.replace(view, message=message)

    def _user_of(self, digest: str) -> str:
        for entry in self._attempts.values():
            if entry.digest == digest:
                return f"{entry.model} is being deployed from it"
        for entry in self._book.all():
            if entry.state != "failed" and drafts_from(self._shelf, entry.request) == digest:
                return f"{entry.model} is served with it as its draft model"
        return ""

    async def _run(self, entry: Entry, formers: Sequence[Entry], actor: Actor) -> None:
        last: wire.DeployEvent
        try:
            await check_draft(self._shelf, entry.request)
            self._check_given(entry, formers)
            await self._try(entry, formers, actor)
            if formers:  # first: what cannot be saved does not take the place of what is
                self._book.save(entry, actor)
        except DeployError as error:
            last = broken(error)
            await self._fail(entry, formers, str(error), actor)
        except Exception:  # the edge of a task nobody awaits: the admin gets an end, the log the cause
            log.exception("The deployment of %s failed unexpectedly.", entry.model)
            last = wire.Broken("internal_error", "The console failed while deploying; its log says why.")
            await self._fail(entry, formers, last.message, actor)
        else:
            await self._succeed(entry, formers, actor)
            last = wire.Ready(entry.model, entry.live.probe_ms if entry.live else 0.0)
        self._end(entry, last)

    async def _try(self, entry: Entry, formers: Sequence[Entry], actor: Actor) -> None:
        """Bring it up beside what is served; if only the memory is missing, in its place."""
        try:
            await self._keeper.roll_out(entry, self._facts.available(entry.request), actor)
            return
        except DeployError as error:
            if all(former.live is None for former in formers) or not await self._would_fit(entry, formers, error):
                raise
            why = str(error)
        entry.tell(wire.Note(f"It does not fit beside what is served, which makes room first: {why}"))
        log.info("%s makes room for its next deployment: %s", entry.model, why)
        for former in formers:
            await self._keeper.stop(former)
            former.state, former.message = "waiting", "It makes room for another deployment of the model."
            await self._keeper.take_down(former)
        await self._keeper.roll_out(entry, self._facts.available(entry.request), actor)

    async def _would_fit(self, entry: Entry, formers: Sequence[Entry], error: DeployError) -> bool:
        """Whether an attempt failed only for what the former deployment holds."""
        if isinstance(error, DeployFailed):
            return error.code == "memory"
        try:
            if entry.library is not None:
                await make_plan(entry.library, entry.request, self._facts_without(entry, formers))
        except DeployRefused:
            return False
        return True

    def _check_given(self, entry: Entry, formers: Sequence[Entry]) -> None:
        """Refuse a plan made by hand as a whole, all its pipelines, before any PC hears of it. Raises DeployRefused."""
        if entry.request.plan and entry.library is not None:
            check_context(entry.request, entry.library.manifest)
            facts = self._facts_without(entry, formers)
            refuse_faults(checked(entry.library, entry.request, facts, names=self._facts.names()))

    def _facts_without(self, entry: Entry, formers: Sequence[Entry]) -> list[AgentFacts]:
        """Describe the PCs as if what the model's former pipelines hold were free."""
        going = [former.live for former in formers]
        others = [live for live in self._book.live_beside(entry) if live not in going]
        return self._facts.collect(entry.request, self._facts.available(entry.request), others, entry.digest)

    async def _succeed(self, entry: Entry, formers: Sequence[Entry], actor: Actor) -> None:
        if formers:
            self._book.others.remove(entry)
            for former in formers:
                self._book.entries.pop(former.key, None)
            self._book.entries[entry.key] = entry
            for former in formers:
                if former.key != entry.key:
                    self._forget(former, actor)
                await self._retire(former)
        self._keeper.keep(entry)
        for number in range(1, entry.request.replicas):
            await self._add(entry, number, actor)

    async def _add(self, first: Entry, number: int, actor: Actor) -> None:
        """Bring up one more pipeline of a model; one that does not come up now is tried again later."""
        plan = SavedPlan(self._book.new_pipeline(), first.plan.created_s, number=number)
        entry = Entry(first.request, first.library, first.digest, plan, first.epoch, "deploying", "Being deployed.")
        entry.listeners = first.listeners
        self._book.entries[entry.key] = entry
        try:
            await self._keeper.roll_out(entry, self._facts.available(entry.request, self._book.taken(entry)), actor)
        except DeployError as error:
            entry.state, entry.message = "waiting", f"Not up yet: {error}"
            which = f"Pipeline {number + 1} of {first.request.replicas}"
            first.tell(wire.Note(f"{which} is not up yet and is tried again: {error}"))
        except Exception:  # the edge of a task nobody awaits: the first pipeline serves
            log.exception("Pipeline %d of %s failed unexpectedly.", number + 1, first.model)
            entry.state, entry.message = "waiting", "The console failed while deploying; its log says why."
        entry.listeners = []
        self._keeper.keep(entry)

    async def _fail(self, entry: Entry, formers: Sequence[Entry], message: str, actor: Actor) -> None:
        entry.state, entry.message = "failed", message
        if entry.live is not None:  # it came up and could not be saved
            await self._keeper.take_down(entry)
        if not formers:
            self._forget(entry, actor)
            return
        self._book.others.remove(entry)
        for former in formers:
            if former.keeper is None and former.state != "failed":
                former.message = f"Another deployment failed, so this one comes back: {message}"
                self._keeper.keep(former)
            elif former.state == "failed" and former.key == entry.key:
                self._book.entries[entry.key] = entry

    def _forget(self, entry: Entry, actor: Actor) -> None:
        try:
            self._book.forget(entry, actor)
        except (SQLAlchemyError, RegistryError) as error:
            log.warning("%s may come back at the next start: %s", entry.model, type(error).__name__)

    async def _retire(self, former: Entry) -> None:
        """Take down what was replaced, once its answers have ended; nobody new comes to it."""
        await self._keeper.stop(former)
        if former.live is None or not _busy(former):
            await self._keeper.take_down(former)
            return
        self._book.others.append(former)
        with about(fresh=True, model=former.model):
            task = asyncio.create_task(self._finish(former), name=f"retire {former.model}")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _finish(self, former: Entry) -> None:
        try:
            for _ in range(int(FINISH_S / FINISH_LOOK_S)):
                if not _busy(former):
                    break
                await asyncio.sleep(FINISH_LOOK_S)
        finally:
            self._book.others.remove(former)
            await self._keeper.take_down(former)

    def _end(self, entry: Entry, last: wire.DeployEvent) -> None:
        self._attempts.pop(entry.model, None)
        if entry in self._book.others:
            self._book.others.remove(entry)
        entry.job = None
        entry.tell(last)
        entry.listeners.clear()


def _busy(entry: Entry) -> bool:
    """Whether answers come from what was replaced; nobody takes over what it loses."""
    if entry.live is None or entry.live.coordinator.suspended:
        return False
    status = entry.live.coordinator.status()
    return bool(status.streams_running or status.streams_waiting)
