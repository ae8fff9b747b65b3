"""A console that says what it holds when it is asked by SIGUSR1: `python -m tests.support.watched_console serve ...`.

It is `fallow-console`; `Look.at` reads what it said.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import psutil

from console.cli import main
from tests.support.telling import ask_process, held_tasks, tell_when_asked

FILE = "held.json"


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
        held = ask_process(process_id, folder / FILE)
        process = psutil.Process(process_id)
        times = process.cpu_times()
        return Look(
            sum(held.values()),
            process.num_threads(),
            process.num_fds(),
            round(process.memory_info().rss / (1 << 20), 1),
            folder.with_name(f"{folder.name}.log").stat().st_size,
            times.user + times.system,
        )


def run() -> int:
    """Run the console's command line, and count its tasks when asked."""
    folder = Path(sys.argv[sys.argv.index("--data") + 1])

    tell_when_asked(folder / FILE, held_tasks)
    return main()


if __name__ == "__main__":
    sys.exit(run())
