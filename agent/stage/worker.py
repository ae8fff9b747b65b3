"""The child process of a stage: `python -m agent.stage.worker`, frames in on stdin, frames out on stdout.

The main thread owns the engine; a reader thread feeds it, and ends the process at once when stdin closes, even in
the middle of inference. Nothing but frames ever reaches the real stdout. Exit codes: 0 stdin closed, 2 the parent
sent garbage, 3 the stage could not be loaded (a NACK says why).
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

from agent.link.frames import FrameError
from agent.stage import affinity
from agent.stage.errors import StageLoadError
from agent.stage.pipes import PipeClosed, read_frame, read_spec, widen, write_all
from agent.stage.types import StageSpec

EXIT_CLOSED, EXIT_GARBAGE, EXIT_LOAD = 0, 2, 3
_PR_SET_PDEATHSIG = 1
_STDIN = 0

Inbox = queue.SimpleQueue[tuple[memoryview, float]]


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
        return _serve(spec, inbox, out)
    return EXIT_CLOSED


def _serve(spec: StageSpec, inbox: Inbox, out: int) -> int:
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
    write_all(out, steps.report_frame(spec, report))
    runner = steps.StepRunner(spec, engine)
    while True:
        data, arrived_s = inbox.get()
        write_all(out, runner.answer(data, arrived_s))


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
