"""One console and several agents on this PC, as separate processes with their own data folders, over real links.

The demo, the benchmarks and the integration tests all stand on it. Everything it starts it also ends.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

import httpx2
import msgspec

from agent.link import invite as invites
from console.api.admin import types as wire
from console.client import AdminClient
from console.data import ServiceFile, service_file_path
from console.errors import ClientError, ServiceUnreachable
from installer.processes import LoopbackError, Processes, environment
from shard_export.library.counts import counted

START_S = 60.0
POLL_S = 0.05


class AgentSettings(msgspec.Struct, frozen=True):
    """One agent: `cores` pins its computing thread (empty: not pinned), `threads` 0 lets the runtime choose."""

    name: str
    threads: int = 0
    cores: Sequence[int] = ()
    memory_mb: int = 0
    volunteer: Literal["away", "always"] = "always"
    module: str = ""
    """What is run with the data folder instead of `agent run`."""


class Answer(msgspec.Struct, frozen=True):
    """A finished chat completion. Times in ms since the service accepted it; `finished_s` is our monotonic clock."""

    text: str
    finish_reason: str
    completion_tokens: int
    first_token_ms: float
    total_ms: float
    finished_s: float


Route = Callable[[str, int], int]
"""Takes an agent's name and a port of this PC at one end of its link; returns the port that is dialled instead."""


