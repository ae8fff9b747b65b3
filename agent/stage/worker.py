"""The child process of a stage: `python -m agent.stage.worker`, frames in on stdin, frames out on stdout.

The main thread owns the engine; a reader thread feeds it, and ends the process at once when stdin closes, even in
the middle of inference. A stage with a link of its own to the console (see uplink) is fed by a second reader and
answers there. Nothing but frames ever reaches the real stdout. Exit codes: 0 stdin closed, 2 the parent sent garbage,
3 the stage could not be loaded (a NACK says why), 4 the stage's own link broke.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from agent.link.frames import FrameError, FrameType
from agent.stage import affinity
from agent.stage.errors import StageLoadError
from agent.stage.outgoing import Outgoing
from agent.stage.pipes import PipeClosed, read_frame, read_spec, widen, write_all
from agent.stage.types import StageSpec
from agent.stage.uplink import Uplink

EXIT_CLOSED, EXIT_GARBAGE, EXIT_LOAD, EXIT_LINK = 0, 2, 3, 4
_PR_SET_PDEATHSIG = 1
_STDIN = 0
_TYPE_AT = 5
"""Where a frame's header says what it is."""

Inbox = queue.SimpleQueue[tuple[bytes | memoryview, float]]


def main() -> int:
    """Load the stage that the first message describes and answer frames until stdin closes."""
    _die_with_parent()
    # Ctrl-C reaches the whole terminal group; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = _private_stdout()
    try:
        spec = read_spec(_STDIN)
    except PipeClosed:
        return EXIT_CLOSED
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_GARBAGE
    inbox: Inbox = queue.SimpleQueue()
    beside = affinity.other_cores(spec.cores)
    threading.Thread(target=_read, args=(inbox, beside), name="reader", daemon=True).start()
    affinity.pin_this_thread(spec.cores)
    with contextlib.suppress(PipeClosed):
        return _serve(spec, inbox, out, beside)
    return EXIT_CLOSED


def _serve(spec: StageSpec, inbox: Inbox, out: int, beside: set[int]) -> int:
    # Imported on the pinned thread: the runtime's threads inherit the affinity of the thread that loads it.
    from agent.stage import steps
    from agent.stage.engines import load_selected

    started = time.perf_counter()
    try:
        engine, selection = load_selected(spec)
        report = steps.describe(spec, engine, selection, 1e3 * (time.perf_counter() - started))
    except StageLoadError as error:
        write_all(out, steps.nack_frame(spec.stage, error.code, str(error), (spec.pipeline, spec.epoch, 0, 0)))
        return EXIT_LOAD
    send = _way_out(spec, inbox, out, beside)
    write_all(out, steps.report_frame(spec, report))
    runner = steps.StepRunner(spec, engine)
    while True:
        data, arrived_s = inbox.get()
        send(runner.answer(data, arrived_s))


def _way_out(spec: StageSpec, inbox: Inbox, out: int, beside: set[int]) -> Callable[[bytes], None]:
    """Open the stage's own link, if it may have one, and return what sends a frame."""
    uplink = Uplink.open(spec)

    def by_pipe(data: bytes) -> None:
        write_all(out, data)

    if uplink is None:
        return by_pipe
    threading.Thread(target=_read_link, args=(uplink, inbox, beside), name="link reader", daemon=True).start()
    by_link = Outgoing(uplink.wire, _end_by_link, beside).send

    def by_either(data: bytes) -> None:
        if spec.steps_by_pipe and data[_TYPE_AT] == FrameType.STEP:
            by_pipe(data)
            return
        try:
            by_link(data)
        except OSError as error:
            _end_by_link(str(error))

    return by_either


def _read_link(uplink: Uplink, inbox: Inbox, cores: set[int]) -> None:
    """Feed the inbox until the link ends, then end the process: the console counts the stage as lost."""
    affinity.pin_this_thread(cores)
    now = time.perf_counter
    try:
        uplink.read(lambda data: inbox.put((data, now())))
    except (OSError, FrameError) as error:
        _end_by_link(str(error))
    _end_by_link("the console closed it")


def _end_by_link(reason: str) -> NoReturn:
    os.write(2, f"The stage's link to the console broke: {reason}\n".encode())
    os._exit(EXIT_LINK)


def _read(inbox: Inbox, cores: set[int]) -> None:
    """Feed the inbox until stdin closes, then end the process: native inference cannot be interrupted otherwise."""
    affinity.pin_this_thread(cores)
    code = EXIT_CLOSED
    try:
        while True:
            data = read_frame(_STDIN)
            inbox.put((data, time.perf_counter()))
    except (PipeClosed, ConnectionResetError):
        pass
    except FrameError as error:
        os.write(2, f"The parent sent bytes that are not a frame: {error}\n".encode())
        code = EXIT_GARBAGE
    os._exit(code)


def _private_stdout() -> int:
    """Keep the real stdout for frames and point fd 1 at stderr, so that native prints cannot corrupt them."""
    out = os.dup(1)
    os.set_inheritable(out, False)
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(out, os.O_BINARY)
        msvcrt.setmode(_STDIN, os.O_BINARY)
    widen(out)
    return out


def _die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies; elsewhere the closing of stdin does it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Not sys.exit: the reader thread may hold stdin's lock, and native threads need no farewell.
    os._exit(code)
