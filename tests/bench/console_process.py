"""A console in a process of its own that can be killed and started again at the same address, and what it costs."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from console.client import AdminClient
from console.errors import ClientError
from tests.bench.json_process import ROOT
from tests.bench.two_pcs import peak_mb

HOST = "127.0.0.1"
START_S = 60.0


class Cost(NamedTuple):
    """What a process took: the share of one core since the last look, memory in MB (2**20 bytes) now and at most."""

    core_share: float
    memory_mb: float
    peak_mb: float


class ConsoleProcess:
    """`fallow-console serve` on a data folder; blocking calls. The agents' port is chosen once and stays."""

    def __init__(self, folder: Path, *, heartbeat_s: float) -> None:
        self._folder, self._heartbeat_s = folder, heartbeat_s
        self._log = folder.with_name(f"{folder.name}.log")
        self._process: subprocess.Popen[bytes] | None = None
        self._looked: tuple[float, float] = (0.0, 0.0)
        with socket.create_server((HOST, 0)) as taken:
            self._port = int(taken.getsockname()[1])

    @property
    def url(self) -> str:
        """Where agents dial."""
        return f"wss://{HOST}:{self._port}"

    @property
    def admin(self) -> AdminClient:
        """A new client of the running console."""
        return AdminClient.for_data_folder(self._folder)

    def start(self) -> None:
        """Start it and wait until it answers. Raises SystemExit with what it printed last."""
        command = ["serve", "--data", str(self._folder), "--api-port", "0"]
        command += ["--agents-host", HOST, "--agents-port", str(self._port), "--heartbeat", str(self._heartbeat_s)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "console", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
            )
        deadline_s = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                message = f"The console of the benchmark did not start:\n{self.log()[-2000:]}"
                raise SystemExit(message)
            time.sleep(0.05)
        self.cost()

    def kill(self) -> None:
        """End it as a power cut does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """End it as an administrator does; killed if that takes too long."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(START_S)
            self.kill()

    def cost(self) -> Cost:
        """Look at what it takes; the share of a core is that since the last look."""
        assert self._process is not None
        process = psutil.Process(self._process.pid)
        times = process.cpu_times()
        used_s, now_s = times.user + times.system, time.monotonic()
        before_s, then_s = self._looked
        self._looked = used_s, now_s
        share = (used_s - before_s) / (now_s - then_s)
        return Cost(round(share, 4), round(process.memory_info().rss / (1 << 20), 1), peak_mb(process))

    def connected(self) -> int:
        """Ask it how many agents have joined."""
        with self.admin as admin:
            return admin.status().agents_connected

    def log(self) -> str:
        """Return everything it printed since the first start."""
        return self._log.read_text("utf-8", "replace")

    def _answers(self) -> bool:
        try:
            with self.admin as admin:
                admin.status()
        except ClientError:
            return False
        return True
