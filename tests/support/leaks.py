"""Threads, child processes and asyncio tasks that outlive the test that made them."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Collection

# What is on its way out may finish.
GRACE_S = 10.0

# Pools and monitors of libraries, which live as long as the process by design. "Dummy-" threads are native ones
# (OpenVINO's pool, for one) that Python has merely met.
LIBRARY_THREADS = ("Dummy-", "pydevd.", "tqdm_monitor")
LIBRARY_THREAD_CLASSES = ("TMonitor",)
LIBRARY_PROCESSES = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def leaked_threads(before: Collection[threading.Thread]) -> list[threading.Thread]:
    """List threads, daemons too, that were started since `before` and do not end within the grace."""
    deadline_s = time.monotonic() + GRACE_S
    leaked = []
    for thread in threading.enumerate():
        if thread in before or is_library_thread(thread):
            continue
        thread.join(max(0.0, deadline_s - time.monotonic()))
        if thread.is_alive():
            leaked.append(thread)
    return leaked


def is_library_thread(thread: threading.Thread) -> bool:
    """Tell whether a library keeps this thread for the life of the process."""
    return thread.name.startswith(LIBRARY_THREADS) or type(thread).__name__ in LIBRARY_THREAD_CLASSES


def child_processes() -> set[psutil.Process]:
    """Give the running descendants of this process."""
    return set(psutil.Process().children(recursive=True))


def end_leaked_processes(before: Collection[psutil.Process]) -> list[str]:
    """Kill descendants that were started since `before` and do not end within the grace; gives their command lines."""
    fresh = [process for process in child_processes() if process not in before]
    leaked = []
    if fresh:
        # Not psutil's wait: it would reap a child whose exit code its owner still wants.
        deadline_s = time.monotonic() + GRACE_S
        while (fresh := [process for process in fresh if is_running(process)]) and time.monotonic() < deadline_s:
            time.sleep(0.02)
    for process in fresh:
        try:
            command = " ".join(process.cmdline())
            if any(name in command for name in LIBRARY_PROCESSES):
                continue
            process.kill()
        except psutil.NoSuchProcess:
            continue
        leaked.append(f"{process.pid}: {command}")
    return leaked


def is_running(process: psutil.Process) -> bool:
    """Tell whether a process still does something; one that has ended and waits to be reaped does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def leaked_tasks() -> list[asyncio.Task[object]]:
    """List the tasks of the running loop, but for the caller's, that do not end within the grace."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if not others:
        return []
    _, pending = await asyncio.wait(others, timeout=GRACE_S)
    return list(pending)
