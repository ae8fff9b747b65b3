"""An agent's updates while it runs: takes what the console offers as far as another start of the program. Event loop.

The console decides who gets what when; nobody believes it what a release is. All work that takes memory, processor or
disk is done by `worker.py`, in a process that makes way for everybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from agent.link.messages import AskRelease, OfferRelease, UpdateState
from agent.threads import finish_in_thread
from agent.update.archives import Packed
from agent.update.errors import ReleaseRefused, UpdateError
from agent.update.keeping import read_progress, write_progress
from agent.update.permission import Means
from agent.update.progress import Now, Progress, dropped, moved, next_step, postponed, taken
from agent.update.proof import Trial
from agent.update.releases import Here, Release
from agent.update.words import sentence_of
from agent.update.worker import Answer, Judge, Judged, Prepare, Request, ask_worker

log = logging.getLogger(__name__)

LOOK_S = 30.0
WATCH_S = 0.5
"""While somebody else writes how far the update is."""
ANSWER_S = 30.0


class Owner(Protocol):
    """Whether an update is allowed and would be felt; `agent.program.Program` is one."""

    @property
    def allows_updates(self) -> bool:
        """By policy."""
        ...

    @property
    def is_away(self) -> bool:
        """Whether nobody is at this PC."""
        ...

    @property
    def is_serving(self) -> bool:
        """Whether a stage is loaded or loading."""
        ...

    @property
    def pays(self) -> bool:
        """Whether a transfer would cost the owner something: a metered network, a battery."""
        ...

    def restart(self) -> None:
        """End, so that the program is started again."""
        ...


Fetch = Callable[[str, int], Awaitable[Path]]
"""Brings a file of this SHA-256 and size to this PC. Raises FetchProblem."""


class FetchProblem(Exception):
    """A file did not come: one sentence."""


class Updates:
    """`run` it as a task of each session; what was begun goes on in the next."""

    def __init__(
        self,
        means: Means,
        here: Here,
        owner: Owner,
        *,
        trial: Trial | None = None,
        ask: Callable[[Request], Awaitable[Answer]] = ask_worker,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._means, self._here, self._owner = means, here, owner
        self._trial, self._ask, self._on_change, self._clock = trial, ask, on_change, clock
        self._progress = Progress() if means.installation is None else read_progress(means.installation)
        self._offer: OfferRelease | None = None
        self._answered = asyncio.Event()
        self._news = asyncio.Event()
        self._refusal = ""
        self._hurry = False
        self._is_offered = False
        """Whether the console offers in this session what is under way: it may have been withdrawn meanwhile."""
        self._told: UpdateState | None = None
        self._say: Callable[[UpdateState | AskRelease], None] | None = None

    @property
    def platform(self) -> str:
        """What releases have to be for."""
        return self._here.platform

    @property
    def channel(self) -> str:
        """Which releases are wanted."""
        return self._here.channel

    @property
    def progress(self) -> Progress:
        """How far the update is."""
        return self._progress

    @property
    def why_off(self) -> str:
        """Why this agent does not update itself; empty: it does."""
        if self._means.why_off:
            return self._means.why_off
        return "" if self._owner.allows_updates else "Self-update is off: the policy does not allow it."

    @property
    def sentence(self) -> str:
        """How far the update is, for people."""
        return self._refusal or sentence_of(self._progress, self.why_off)

    def offered(self, offer: OfferRelease) -> None:
        """The console offers a release, or says that it has none (nothing signed)."""
        self._offer = offer
        self._news.set()

    def look_again(self) -> None:
        """Something an update waits for may have changed."""
        self._news.set()

    async def check(self, *, now: bool) -> str:
        """Ask the console for a release and return a sentence; `now`: do not wait until nobody is at this PC."""
        if self.why_off:
            return self.why_off
        if self._say is None:
            return "The console cannot be reached; updates come from there."
        self._answered.clear()
        self._hurry = self._hurry or now
        self._say(AskRelease())
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._answered.wait()
        except TimeoutError:
            return "The console has not answered yet; it offers no releases, or is busy."
        return self.sentence

    async def run(self, say: Callable[[UpdateState | AskRelease], None], fetch: Fetch) -> None:
        """Work until cancelled; what was begun goes on the next time."""
        self._say, self._told, self._is_offered = say, None, False
        try:
            if self._trial is not None:
                await finish_in_thread(partial(self._trial.give, self._here.version))
            while True:
                self._news.clear()
                step_s = await self._look(fetch)
                self._tell()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(step_s):
                        await self._news.wait()
        except OSError as error:
            log.warning("Updates cannot go on (%s); they do after the next start.", error)
        finally:
            self._say = None

    async def _look(self, fetch: Fetch) -> float:
        """Do what is to be done now; returns how long to wait for news then."""
        installation = self._means.installation
        if installation is None:
            self._answered.set()
            return LOOK_S
        if self._progress.is_launchers:
            self._progress = await finish_in_thread(partial(read_progress, installation))
            return WATCH_S
        offer, self._offer = self._offer, None
        if offer is not None:
            await self._judge(offer)
            self._answered.set()
        step = next_step(self._progress, self._now())
        if step == "rest" or (step == "fetch" and self._owner.pays and not self._hurry):
            return LOOK_S
        self._refusal = ""
        if step == "fetch":
            await self._fetch(fetch)
        elif step == "prepare":
            await self._prepare(fetch)
        elif step == "drop":
            problem = f"The release of {self._progress.version} expired before it was installed."
            await self._go(dropped(self._progress, problem, self._clock(), bad=False))
        else:
            await self._go(moved(self._progress, "wanted", self._clock()))
            log.info("The agent starts again, as version %s.", self._progress.version)
            self._owner.restart()
        return 0.0

    def _now(self) -> Now:
        owner = self._owner
        allowed = self._is_offered and not self.why_off
        return Now(self._clock(), allowed, owner.is_away, owner.is_serving, self._hurry)

    async def _go(self, progress: Progress) -> None:
        installation = self._means.installation
        if installation is not None:
            await finish_in_thread(partial(write_progress, installation, progress))
        self._progress = progress
        self._tell()

    async def _judge(self, offer: OfferRelease) -> None:
        """Take a release that somebody vouches for; keep why not, if not."""
        self._refusal, self._is_offered = "", False
        if not offer.signed:
            if self._progress.phase in ("fetching", "preparing", "ready"):
                await self._go(dropped(self._progress, "It was withdrawn.", self._clock(), bad=False))
            return
        installation = self._means.installation
        if installation is None or self.why_off:
            return
        root, program = os.fspath(installation.root), installation.current_program().name
        try:
            answer = await self._ask(Judge(root, program, self._means.root, offer.signed, self._here))
            release = _release_of(answer)
            if why := self._progress.bad.get(release.version):
                raise ReleaseRefused(f"{release.version} did not work on this PC before: {why}", "bad")
        except UpdateError as error:
            log.warning("The console's release is not taken: %s", error)
            self._refusal = str(error)
            return
        self._is_offered = True
        known = self._progress
        progress = taken(known, release, self._here.version, self._clock())
        if progress != known:
            await self._go(progress)

    async def _fetch(self, fetch: Fetch) -> None:
        try:
            await fetch(self._progress.sha256, self._progress.size_bytes)
        except FetchProblem as problem:
            await self._go(postponed(self._progress, str(problem), self._clock()))
        else:
            await self._go(moved(self._progress, "preparing", self._clock()))

    async def _prepare(self, fetch: Fetch) -> None:
        installation, progress = self._means.installation, self._progress
        if installation is None:
            return
        root, program = os.fspath(installation.root), installation.current_program().name
        packed = Packed(progress.size_bytes, progress.sha256, progress.unpacked_bytes, progress.entries)
        try:
            archive = await fetch(progress.sha256, progress.size_bytes)
            await self._ask(Prepare(root, program, os.fspath(archive), packed, progress.version))
        except FetchProblem as problem:
            await self._go(postponed(self._progress, str(problem), self._clock()))
        except UpdateError as error:
            # Plain UpdateErrors are the PC's (a full disk, a time-out); the others are the release's own.
            await self._go(
                postponed(progress, str(error), self._clock())
                if type(error) is UpdateError
                else dropped(progress, str(error), self._clock(), bad=True)
            )
        else:
            await self._go(moved(progress, "ready", self._clock()))

    def _tell(self) -> None:
        """Say how far it is, if that changed."""
        phase = "off" if self.why_off else "refused" if self._refusal else self._progress.phase
        problem = self.why_off or self._refusal or self._progress.problem
        state = UpdateState(phase, self._progress.version, problem)
        if state != self._told and self._say is not None:
            self._say(state)
            self._told = state
            self._on_change()
        if not self._progress.is_under_way:
            self._hurry = False


def _release_of(answer: Answer) -> Release:
    if not isinstance(answer, Judged):
        raise UpdateError(f"The update's work answered with {type(answer).__name__}; install the program again.")
    return answer.release
