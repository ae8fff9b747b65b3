"""What every child process of the agent does first, before it starts threads or loads a runtime."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from agent.stage.pipes import widen

EXIT_CLOSED, EXIT_GARBAGE = 0, 2
"""The parent closed stdin, or sent what cannot be used; each child has codes of its own beside these."""
_PR_SET_PDEATHSIG = 1


def begin() -> int:
    """End with the parent, leave Ctrl-C to it, and keep stdout for answers; returns the descriptor for them."""
    _die_with_parent()
    # Ctrl-C reaches the whole terminal group; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return _private_stdout()


def _private_stdout() -> int:
    """Keep the real stdout and point fd 1 at stderr, so that native prints cannot corrupt what is answered."""
    out = os.dup(1)
    os.set_inheritable(out, False)
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(out, os.O_BINARY)
        msvcrt.setmode(0, os.O_BINARY)
    widen(out)
    return out


def _die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies; elsewhere the closing of stdin does it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