class LoopbackFleet:
    """A context manager; blocking calls, for one thread (answers may be asked for from several).

    With a `route` the agents reach the console, and with `direct_links` one another, through whatever it puts between
    them, such as a slow link.
    """

    def __init__(
        self,
        root: Path,
        agents: Sequence[AgentSettings],
        say: Callable[[str], None] = lambda line: None,
        *,
        route: Route | None = None,
        direct_links: bool = False,
        console: str = "console",
    ) -> None:
        """`console` is the module that runs as the console."""
        self._root, self._settings, self._say, self._route = root, list(agents), say, route
        self._console = console
        self._direct_links = direct_links
        self._processes = Processes(root)
        self._admin: AdminClient | None = None
        self._api_url = ""
        self._chat_key = ""
        self._model = ""

    @property
    def admin(self) -> AdminClient:
        """The client of the running console."""
        if self._admin is None:
            raise LoopbackError("The console of the loopback fleet is not running; enter the context first.")
        return self._admin

    @property
    def api_url(self) -> str:
        return self._api_url

    @property
    def chat_key(self) -> str:
        return self._chat_key

    @property
    def model(self) -> str:
        """The model deployed last."""
        return self._model

    @property
    def console_folder(self) -> Path:
        return self._root / "console"

    def agent_folder(self, name: str) -> Path:
        return self._root / name

    def process(self, name: str) -> subprocess.Popen[bytes]:
        """Return the process of `console` or of an agent."""
        return self._processes[name]

    def __enter__(self) -> Self:
        try:
            self._start_console()
            self._enrol_agents()
            for settings in self._settings:
                self.start_agent(settings.name)
            self.wait_for_agents(len(self._settings))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process: asked first, agents before the console, killed after STOP_S."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        self._processes.close("console")

    def stop(self, name: str) -> int:
        """End one process and return its exit code."""
        return self._processes.stop(name)

    def restart_console(self) -> None:
        """End the console if it still runs, and start it again at the addresses it had."""
        ports = msgspec.json.decode(service_file_path(self.console_folder).read_bytes(), type=ServiceFile)
        self.stop("console")
        self.admin.close()
        self._start_console(ports.agents_port, urlsplit(ports.api_url).port or 0)

    def log_tail(self, name: str, lines: int = 8) -> str:
        """Return the last lines a process printed."""
        return self._processes.log_tail(name, lines)

    def start_agent(self, name: str) -> None:
        """Start (or start again) an enrolled agent."""
        settings = next(one for one in self._settings if one.name == name)
        command = ["agent", "run", "--data", str(self.agent_folder(name)), "--volunteer", settings.volunteer]
        if settings.module:
            command = [settings.module, str(self.agent_folder(name))]
        elif settings.threads:
            command += ["--threads", str(settings.threads)]
        if settings.cores:
            command += ["--cores", ",".join(map(str, settings.cores))]
        if settings.memory_mb:
            command += ["--memory-mb", str(settings.memory_mb)]
        self._processes.start(name, command)
        self._say(f"agent {name} started")

    def wait_for_agents(self, count: int, timeout_s: float = START_S) -> list[wire.Agent]:
        """Wait until `count` agents are connected and offer their PC; return them."""
        deadline = time.monotonic() + timeout_s
        while True:
            connected = [agent for agent in self.admin.agents() if agent.link == "connected"]
            ready = [agent for agent in connected if agent.volunteering == "available"]
            if len(ready) >= count:
                return ready
            self._processes.fail_if_ended()
            if time.monotonic() > deadline:
                names = [settings.name for settings in self._settings]
                tails = "\n".join(f"{name}: {self.log_tail(name)}" for name in names)
                raise LoopbackError(
                    f"{len(ready)} of {counted(count, 'agent')} connected in {timeout_s:.0f} s.\n{tails}"
                )
            time.sleep(POLL_S)

    def deploy(self, request: wire.DeployRequest, on_event: Callable[[wire.DeployEvent], None] | None = None) -> None:
        """Deploy a model, which `chat` asks from now on; raises LoopbackError when it does not become ready."""
        for event in self.admin.deploy(request):
            if isinstance(event, wire.Broken):
                raise LoopbackError(f"The deployment failed: {event.message}")
            if on_event is not None:
                on_event(event)
        self._model = request.model

    def chat(self, prompt: str, **parameters: object) -> Answer:
        """Ask one question without streaming; safe from several threads at once."""
        body = {"model": self._model, "messages": [{"role": "user", "content": prompt}], **parameters}
        response = httpx2.post(
            f"{self._api_url}/v1/chat/completions",
            content=msgspec.json.encode(body),
            headers={"Authorization": f"Bearer {self._chat_key}"},
            timeout=600.0,
            trust_env=False,
        )
        finished_s = time.monotonic()
        if response.is_error:
            raise LoopbackError(f"The chat was refused with {response.status_code}: {response.text}")
        answer = response.json()
        choice, timings = answer["choices"][0], answer["timings"]
        return Answer(
            choice["message"]["content"],
            choice["finish_reason"],
            answer["usage"]["completion_tokens"],
            timings["first_token_ms"],
            timings["total_ms"],
            finished_s,
        )

    def _start_console(self, agents_port: int = 0, api_port: int = 0) -> None:
        folder = self.console_folder
        command = [self._console, "serve", "--data", str(folder)]
        command += ["--agents-port", str(agents_port), "--api-port", str(api_port)]
        self._processes.start("console", [*command, "--direct-links", "on" if self._direct_links else "off"])
        deadline = time.monotonic() + START_S
        while True:
            try:
                self._admin = AdminClient.for_data_folder(folder)
                self._api_url = self._admin.status().api_url
                break
            except (ServiceUnreachable, ClientError):
                self._processes.fail_if_ended()
                if time.monotonic() > deadline:
                    raise LoopbackError(f"The console did not start.\n{self.log_tail('console')}") from None
                time.sleep(POLL_S)
        if not self._chat_key:
            self._chat_key = self._admin.create_key("loopback").secret
        self._say(f"console started, API at {self._api_url}")

    def _enrol_agents(self) -> None:
        if not self._settings:
            return
        invite = self.admin.create_invite(uses=len(self._settings), hours=1.0, auto_approve=True)
        for settings in self._settings:
            # The invite goes through standard input: it is a secret, and a command line is public.
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "agent", "enrol"),
                    *("--data", str(self.agent_folder(settings.name)), "--name", settings.name),
                ],
                input=self._routed(invite.text, settings.name).encode(),
                capture_output=True,
                timeout=START_S,
                check=False,
                env=environment(),
            )
            if done.returncode:
                raise LoopbackError(f"Agent {settings.name} could not enrol: {done.stderr.decode('utf-8', 'replace')}")
            if self._route is not None and self._direct_links:
                self._route_direct(settings.name, self._route)
            self._say(f"agent {settings.name} enrolled")

    def _routed(self, text: str, name: str) -> str:
        """Write the agent's own way to the console into its invite."""
        if self._route is None:
            return text
        invite = invites.decode(text)
        port = self._route(name, urlsplit(invite.urls[0]).port or 0)
        return invites.encode(msgspec.structs.replace(invite, urls=[f"wss://127.0.0.1:{port}"]))

    def _route_direct(self, name: str, route: Route) -> None:
        """Let other agents reach this one through the route: it listens on a port of its own and tells another."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        told = route(name, port)
        lines = f'direct_ports = [{port}, {port}]\ndirect_address = "127.0.0.1:{told}"\n'
        (self.agent_folder(name) / "agent.toml").write_text(lines)
