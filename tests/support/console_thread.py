"""A whole console service in a thread of its own, for tests of windows: they have the main thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from console.access import Access, access_of
from console.registry.registry import AT_ONCE, Registry
from console.service import ConsoleService, ServiceSettings
from tests.support.patience import PATIENCE_S

WORKERS = 4

T = TypeVar("T")


def full_pool() -> ThreadPoolExecutor:
    """Return a pool that has all its threads: one that came later would look like the leak of a test."""
    pool, all_there = ThreadPoolExecutor(WORKERS, "console of a test"), threading.Barrier(WORKERS + 1)
    for _ in range(WORKERS):
        pool.submit(all_there.wait)
    all_there.wait(PATIENCE_S)
    return pool


async def fill_pool(registry: Registry) -> None:
    """Let a registry have all its threads, for the same reason."""
    all_there = threading.Barrier(AT_ONCE)
    await asyncio.gather(*(registry.ask(all_there.wait) for _ in range(AT_ONCE)))


class ConsoleThread:
    """A running service. `call` does something on its loop and waits for it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self._settings = ServiceSettings(folder=folder, keyring=False, **settings)
        self.service: ConsoleService
        self._loop = asyncio.new_event_loop()
        self._started: Future[None] = Future()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="console of a test")

    def access(self) -> Access:
        """Return the way to the service with its admin key."""
        return access_of(self.folder)

    def call(self, work: Callable[[ConsoleService], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(work(self.service), self._loop).result(PATIENCE_S)

    def begin(self) -> None:
        """Start it; `end` has to follow, also when this raises what the service could not start for."""
        self._thread.start()
        self._started.result(PATIENCE_S)

    def end(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed when it did not start
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:
                if self._started.done():
                    raise
                self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop.set_default_executor(full_pool())
        async with ConsoleService(self._settings) as service:
            await fill_pool(service._registry)
            self.service = service
            self._started.set_result(None)
            await self._stopping.wait()


@contextlib.contextmanager
def console_thread(folder: Path, **settings: Any) -> Iterator[ConsoleThread]:
    """Run a service on a data folder."""
    running = ConsoleThread(folder, **settings)
    try:
        running.begin()
        yield running
    finally:
        running.end()
