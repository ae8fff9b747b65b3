"""Child processes of the installer: run them, relay what they say, and leave none behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

# How long a child may clean up after Ctrl-C, and then after a polite request, before it is killed.
INTERRUPT_GRACE_S = 20.0
TERMINATE_GRACE_S = 5.0


def run_child(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> int:
    """Run a command on our own terminal and give its exit code; 128 + n if signal n ended it.

    The child has ended when this returns or raises.
    """
    child = subprocess.Popen(command, cwd=folder, env=environment)
    try:
        code = child.wait()
    except BaseException:
        end_child(child)
        raise
    return code if code >= 0 else 128 - code


def run_captured(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run a command and give its exit code and its last lines.

    On a terminal what it says is shown as it comes; elsewhere only if it fails.
    """
    tail: deque[str] = deque(maxlen=200)
    terminal = sys.stderr.isatty()
    # pip's progress bar, on its standard output, goes straight to the terminal; standard error is read for the cause.
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if terminal else subprocess.PIPE,
        stderr=subprocess.PIPE if terminal else subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # pip and ensurepip start children of their own: a stop must reach those, too
    ) as child:
        stream = child.stderr if terminal else child.stdout
        reader = threading.Thread(target=read_lines, args=(stream, tail, terminal), name="read-output")
        reader.start()
        try:
            code = child.wait()
        except BaseException:
            end_session(child)
            raise
        finally:
            reader.join()
    if code and not terminal:
        sys.stderr.writelines(tail)
    return code, "".join(tail)


def read_lines(stream: IO[str], tail: deque[str], show: bool) -> None:
    """Keep lines, and show them on standard error if asked, until the stream ends."""
    for line in stream:
        tail.append(line)
        if show:
            sys.stderr.write(line)
            sys.stderr.flush()


def end_child(child: subprocess.Popen[bytes]) -> None:
    """End a child that is being left: let it clean up, then insist. A second Ctrl-C kills it at once."""
    try:
        # A terminal sends Ctrl-C to the child too, and a second one would cut its cleaning up short.
        if os.name != "nt" and not any(os.isatty(descriptor) for descriptor in (0, 1, 2)):
            child.send_signal(signal.SIGINT)
        if not has_ended(child, INTERRUPT_GRACE_S):
            child.terminate()
            has_ended(child, TERMINATE_GRACE_S)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


def end_session(child: subprocess.Popen[str]) -> None:
    """End a child that leads a session, and what it has started: politely first, then for good."""
    if os.name == "nt":
        child.kill()
        child.wait()
        return
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):  # nobody is left
            os.killpg(child.pid, number)
        has_ended(child, TERMINATE_GRACE_S)


def has_ended(child: subprocess.Popen[str] | subprocess.Popen[bytes], within_s: float) -> bool:
    """Wait for a child's end, but not longer than `within_s`."""
    try:
        child.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM into KeyboardInterrupt, so that `with` blocks clean up on it too."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
