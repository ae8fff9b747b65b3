"""A whole service in a thread with PCs that play a stage: enrolled over the network, as windows see them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

from agent.link.channel import Dialler
from agent.link.identity import Identity, client_context
from agent.link.invite import decode
from console import calls
from console.client import AdminClient
from console.registry.audit import CONSOLE
from console.service import ConsoleService
from tests.support.console_thread import ConsoleThread, console_thread
from tests.support.enrolment import enrol_pc
from tests.support.fleet import Fleet
from tests.support.patience import until
from tests.support.played import PlayedPC, make_chat_library, playing


class ServiceFleet:
    """What `playing` needs of a Fleet, from a whole service."""

    def __init__(self, service: ConsoleService, folder: Path, invite: str) -> None:
        self._folder = folder
        self._invite = decode(invite)
        self.hub = service._hub
        self.prompts: dict[tuple[int, int], int] = {}

    def enrol(self, name: str) -> Identity:
        return asyncio.run(enrol_pc(self._invite, self._folder / name))

    def dialler(self, identity: Identity) -> Dialler:
        return Dialler(list(identity.urls), client_context(identity), identity.server_hostname)

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        await until(condition)


@contextlib.contextmanager
def played_console(folder: Path, *names: str) -> Iterator[tuple[ConsoleThread, dict[str, PlayedPC]]]:
    """Run a service that has the library "small" of four layers, and these PCs."""
    make_chat_library(folder / "library")
    # PCs that are played have no heartbeat.
    with console_thread(folder / "console", heartbeat_s=60.0) as console:
        access = console.access()
        with AdminClient(access.url, access.token, authority=access.authority) as client:
            client.ask(calls.add_library(folder / "library"))
            invite = client.ask(calls.create_invite(uses=len(names), auto_approve=True)).text
        stack = contextlib.AsyncExitStack()

        async def join(service: ConsoleService) -> dict[str, PlayedPC]:
            fleet = cast(Fleet, ServiceFleet(service, folder, invite))
            return {name: await stack.enter_async_context(playing(fleet, name)) for name in names}

        async def leave(service: ConsoleService) -> None:
            for model in {view.model for view in service._deployments.views()}:
                await service._deployments.undeploy(model, CONSOLE)  # nobody looks for PCs that have just gone
            await stack.aclose()

        try:
            yield console, console.call(join)
        finally:
            console.call(leave)
