"""Started as `run`: try the new version if one is wanted, and keep it only if it proves itself. Blocking, main thread.

What runs here is always the version that proved itself last, so a new one that cannot even start takes nothing along.
The new one runs as a child that has a time to reach the console; then `current` is switched to it and asked once more
what it is. If anything fails, the child is ended and the caller goes on as the version it is.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from agent.children import NO_WINDOW
from agent.update.errors import UpdateError
from agent.update.fitness import examine
from agent.update.keeping import read_progress, write_progress
from agent.update.layout import Installation
from agent.update.progress import Progress, at_start, called_off, failed, moved
from agent.update.proof import EXIT_AGAIN, VARIABLE

log = logging.getLogger(__name__)

PROVE_S = 90.0
END_S = 20.0
"""An agent that serves takes up to 8 s to hand over."""
LOOK_S = 0.1


def begin(installation: Installation, arguments: Sequence[str], prove_s: float = PROVE_S) -> int | None:
    """Go on with an update when a program starts; returns its exit code, or None: run this version.

    `arguments` are those of this program. Never raises for what is wrong with an update.
    """
    try:
        current = installation.current()
        before = read_progress(installation)
        now = at_start(before, current, is_here=installation.has(before.version), now_s=time.time())
        if now != before:
            write_progress(installation, now)
    except (OSError, UpdateError) as error:
        log.warning("Updates cannot go on: %s", error)
        return None
    if now.phase != "trying":
        if now.problem and now != before:
            log.warning("The update to %s failed: %s", now.version, now.problem)
        return None
    try:
        return _try(installation, current, now, arguments, prove_s)
    except (OSError, UpdateError) as error:
        log.warning("The trial of %s cannot go on, %s does: %s", now.version, current, error)
        return None


def become(program: Path, arguments: Sequence[str]) -> int:
    """Let another program take this one's place; returns its exit code where a process cannot be replaced."""
    command = [os.fspath(program), *arguments]
    if sys.platform == "win32":
        return subprocess.call(command)
    sys.stdout.flush()
    sys.stderr.flush()
    return os.execv(command[0], command)  # noqa: S606 - no shell is wanted


def _try(
    installation: Installation, current: str, progress: Progress, arguments: Sequence[str], prove_s: float
) -> int | None:
    log.info("Trying version %s.", progress.version)
    for left in installation.work.glob("proof-*"):
        left.unlink(missing_ok=True)
    proof = installation.work / f"proof-{secrets.token_hex(8)}"
    command = [os.fspath(installation.program(progress.version)), *arguments]
    with _Stopping() as stopping:
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, env={**os.environ, VARIABLE: os.fspath(proof)}, creationflags=NO_WINDOW
            )
        except OSError as error:
            _take_back(installation, progress, f"{progress.version} cannot be started ({error.strerror}).")
            return None
        with child:
            code = _see_through(installation, current, progress, child, proof=proof, stopping=stopping, prove_s=prove_s)
    proof.unlink(missing_ok=True)
    return become(installation.program(installation.current()), arguments) if code == EXIT_AGAIN else code


def _see_through(
    installation: Installation,
    current: str,
    progress: Progress,
    child: subprocess.Popen[bytes],
    *,
    proof: Path,
    stopping: _Stopping,
    prove_s: float,
) -> int | None:
    """Wait for the child's proof, then for its end; returns its exit code, or None: the version so far goes on."""
    stopping.pass_on_to(child)
    problem = _wait_for_proof(child, proof, progress.version, prove_s, stopping)
    if stopping.is_asked:
        code = _as_exit_code(_end(child))
        write_progress(installation, called_off(progress, time.time()))
        return code
    if problem:
        _end(child)
        _take_back(installation, progress, problem)
        return None
    try:
        _keep(installation, progress)
    except (OSError, UpdateError) as error:
        _end(child)
        installation.switch(current)
        _take_back(installation, progress, str(error))
        return None
    _tidy_up(installation, progress.version, current)
    return _as_exit_code(child.wait())


def _keep(installation: Installation, progress: Progress) -> None:
    """Make the version that proved itself the current one, and see that it is. Raises UpdateError or OSError."""
    installation.switch(progress.version)
    examine(installation.current_program(), progress.version)
    write_progress(installation, moved(progress, "done", time.time()))
    log.info("Version %s works and is the current one.", progress.version)


def _tidy_up(installation: Installation, *keep: str) -> None:
    """Delete versions that are neither the current one nor this program's own."""
    try:
        installation.prune(keep)
    except (OSError, UpdateError) as error:
        log.warning("Former versions cannot be deleted (%s); the next update tries again.", error)


def _take_back(installation: Installation, progress: Progress, problem: str) -> None:
    log.warning("The update to %s failed, %s goes on: %s", progress.version, progress.previous, problem)
    write_progress(installation, failed(progress, problem, time.time()))


def _wait_for_proof(
    child: subprocess.Popen[bytes], proof: Path, version: str, prove_s: float, stopping: _Stopping
) -> str:
    """Return why the child is not kept; empty: it proved itself, or this program was told to stop."""
    until_s = time.monotonic() + prove_s
    while not stopping.is_asked:
        # Asked first: what ends right after its proof has proved itself all the same.
        code = child.poll()
        try:
            said = proof.read_bytes().decode()
        except FileNotFoundError:
            said = ""
        if said:
            return "" if said == version else f"What should be {version} says it is {said[:40]}."
        if code is not None:
            return f"{version} ended with code {code} before it reached the console."
        if time.monotonic() > until_s:
            return f"{version} did not reach the console in {prove_s:.0f} s."
        time.sleep(LOOK_S)
    return ""


def _as_exit_code(code: int) -> int:
    """Say a child's end as this program's own: ended by a signal is 128 and its number, as shells have it."""
    return code if code >= 0 else 128 - code


def _end(child: subprocess.Popen[bytes]) -> int:
    """End the child: asked, then forced."""
    if child.stdin is not None:
        child.stdin.close()
    try:
        return child.wait(END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


class _Stopping:
    """Notes what ends this program, from before the child is started, and passes it on."""

    def __init__(self) -> None:
        self.is_asked = False
        self._child: subprocess.Popen[bytes] | None = None
        self._terminated = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        numbers = [signal.SIGINT, signal.SIGTERM, *([] if sys.platform == "win32" else [signal.SIGHUP])]
        self._before = {int(number): signal.signal(number, self._on_signal) for number in numbers}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def pass_on_to(self, child: subprocess.Popen[bytes]) -> None:
        """Also what came before the child was there."""
        self._child = child
        self._pass_on()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.is_asked = True
        # A terminal's Ctrl-C, and the closing of one, reach the child by themselves.
        self._terminated = self._terminated or number == signal.SIGTERM
        self._pass_on()

    def _pass_on(self) -> None:
        if self._terminated and self._child is not None and self._child.poll() is None:
            self._child.terminate()
