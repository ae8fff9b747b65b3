"""Many agents in one process: `python -m tests.bench.simulated_agents FOLDER URL SERVER_NAME`.

Each one has its own certificate, its own TLS context, the agent's own session with both links, and the agent's own
waiting times between tries; what is left out is the PC: no devices are looked for, no stage is loaded, no state is
written. Requests come as lines of JSON (see `Requests`).
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import psutil
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from agent.link.channel import Backoff, Dialler
from agent.link.closing import LinkDown
from agent.link.credentials import client_tls
from agent.link.fetch import Fetcher
from agent.link.messages import BULK_PATH, CONTROL_PATH, PROTOCOL, Device, Hello, MarkKept
from agent.link.store import Store
from agent.loading import StageLoader
from agent.logtail import LogTail
from agent.session import Session
from agent.settings import AgentSettings
from agent.stage.process import StageProcess
from agent.stage.types import Credentials, UplinkSpec
from agent.tested import TestedEngines
from agent.volunteer.memory_book import MemoryBook
from agent.volunteer.policy import Policy
from console.bench.figures import percentile
from console.capacity import allow_many_files, shrink_tls_buffers
from tests.bench.identities import AUTHORITIES
from tests.support.agents import always_here

JOINS_PER_S = 40
"""PCs are not switched on at the same moment; how they come back is not softened."""
HELD_FILES = 80
"""As many files as a stage of 32 layers and what belongs to it has."""
GB = 1 << 30


class Links(Dialler):
    """A dialler that remembers the control link, for round trips on it."""

    control: ClientConnection | None = None

    async def dial(self, path: str) -> ClientConnection:
        link = await super().dial(path)
        if path == CONTROL_PATH:
            self.control = link
        return link


class SimulatedAgent:
    """One agent: connects, stays, and comes back. `joined` counts its sessions, `failures` why tries failed."""

    def __init__(self, links: Links, loader: StageLoader, name: str, folder: Path) -> None:
        self.links = links
        self.joined = 0
        self.joined_s = 0.0
        self.is_up = False
        self.failures: Counter[str] = Counter()
        self._loader = loader
        self._folder = folder
        self._hello = make_hello(name)
        self._mark = ""
        self._backoff = Backoff()

    async def run(self, stop: asyncio.Event, after_s: float) -> None:
        """Keep connected from `after_s` seconds on until `stop`."""
        await asyncio.sleep(after_s)
        while not stop.is_set():
            try:
                session = await self._open()
                await session.run(stop)
            except LinkDown as error:
                if self.is_up:
                    # As after a session of a minute, which a benchmark cannot wait for.
                    self._backoff.reset()
                else:
                    self.failures[error.code or type(error).__name__] += 1
                self.is_up = False
                await asyncio.sleep(self._backoff.next_wait_s(error))

    async def round_trip_s(self) -> float | None:
        """Ask the console for a sign of life on the control link; None while there is no link."""
        link, began_s = self.links.control, time.perf_counter()
        try:
            if link is None or not self.is_up:
                return None
            await (await link.ping())
        except ConnectionClosed:
            return None
        return time.perf_counter() - began_s

    async def _open(self) -> Session:
        hello = msgspec.structs.replace(self._hello, mark=self._mark)
        owner = nobodys_pc(self._folder)
        session = await Session.open(
            self.links, hello, self._loader, lambda: None, direct=lambda *_: None, owner=owner, log_tail=LogTail()
        )
        self.is_up, self.joined, self.joined_s = True, self.joined + 1, time.monotonic()
        self._mark = session.welcome.mark
        session.say(MarkKept(self._mark))
        return session


nobodys_pc = functools.cache(always_here)
"""One for all of them; made on the event loop."""


def make_hello(name: str) -> Hello:
    """Introduce an ordinary office PC that holds a stage's files."""
    return Hello(
        protocol=PROTOCOL,
        version="0.1.0",
        host=name,
        os="Windows 11",
        cores=8,
        memory_bytes=8 * GB,
        devices=[
            Device("CPU", "An office PC's processor", 8 * GB, ["paged", "stateful", "packed"]),
            Device("GPU", "An office PC's graphics", 8 * GB, ["stateful", "paged"]),
        ],
        openvino="2026.4.0",
        key_protection="keyring",
        held_sha256=[hashlib.sha256(b"%d" % number).hexdigest() for number in range(HELD_FILES)],
    )


