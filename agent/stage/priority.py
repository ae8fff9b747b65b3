"""Making way: a stage's process takes only what no other program of the PC wants. Called in the child, at its start.

Linux: nice 19 for the process and its scheduling group, idle class for the disk. Windows: below-normal priority, and
EcoQoS, which prefers efficient cores and clocks. Elsewhere nice 19. A system that refuses leaves the process as it is.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

import psutil

LEAST_NICE = 19
_PROCESS_POWER_THROTTLING = 4
_EXECUTION_SPEED = 0x1


class _PowerThrottling(ctypes.Structure):
    _fields_ = (("version", ctypes.c_ulong), ("control_mask", ctypes.c_ulong), ("state_mask", ctypes.c_ulong))


def make_way() -> None:
    """Lower this process's priority, before it starts threads: they inherit it. Never raises."""
    process = psutil.Process()
    with suppress(psutil.Error, OSError, AttributeError):
        _lower(process)


if sys.platform == "win32":

    def _lower(process: psutil.Process) -> None:
        process.nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
        with suppress(psutil.Error, OSError):
            process.ionice(psutil.IOPRIO_LOW)
        state = _PowerThrottling(1, _EXECUTION_SPEED, _EXECUTION_SPEED)
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        # A pseudo handle of -1: this process.
        kernel.SetProcessInformation(
            ctypes.c_void_p(-1), _PROCESS_POWER_THROTTLING, ctypes.byref(state), ctypes.sizeof(state)
        )

else:

    def _lower(process: psutil.Process) -> None:
        os.setpriority(os.PRIO_PROCESS, 0, LEAST_NICE)
        if sys.platform == "linux":
            with suppress(psutil.Error, OSError):
                process.ionice(psutil.IOPRIO_CLASS_IDLE)
            # Linux may share the processor among sessions first and only then among the processes of one. The child
            # leads a session of its own, so this is nobody else's.
            if os.getsid(0) == os.getpid():
                with suppress(OSError):
                    Path("/proc/self/autogroup").write_text(str(LEAST_NICE), "ascii")
