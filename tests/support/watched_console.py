"""A console that says what it holds when it is asked by SIGUSR1: `python -m tests.support.watched_console serve ...`.

It is `fallow-console`; `Look.at` reads what it said.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import psutil

from console.cli import main
from tests.support.patience import PATIENCE_S

FILE = "held.json"
POLL_S = 0.01


class Look(msgspec.Struct, frozen=True):
    """What a console holds: asyncio tasks, threads, open files and sockets, resident MB (2**20 bytes), the length of
    its log, and the processor time it took so far."""

    tasks: int
    threads: int
    files: int
    rss_mb: float
    log_bytes: int
    cpu_s: float

    @staticmethod
    def at(process_id: int, folder: Path) -> Look:
        """Ask the console of a data folder. Raises TimeoutError when it does not answer."""
        path = folder / FILE
        path.unlink(missing_ok=True)
        os.kill(process_id, signal.SIGUSR1)
        deadline_s = time.monotonic() + PATIENCE_S
        while not path.exists():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"The console did not say within {PATIENCE_S:.0f} s what it holds.")
            time.sleep(POLL_S)
        tasks: int = msgspec.json.decode(path.read_bytes(), type=int)
        process = psutil.Process(process_id)
        times = process.cpu_times()
        return Look(
            tasks,
            process.num_threads(),
            process.num_fds(),
            round(process.memory_info().rss / (1 << 20), 1),
            folder.with_name(f"{folder.name}.log").stat().st_size,
            times.user + times.system,
        )


def run() -> int:
    """Run the console's command line, and count its tasks when asked."""
    folder = Path(sys.argv[sys.argv.index("--data") + 1])

    def tell(number: int, frame: FrameType | None) -> Any:
        gc.collect()  # what nobody holds is not held
        fresh = folder / f"{FILE}.new"
        fresh.write_bytes(msgspec.json.encode(len(asyncio.all_tasks())))
        fresh.rename(folder / FILE)

    signal.signal(signal.SIGUSR1, tell)
    return main()


if __name__ == "__main__":
    sys.exit(run())
