"""The life of a PC that is in no fleet: it works for nobody, and joins when it is told to. Event loop only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from agent.control.errors import OrderRefused
from agent.joining import join
from agent.link import invite as invites
from agent.link.approval import EnrolState
from agent.link.errors import LinkError
from agent.link.identity import Identity
from agent.link.keystore import Keystore
from agent.volunteer.surroundings import LinkPhase, StagesPhase


class Unenrolled:
    """The work of such a PC, which is none, as the volunteer sees it; and how it ends."""

    stages_phase: StagesPhase = "none"

    def __init__(self, folder: Path, keystore: Keystore, on_change: Callable[[], None]) -> None:
        """`folder` is the data folder; `on_change` hears of every change of `link_phase`."""
        self._folder, self._keystore, self._on_change = folder, keystore, on_change
        self._enrolling = asyncio.Lock()
        self.link_phase: LinkPhase = "unenrolled"
        self.device_code = ""
        """What the administrator who approves this PC compares; empty while nobody has to."""

    def tell_availability(self) -> None:
        """There is nobody to tell."""

    async def give_back(self) -> str:
        """There is nothing to give back."""
        return ""

    async def join(self, invite: str, name: str, tell: Callable[[str, str], None]) -> Identity:
        """Join a fleet with an invite; `tell` hears the phase and the device code. Raises OrderRefused."""
        if self._enrolling.locked():
            raise OrderRefused("Another program enrols this PC just now; wait for it.", "not_now")

        def on_state(state: EnrolState) -> None:
            self.device_code = state.device_code if state.phase == "pending" else ""
            self.link_phase = "pending" if state.phase == "pending" else "unenrolled"
            self._on_change()
            tell(state.phase, self.device_code)

        async with self._enrolling:
            try:
                return await join(self._folder, invites.decode(invite), self._keystore, name=name, on_state=on_state)
            except LinkError as error:
                raise OrderRefused(str(error), "failed") from None
            except OSError as error:
                raise OrderRefused(
                    f"This PC's identity cannot be kept in {error.filename or self._folder} "
                    f"({error.strerror or type(error).__name__}); free some space or correct the rights, then use the "
                    "same invite again.",
                    "failed",
                ) from None
            finally:
                self.device_code, self.link_phase = "", "unenrolled"
