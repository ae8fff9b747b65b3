"""A bridge that asks nobody: a test has the questions of a window, and answers them when it wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.look.loop import Job
from console.access import Access
from console.call import Call, LineCall
from console.errors import ClientError
from console.gui.bridge import Bridge


@dataclass(frozen=True, slots=True)
class Asked:
    """A question: what it was, and who hears an answer or a failure."""

    call: Call[Any] | LineCall[Any]
    on_answer: Callable[[Any], object]
    on_failed: Callable[[Any], object]


def _ignore(_: object) -> None:
    """What nobody wants to hear."""


class AskedBridge(Bridge):
    """Never started: it has no loop."""

    def __init__(self, access: Access | None = None) -> None:
        super().__init__(access or Access("https://127.0.0.1:9", "nobody's"))
        self.asked: list[Asked] = []

    def ask(
        self,
        call: Call[Any],
        on_answer: Callable[[Any], object] = _ignore,
        on_failed: Callable[[ClientError], object] = _ignore,
    ) -> Job:
        self.asked.append(Asked(call, on_answer, on_failed))
        return Job(self)

    def follow(
        self,
        call: LineCall[Any],
        on_line: Callable[[Any], object],
        on_end: Callable[[ClientError | None], object] = _ignore,
    ) -> Job:
        self.asked.append(Asked(call, on_line, on_end))
        return Job(self)

    def save(
        self,
        call: LineCall[bytes],
        path: Path,
        on_saved: Callable[[int], object] = _ignore,
        on_failed: Callable[[ClientError], object] = _ignore,
    ) -> Job:
        self.asked.append(Asked(call, on_saved, on_failed))
        return Job(self)
