"""`fallow-export` as a child process: at low priority, asked to stop or ended, and never alive for long without us."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec
import psutil

from agent.stage.priority import LEAST_NICE
from console.api.admin.build_types import BuildRequest

PROGRAM = "fallow-export"
INSTALL = "The exporter is not installed on the console's PC; run there: pip install 'fallow[export]'"
INSTALL_BESIDE = (
    "The exporter is not installed on the console's PC; install fallow[export] with pip there, "
    "so that the console finds fallow-export on its PATH."
)
"""For a console without a Python around it, which leaves the gigabytes of torch to a program of its own."""
MAX_LINE_BYTES = 4 << 20
GENTLE_S = 60.0
"""How long a child may go on after it was asked to stop: until the layer it is at is done."""
AT_ONCE_S = 10.0
FAMILIES_S = 30.0
LOOK_EVERY_S = 0.02
_NEEDED = ("torch", "transformers")
_NEW_GROUP = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0)
_WINDOWS = sys.platform == "win32"


class Family(msgspec.Struct, frozen=True):
    """A family that was checked."""

    name: str


class Families(msgspec.Struct, frozen=True):
    """What `fallow-export families` knows: names that were checked, and why others are refused."""

    exported: list[Family]
    refused: dict[str, str]


class Child:
    """One run of the exporter. On one event loop."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.last_words = ""
        self.process_id = process.pid
        # Signals go by psutil: asyncio's own way looks whether the child has ended, which takes its exit code away from
        # whoever waits for it. It has none when it ended at once.
        self._handle = _handle_of(process.pid)

    async def lines(self, on_error_line: Callable[[str], None]) -> AsyncIterator[bytes]:
        """Yield the lines of standard output; those of standard error go to `on_error_line`."""
        if self._process.stdout is None or self._process.stderr is None:
            return
        errors = asyncio.create_task(self._read_errors(self._process.stderr, on_error_line))
        try:
            async for line in _lines(self._process.stdout):
                yield line
            await errors
        finally:
            errors.cancel()

    async def wait(self) -> int:
        """Wait for its end; return its exit code, below 0 for a signal."""
        return await self._process.wait()

    def memory_bytes(self) -> int:
        """Return the memory it has now, 0 when it has ended."""
        if self._handle is not None:
            with contextlib.suppress(psutil.Error):
                return int(self._handle.memory_info().rss)
        return 0

    async def stop(self, gentle_s: float = GENTLE_S) -> None:
        """End it: after the layer it is at if that takes no longer, else at once."""
        if not _WINDOWS:
            for patience_s in (gentle_s, AT_ONCE_S):
                # Twice means at once to the exporter, which tidies up first.
                self._signal(signal.SIGINT)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience_s):
                        await self.wait()
                    return
        self.kill()
        await self.wait()

    def kill(self) -> None:
        """End it at once; what it has finished is in its journal."""
        if self._handle is not None:
            with contextlib.suppress(psutil.Error):
                self._handle.kill()

    def _signal(self, number: signal.Signals) -> None:
        if self._handle is not None:
            with contextlib.suppress(psutil.Error):
                self._handle.send_signal(number)

    async def _read_errors(self, stream: asyncio.StreamReader, on_line: Callable[[str], None]) -> None:
        async for line in _lines(stream):
            text = line.decode("utf-8", "replace").strip()
            if text:
                self.last_words = text[:500]
                on_line(text)


