"""Our own programs as processes of one PC, each with a log file: what a loopback fleet is made of."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

STOP_S = 10.0


class LoopbackError(Exception):
    """A process of the loopback fleet did not do its part; the sentence ends with what it printed last."""


class Processes:
    """By name; what each prints is in `NAME.log` below `root`. Blocking calls, for one thread."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __getitem__(self, name: str) -> subprocess.Popen[bytes]:
        return self._processes[name]

    def start(self, name: str, command: Sequence[str]) -> None:
        """Run a module with its arguments; it is not waited for."""
        self._root.mkdir(parents=True, exist_ok=True)
        with (self._root / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(),
                # Ctrl-C in a terminal reaches only us; we end the others in order.
                start_new_session=os.name != "nt",
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )

    def stop(self, name: str) -> int:
        """End one, killed after STOP_S, and return its exit code."""
        process = self._processes[name]
        if process.poll() is None:
            process.terminate()
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def close(self, last: str) -> None:
        """End all, the one called `last` after the others."""
        for name in sorted(self._processes, key=lambda name: name == last):
            self.stop(name)

    def log_tail(self, name: str, lines: int = 8) -> str:
        """Return the last lines one printed."""
        path = self._root / f"{name}.log"
        if not path.exists():
            return ""
        return "\n".join(path.read_text("utf-8", "replace").splitlines()[-lines:])

    def fail_if_ended(self) -> None:
        """Raise LoopbackError if one has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                code = process.returncode
                raise LoopbackError(f"The process {name} ended with exit code {code}.\n{self.log_tail(name)}")


def environment() -> dict[str, str]:
    """Return what every process of ours is started with."""
    return {**os.environ, "PYTHONUNBUFFERED": "1"}
