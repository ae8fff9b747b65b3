"""Several consoles on one registry: says which PCs this one holds, hears what the others did, trusts their roots.

Runs only where the registry can be shared. Every half second it looks whether another console took a PC out that this
one holds, and whether a PC is held by two, so that revoking works within a second whichever console it is done on.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from agent.link.closing import CloseCode
from agent.link.identity import DeviceId
from console.fleet.hub import Hub
from console.fleet.policies import PolicyPost
from console.fleet.upkeep import stopped_within
from console.registry.access import refusal_sentence
from console.registry.authority import Authority
from console.registry.registry import Registry

log = logging.getLogger(__name__)

EVERY_S = 0.5
GREET_EVERY = 4
"""Rounds between two greetings, which look at the others' roots, too."""


class Presence:
    """Start it when the hub listens. `name` is what the other consoles call this one.

    `post` tells the PCs held here what the administrator said at another console.
    """

    def __init__(
        self,
        registry: Registry,
        hub: Hub,
        authority: Authority,
        name: str,
        *,
        post: PolicyPost | None = None,
        every_s: float = EVERY_S,
    ) -> None:
        self._post = post
        self._registry = registry
        self._hub = hub
        self._authority = authority
        self._name = name
        self._every_s = every_s
        self._round = 0
        self._elsewhere: dict[str, str] = {}
        self._held: dict[str, float] = {}
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def elsewhere(self) -> dict[str, str]:
        """The PCs other consoles hold: device ids with the console's name."""
        return self._elsewhere

    async def start(self) -> None:
        """Join the other consoles and begin."""
        await self.once()
        self._task = asyncio.create_task(self._run(), name="presence")

    async def stop(self) -> None:
        """Leave: the others see at once that this console holds no PC any more."""
        if self._task is not None:
            # Not cancelled: its thread would go on with a database that is closed meanwhile.
            self._stopping.set()
            await self._task
            self._task = None
            await self._registry.ask(partial(self._registry.consoles.leave, self._authority.console_id))

    async def _run(self) -> None:
        failed = False
        while not await stopped_within(self._stopping, self._every_s):
            try:
                await self.once()
            except SQLAlchemyError as error:
                # The database may be restarting; the links stay, and the next round tells and hears everything.
                if not failed:
                    log.warning("The shared registry does not answer (%s); it is asked again.", type(error).__name__)
                failed = True
            else:
                failed = False

    async def once(self) -> None:
        """Tell and hear everything once."""
        held = {agent.device_id: agent.connected_s for agent in self._hub.agents()}
        unwanted = await self._registry.ask(partial(self._exchange, held, self._hub.linked()))
        for device_id, sentence in unwanted:
            self._hub.disconnect(device_id, CloseCode.NOT_APPROVED, "revoked", sentence)
        if self._post is not None and self._round % GREET_EVERY == 0:
            await self._catch_up(self._post)

    @staticmethod
    async def _catch_up(post: PolicyPost) -> None:
        try:
            await post.catch_up()
        except SQLAlchemyError:
            raise
        except Exception:  # the edge of what this round does for others: revocations must be heard of all the same
            log.exception("The administrator's policy cannot be passed on; it is tried again.")

    def _exchange(self, held: dict[str, float], linked: list[str]) -> list[tuple[DeviceId, str]]:
        """`held`: who has joined; `linked`: who has any link, also one that only fetches files."""
        consoles, console_id = self._registry.consoles, self._authority.console_id
        if self._round % GREET_EVERY == 0:
            consoles.greet(console_id, self._name)
            self._exchange_roots()
        self._round += 1
        if held != self._held:
            consoles.set_links(console_id, held)
            self._held = held
        self._elsewhere = consoles.elsewhere(console_id)
        for device_id in consoles.held_twice():
            log.warning("Device %s is held: two consoles are linked to a PC with its identity.", device_id)
            self._registry.devices.quarantine(device_id, "two consoles are linked to a program with its identity")
        unwanted = []
        for device_id in consoles.unwanted(linked):
            record = self._registry.devices.find(device_id)
            unwanted.append((device_id, "" if record is None else refusal_sentence(record)))
        return unwanted

    def _exchange_roots(self) -> None:
        authority = self._authority
        others, endorsements = self._registry.consoles.exchange_roots(
            authority.console_id, authority.own_roots, authority.endorsements, authority.endorse
        )
        authority.adopt(others, endorsements)