class Requests:
    """What this process can be asked; every answer is a JSON object.

    {"join": n}: have n agents at all; {"wait": k, "timeout_s": s}: until each of them has been in for the k-th time;
    {"round_trips_s": s}: measure round trips for so long; {"report": true}: why tries failed, processor time in s.
    """

    def __init__(self, agents: list[SimulatedAgent]) -> None:
        self._agents = agents
        self._running: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "join" in request:
            for place, agent in enumerate(self._agents[len(self._running) : request["join"]]):
                self._running.append(asyncio.create_task(agent.run(self._stop, place / JOINS_PER_S)))
            return {"running": len(self._running)}
        if "wait" in request:
            return await self._wait(request["wait"], request["timeout_s"])
        if "round_trips_s" in request:
            return await self._round_trips(request["round_trips_s"])
        failures = sum((agent.failures for agent in self._agents), Counter[str]())
        for agent in self._agents:
            agent.failures.clear()
        times = psutil.Process().cpu_times()
        return {"failures": dict(failures), "processor_s": times.user + times.system}

    async def close(self) -> None:
        """Let every agent say goodbye."""
        self._stop.set()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _wait(self, joined: int, timeout_s: float) -> dict[str, Any]:
        agents, deadline_s = self._agents[: len(self._running)], time.monotonic() + timeout_s
        while True:
            for task in self._running:
                if task.done():
                    task.result()
            up = [agent for agent in agents if agent.is_up and agent.joined >= joined]
            if len(up) == len(agents) or time.monotonic() > deadline_s:
                return {"up": len(up), "last_s": max((agent.joined_s for agent in up), default=0.0)}
            await asyncio.sleep(0.05)

    async def _round_trips(self, seconds: float) -> dict[str, Any]:
        """Let every agent ask once at a moment of its own."""

        async def ask(agent: SimulatedAgent) -> float | None:
            await asyncio.sleep(random.uniform(0, seconds))
            return await agent.round_trip_s()

        found = await asyncio.gather(*(ask(agent) for agent in self._agents[: len(self._running)] for _ in range(4)))
        took_ms = [took_s * 1000 for took_s in found if took_s is not None]
        figures = {f"p{share}": round(percentile(took_ms, share / 100), 2) for share in (50, 95, 99)} if took_ms else {}
        return {"answered": len(took_ms), "asked": len(found), **figures}


def make_agents(folder: Path, url: str, server_name: str) -> list[SimulatedAgent]:
    """Make one agent for each identity in `folder`; none of them dials yet."""
    authorities = (folder / AUTHORITIES).read_bytes()
    store = Store(folder / "data")
    agents = []
    for file in sorted(folder.glob("pc-*.pem")):
        credentials = Credentials(str(file), str(file), "", authorities)
        links = Links([url], client_tls(credentials), server_name)
        agents.append(
            SimulatedAgent(
                links, make_loader(folder, store, links, UplinkSpec([], server_name, credentials)), file.stem, folder
            )
        )
    return agents


def make_loader(folder: Path, store: Store, links: Links, uplink: UplinkSpec) -> StageLoader:
    """Make what a session needs for loading stages, which no benchmark of the fleet does."""
    return StageLoader(
        store,
        Fetcher(store, lambda: links.dial(BULK_PATH)),
        AgentSettings(),
        StageProcess.start,
        memory=MemoryBook(folder, Policy),
        tested=TestedEngines(folder, list, str),
        uplink=lambda: uplink,
        check=lambda _digest, _signature: None,
    )


async def serve(agents: list[SimulatedAgent]) -> None:
    """Answer requests from stdin until it closes."""
    requests = Requests(agents)
    print(json.dumps({"agents": len(agents)}), flush=True)
    try:
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await requests.answer(json.loads(line))), flush=True)
    finally:
        await requests.close()


def main() -> None:
    """Make the agents and serve."""
    folder, url, server_name = sys.argv[1:4]
    allow_many_files()
    shrink_tls_buffers()
    asyncio.run(serve(make_agents(Path(folder), url, server_name)))


if __name__ == "__main__":
    main()
