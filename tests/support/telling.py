"""Processes that write down what they hold when they are asked by SIGUSR1."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import msgspec

from tests.support.patience import PATIENCE_S

FOLDER_VARIABLE = "FALLOW_TOLD"
"""Names the folder in which processes write that have no other way to know it."""
POLL_S = 0.01

Held = dict[str, int]
"""Kinds of things and how many of each."""


def tell_when_asked(path: Path, held: Callable[[], Held]) -> None:
    """Write what `held` says to a file at every SIGUSR1. Called in the main thread."""

    def tell(number: int, frame: FrameType | None) -> None:
        gc.collect()  # what nobody holds is not held
        fresh = path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(held()))
        fresh.rename(path)

    signal.signal(signal.SIGUSR1, tell)


def own_path(process_id: int | None = None) -> Path:
    """Return where a process writes, this one unless another is named."""
    return Path(os.environ[FOLDER_VARIABLE]) / f"{process_id or os.getpid()}.json"


def held_tasks() -> Held:
    """Count this process's asyncio tasks by what they run."""
    held: Held = {}
    for task in asyncio.all_tasks():
        name = getattr(task.get_coro(), "__qualname__", "?")
        held[name] = held.get(name, 0) + 1
    return held


def ask_process(process_id: int, path: Path) -> Held:
    """Ask a process what it holds. Raises TimeoutError when it does not answer."""
    path.unlink(missing_ok=True)
    os.kill(process_id, signal.SIGUSR1)
    deadline_s = time.monotonic() + PATIENCE_S
    while not path.exists():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"Process {process_id} did not say within {PATIENCE_S:.0f} s what it holds.")
        time.sleep(POLL_S)
    return msgspec.json.decode(path.read_bytes(), type=Held)
