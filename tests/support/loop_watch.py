"""Who asks the registry on an event loop: everybody else's links and answers wait for the database then."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BELOW, OWN = "console/registry/", "tests/support/loop_watch.py"

ALLOWED = {
    "console/builds/jobs.py", "console/deliveries.py", "console/deployments/book.py", "console/facts.py",
    "console/libraries.py", "console/credentials.py",
}  # fmt: skip
"""What still asks on the loop: when the service starts, and when an administrator deploys, delivers or builds.

None of it is done for a link, a frame or an answer.
"""
_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class LoopWatch:
    """Notes each transaction of the registry that the console begins on a running event loop."""

    def __init__(self) -> None:
        self._found: set[str] = set()
        self._is_installed = False

    def install(self) -> None:
        """Watch from now on, once the registry has been imported."""
        module = sys.modules.get("console.registry.database")
        if module is None or self._is_installed:
            return
        self._is_installed = True
        for name in ("reading", "writing"):
            setattr(module.Database, name, self._watched(getattr(module.Database, name)))

    def take(self) -> list[str]:
        """Give what was found since the last call: places in the console, as a file and a function."""
        found, self._found = sorted(self._found), set()
        return found

    def _watched(self, begin: Callable[..., Any]) -> Callable[..., Any]:
        @contextlib.contextmanager
        def watched(database: object) -> Iterator[Any]:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop()
                self._note()
            with begin(database) as session:
                yield session

        return watched

    def _note(self) -> None:
        """Find the console's function that asks; one that a test calls by itself is the test's own look."""
        frame, asking = sys._getframe(2), ""
        while frame is not None:
            name, code = _place(frame.f_code.co_filename), frame.f_code
            if name.startswith("console/") and not name.startswith(BELOW):
                asking = asking or f"{name}: {code.co_name}"
                if code.co_flags & _ASYNC:
                    break
            elif name.startswith("tests/") and name != OWN:
                return
            frame = frame.f_back  # type: ignore[assignment]
        if asking and asking.partition(":")[0] not in ALLOWED:
            self._found.add(asking)


def _place(file_name: str) -> str:
    """Return a file's path in this repository; empty for any other."""
    path = Path(file_name)
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
