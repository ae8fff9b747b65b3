"""What a process does on signals, and on which stack: both are the process's, so no test may change them for others.

OpenVINO's CPU plugin gives the thread that loads it a stack for signal handlers, and puts back what it found when it is
unloaded. Of two that were not unloaded in the reverse order the second puts back the stack of the first, which is gone:
the next signal would end the process, a test that takes too long for one.
"""

from __future__ import annotations

import ctypes
import signal
import sys

# What ends a process, and what programs therefore handle.
WATCHED_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class SignalHandlers:
    """What this process does on signals that end processes. Main thread only."""

    def __init__(self) -> None:
        self._numbers = [getattr(signal, name) for name in WATCHED_SIGNALS if hasattr(signal, name)]
        self.remember()

    def remember(self) -> None:
        """Take what is set now for what belongs there."""
        self._handlers = {number: signal.getsignal(number) for number in self._numbers}

    def restore(self) -> list[str]:
        """Set what belongs there; gives the signals for which something else was set, and what."""
        changed = []
        for number, handler in self._handlers.items():
            found = signal.getsignal(number)
            if found != handler:
                changed.append(f"{number.name}: {found!r}")
                signal.signal(number, handler)
        return changed


class _Stack(ctypes.Structure):
    """`stack_t` of Linux."""

    _fields_ = (("address", ctypes.c_void_p), ("flags", ctypes.c_int), ("size_bytes", ctypes.c_size_t))


class SignalStack:
    """The stack on which this thread handles signals. Linux; elsewhere it does nothing. Main thread only."""

    def __init__(self) -> None:
        self._stack = _Stack()
        self._system = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        self.remember()

    def remember(self) -> None:
        """Take the one that is set now for the one that belongs there."""
        self._call(None, ctypes.byref(self._stack))

    def restore(self) -> None:
        """Set the one that belongs there."""
        self._call(ctypes.byref(self._stack), None)

    def _call(self, new: object, old: object) -> None:
        if self._system is not None and self._system.sigaltstack(new, old):
            raise OSError(ctypes.get_errno(), "the signal stack cannot be read or set")
