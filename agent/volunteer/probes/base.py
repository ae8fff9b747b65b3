"""What a probe is: one source of facts about this PC, read by a worker of its own, and what a push is.

Raised by a source, and nothing of it reaches further than its worker:

ProbeError
 ├─ Absent      this PC does not have the source: nothing to worry about, another one may know
 └─ Unreadable  the source is there but gave no usable answer: the fact is unknown
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypedDict

from agent.volunteer.facts import Heat, Memory, Power


class ProbeError(Exception):
    """A source gives no value now; the text is a phrase for people."""


class Absent(ProbeError):
    """This PC does not have the source."""


class Unreadable(ProbeError):
    """The source is there and gave no usable answer."""


class Seen(TypedDict, total=False):
    """What one read of a source found: some of the fields of `agent.volunteer.facts.Facts`, by name.

    `power_saver` becomes part of `Facts.power`: on Linux another service than the battery's knows it.
    """

    idle_s: float
    locked: bool
    displays_off: bool
    remote_session: bool
    session_switched: bool
    fullscreen: bool
    presentation: bool
    inhibitors: tuple[str, ...]
    other_cpu_percent: float
    other_gpu_percent: float
    exclusive: tuple[str, ...]
    memory: Memory
    power: Power
    power_saver: bool
    heat: Heat
    metered: bool
    disk_free_bytes: int


FactName = Literal[
    "idle_s", "locked", "displays_off", "remote_session", "session_switched", "fullscreen", "presentation",
    "inhibitors", "other_cpu_percent", "other_gpu_percent", "exclusive", "memory", "power", "power_saver", "heat",
    "metered", "disk_free_bytes",
]  # fmt: skip


class Source(Protocol):
    """Reads the operating system, in one thread."""

    def read(self) -> Seen:
        """Return what it sees now. Raises Absent or Unreadable; whatever else it raises counts as Unreadable."""
        ...

    def close(self) -> None:
        """Let a `read` that waits fail, and every later one. Any thread, also during a `read`."""
        ...

    def finish(self) -> None:
        """Let go of what it holds. The reading thread, last of all."""
        ...


@dataclass(frozen=True)
class Probe:
    """A source by name, the facts it tells, and how often to ask: seldom while at rest, closely while serving.

    `last_resort`: it counts only where no better source of the fact exists, not where one merely fails.
    """

    name: str
    source: Source
    tells: tuple[FactName, ...]
    interval_s: float = 2.0
    close_interval_s: float | None = None
    last_resort: bool = False


SystemEvent = Literal["input", "locked", "unlocked", "session", "suspending", "resumed", "shutting_down"]
"""`session`: another session came to the front, or a remote one began or ended. `resumed`: the PC goes on, after sleep
or because a shutdown was called off.
"""


class Watch(Protocol):
    """Hears from the operating system instead of asking it. `run` has a thread of its own."""

    name: str

    def run(self, say: Callable[[SystemEvent], None]) -> None:
        """Listen and say what comes until `stop`. Raises Absent or Unreadable, also when the connection ends."""
        ...

    def stop(self) -> None:
        """Make `run` return soon. Any thread; before `run` begins it must not begin."""
        ...