class Exporter:
    """Starts children. `command` is what runs `fallow-export`; `gentle`: everything else on the PC goes first.

    Without a command it is this Python's own, or in a frozen console the program on the PATH.
    """

    def __init__(
        self, command: Sequence[str] | None = None, needed: Sequence[str] = _NEEDED, *, gentle: bool = True
    ) -> None:
        self._given = command
        self._gentle = gentle
        self._needed = needed
        self._families: Families | None = None

    @property
    def missing(self) -> str:
        """Say what to install; empty when everything is there."""
        if self._given is None and _is_frozen():
            return "" if self._command else INSTALL_BESIDE
        lacking = any(importlib.util.find_spec(name) is None for name in self._needed)
        return INSTALL if lacking else ""

    @property
    def _command(self) -> tuple[str, ...]:
        if self._given is not None:
            return tuple(self._given)
        if not _is_frozen():
            return (sys.executable, "-m", "shard_export")
        # Looked for each time: it may have been installed since the service started.
        found = shutil.which(PROGRAM)
        return (found,) if found else ()

    async def build(self, request: BuildRequest, target: str) -> Child:
        """Start a build. Raises OSError."""
        return await self._start("build", *build_arguments(request, target))

    async def evaluate(self, request: BuildRequest) -> Child:
        """Start measuring a finished library. Raises OSError."""
        return await self._start("evaluate", request.out, "--against", request.source, "--json")

    async def families(self) -> Families:
        """Return the families that were checked, and those that are refused; nothing if they cannot be asked."""
        if self._families is None:
            with contextlib.suppress(OSError, TimeoutError, msgspec.DecodeError):
                child = await self._start("families", "--json")
                try:
                    async with asyncio.timeout(FAMILIES_S):
                        said = b"".join([line async for line in child.lines(lambda _: None)])
                    self._families = msgspec.json.decode(said, type=Families)
                finally:
                    child.kill()
                    await child.wait()
        return self._families or Families([], {})

    async def _start(self, *arguments: str) -> Child:
        if not self._command:
            raise FileNotFoundError(errno.ENOENT, INSTALL_BESIDE, PROGRAM)
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            limit=MAX_LINE_BYTES,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
            start_new_session=not _WINDOWS,  # Ctrl-C in the service's terminal is for the service
            creationflags=_NEW_GROUP,
        )
        if self._gentle:
            _lower(process.pid)
        return Child(process)


def _is_frozen() -> bool:
    return bool(getattr(sys, "frozen", False))


def build_arguments(request: BuildRequest, target: str) -> list[str]:
    """Return the arguments of `fallow-export build` for a request."""
    given = [request.source, request.out, "--json-events", "--layers", request.layers, "--ends", request.ends]
    if request.group_size is not None:
        given += ["--group-size", str(request.group_size)]
    if request.int8_ratio:
        given += ["--int8-ratio", str(request.int8_ratio)]
    if request.context:
        given += ["--context", str(request.context)]
    if target:
        given += ["--role", "draft", "--target", target]
    return [*given, "--force"] if request.replace else given


def end_leftover(process_id: int, started_s: float) -> None:
    """End a child of a service that did not get to it; `started_s` tells it from another process with its number."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(process_id)
        if process_id and abs(process.create_time() - started_s) < 1.0:
            process.kill()
            _see_it_end(process, AT_ONCE_S)


def _see_it_end(process: psutil.Process, patience_s: float) -> None:
    """Wait for an end without asking for the exit code: that belongs to the parent, and each is told only once."""
    until_s = time.monotonic() + patience_s
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until_s:
        time.sleep(LOOK_EVERY_S)


def started_of(process_id: int) -> float:
    """Return when a process was started, 0 if it has ended."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process_id).create_time()
    return 0.0


def _handle_of(process_id: int) -> psutil.Process | None:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process_id)
    return None


def _lower(process_id: int) -> None:
    """Let everything else on this PC go first. Its threads inherit it: it has none yet."""
    with contextlib.suppress(psutil.Error, OSError):
        process = psutil.Process(process_id)
        process.nice(getattr(psutil, "BELOW_NORMAL_PRIORITY_CLASS", LEAST_NICE))
        if sys.platform == "linux":
            process.ionice(psutil.IOPRIO_CLASS_IDLE)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            # It leads a session of its own, and the processor is shared among sessions first.
            Path(f"/proc/{process_id}/autogroup").write_text(str(LEAST_NICE), "ascii")


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # longer than any event
            continue
        if not line:
            return
        yield line
