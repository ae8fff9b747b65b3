"""The life of a PC that is in no fleet: it works for nobody, joins when it is told to, and waits to be let in.

One enrolment runs at a time. Whoever ordered it may leave: once the console has the request, waiting goes on, also in
the next life of this program. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from pathlib import Path

from agent.control.errors import OrderRefused
from agent.first_run import delete_if_of, join_with_file
from agent.joining import UNHEARD, WAITS_NO_MORE, join
from agent.link import invite as invites
from agent.link.approval import FINAL_CODES, EnrolState, await_approval, awaited, withdraw
from agent.link.errors import EnrolmentDenied, LinkError
from agent.link.identity import Identity
from agent.link.keystore import Keystore
from agent.link.waiting import Waiting
from agent.threads import finish_in_thread
from agent.volunteer.surroundings import LinkPhase, StagesPhase

log = logging.getLogger(__name__)

Tell = Callable[[str, str], None]
"""Hears the phase and the device code."""


class _Interrupted(Exception):
    """What was under way gives way: to another invite, or to an owner who no longer wants it."""


class Unenrolled:
    """The work of such a PC, which is none, as the volunteer sees it; and how it ends."""

    stages_phase: StagesPhase = "none"

    def __init__(
        self,
        folder: Path,
        keystore: Keystore,
        on_change: Callable[[], None],
        *,
        invite_file: Path | None = None,
        why_none: str = "",
    ) -> None:
        """`folder` is the data folder; `on_change` hears of every change.

        `invite_file` is what an installer may have left; `why_none`: why there is no identity, if one was here.
        """
        self._folder, self._keystore, self._on_change = folder, keystore, on_change
        self._invite_file = invite_file
        self.why_none = why_none
        """Why this PC is in no fleet, or why its wait came to nothing; empty where there is nothing to say."""
        self._turns = asyncio.Lock()
        self._claims = 0
        self._running: asyncio.Task[Identity] | None = None
        self._why_interrupted = ""
        self._look = asyncio.Event()
        self._look.set()
        self._settled = asyncio.Event()
        self.link_phase: LinkPhase = "unenrolled"
        self.device_code = ""
        """What the administrator who approves this PC compares; empty while nobody has to."""
        self.said = ""
        """Why the console cannot be asked for the answer just now."""

    def tell_availability(self) -> None:
        """There is nobody to tell."""

    async def give_back(self) -> str:
        """There is nothing to give back."""
        return ""

    async def join(self, invite: str, name: str, tell: Tell) -> Identity:
        """Join a fleet with an invite; takes the place of a wait for approval. Raises OrderRefused."""
        if self._running is not None and self.link_phase != "pending":
            raise OrderRefused("Another program enrols this PC just now; wait for it.", "not_now")
        try:
            decoded = invites.decode(invite)
            async with self._turn_instead("Another invite took the place of this one."):
                make = partial(join, self._folder, decoded, self._keystore, name=name)
                return await self._run(lambda on_state: make(on_state=on_state), tell)
        except _Interrupted as error:
            raise OrderRefused(str(error), "denied") from None
        except LinkError as error:
            final = isinstance(error, EnrolmentDenied) and error.code in FINAL_CODES
            raise OrderRefused(str(error), "denied" if final else "failed") from None
        except OSError as error:
            raise self._disk(error, "use the same invite again") from None
        finally:
            self._look.set()

    async def join_by_itself(self, be: Callable[[Identity], str]) -> None:
        """Join without anybody's order: by what this PC waits for, or with the invite that an installer left.

        `be` makes this PC a member and returns a sentence; cancel this then.
        """

        async def with_file(invite: str, name: str, tell: Tell) -> str:
            try:
                return be(await self.join(invite, name, tell))
            except OrderRefused as error:
                self._not_let_in(str(error))
                raise

        self._look.set()
        await asyncio.gather(self._go_on(be), join_with_file(self._invite_file, with_file, self._settled.wait))

    async def _go_on(self, be: Callable[[Identity], str]) -> None:
        """Wait for approval whenever it was asked for and nobody else waits: after a restart, or after they left."""
        identity = None
        while identity is None:
            await self._look.wait()
            self._look.clear()
            async with self._turns:
                waiting = await self._awaited()
                # Who wants this turn lets it look again afterwards.
                identity = None if waiting is None or self._claims else await self._wait(waiting)
        log.info("%s", be(identity))

    def forget_file(self) -> None:
        """This PC is a member: what an installer left, and why there was no identity, are of the past."""
        self._invite_file, self.why_none = None, ""

    async def cancel(self) -> str:
        """Stop waiting, forget the request and tell the console; returns a sentence. Raises OrderRefused."""
        running, waiting = self._running, await self._awaited()
        if running is None and waiting is None:
            raise OrderRefused("This PC does not wait for approval.", "not_now")
        self.why_none = ""
        try:
            async with self._turn_instead(WAITS_NO_MORE):
                if running is not None and not running.cancelled() and running.exception() is None:
                    raise OrderRefused("This PC has just been let in; leave the fleet to undo that.", "not_now")
                heard = await withdraw(self._folder / "identity", keystore=self._keystore)
                if waiting is not None:
                    await self._spent(waiting)
        except OSError as error:
            raise self._disk(error, "try again") from None
        finally:
            self._look.set()
        return WAITS_NO_MORE if heard else UNHEARD

    async def _awaited(self) -> Waiting | None:
        try:
            waiting = await finish_in_thread(partial(awaited, self._folder / "identity"))
        except OSError as error:
            log.warning("Whether this PC waits for approval cannot be read (%s); correct the rights.", error)
            waiting = None
        if waiting is None and self._running is None:
            self._settled.set()
        return waiting

    async def _wait(self, waiting: Waiting) -> Identity | None:
        self._settled.clear()
        log.info("Waiting for an administrator to approve this PC. Its code is %s.", waiting.device_code)
        make = partial(await_approval, self._folder / "identity", waiting, keystore=self._keystore)
        try:
            identity = await self._run(lambda on_state: make(on_state=on_state), lambda phase, code: None)
        except _Interrupted:
            return None  # whoever interrupted it lets this look again
        except (LinkError, OSError) as error:
            log.warning("This PC does not wait for approval any more: %s", error)
            await self._spent(waiting)
            self._not_let_in(str(error))
            self._look.set()
            return None
        await self._spent(waiting)
        return identity

    async def _spent(self, waiting: Waiting) -> None:
        """Keep no invite whose wait is over: used again, it would be another request for the administrator."""
        path = self._invite_file
        if path is not None:
            await finish_in_thread(partial(delete_if_of, path, waiting.token_id))

    def _not_let_in(self, why: str) -> None:
        self.why_none = why
        self._on_change()

    async def _run(
        self, make: Callable[[Callable[[EnrolState], None]], Coroutine[None, None, Identity]], tell: Tell
    ) -> Identity:
        told = ("", "")

        def on_state(state: EnrolState) -> None:
            nonlocal told
            pending = state.phase == "pending"
            self.device_code, self.said = (state.device_code, state.said) if pending else ("", "")
            self.link_phase = "pending" if pending else "unenrolled"
            self._on_change()
            # Waiting for approval repeats itself every few seconds, for days if need be.
            if told != (state.phase, self.device_code):
                told = (state.phase, self.device_code)
                tell(*told)

        running = self._running = asyncio.create_task(make(on_state), name="enrolment")
        try:
            await asyncio.wait({running})
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            self._running = None
            self.device_code, self.said, self.link_phase = "", "", "unenrolled"
            self._on_change()
        if running.cancelled():
            raise _Interrupted(self._why_interrupted)
        return running.result()

    @contextlib.asynccontextmanager
    async def _turn_instead(self, why: str) -> AsyncIterator[None]:
        """Take the turn of whatever is under way, or about to be, which is told why."""
        self._claims += 1
        if self._running is not None:
            self._why_interrupted = why
            self._running.cancel()
        try:
            await self._turns.acquire()
        finally:
            self._claims -= 1
        try:
            yield
        finally:
            self._turns.release()

    def _disk(self, error: OSError, then: str) -> OrderRefused:
        return OrderRefused(
            f"This PC's identity cannot be kept in {error.filename or self._folder} "
            f"({error.strerror or type(error).__name__}); free some space or correct the rights, then {then}.",
            "failed",
        )
