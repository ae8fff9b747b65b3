"""The gate before every inference of a stage: a page of memory that the agent and the stage's child process share.

The agent shuts it from any thread, in a microsecond and without waiting for anybody's event loop, and the child looks
at it before each inference. What runs already cannot be interrupted; the size of the chunks keeps it short. The child
counts in the same page what it does, so the agent sees progress, not only life. Nothing of a prompt is in it.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import threading
import time
from pathlib import Path

from agent.stage.errors import Yielded

SIZE = mmap.PAGESIZE
_SHUT, _ENTERED, _LEFT, _ENTERED_NS, _LEFT_NS, _TOKENS, _BEAT_NS, _BUSY_NS = range(8)


class Gate:
    """One stage's gate. Both ends may use it from any thread; times are of `time.monotonic`, the same in both."""

    def __init__(self, page: mmap.mmap, path: Path | None = None) -> None:
        self.path = path
        self._page = page
        self._words = memoryview(page).cast("Q")

    @classmethod
    def create(cls, path: Path) -> Gate:
        """Make the file of an open gate. Raises OSError."""
        path.write_bytes(bytes(SIZE))
        path.chmod(0o600)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Gate:
        """Share an existing gate. Raises OSError."""
        with path.open("r+b") as file:
            return cls(mmap.mmap(file.fileno(), SIZE), path)

    @classmethod
    def private(cls) -> Gate:
        """A gate nobody else has: always open, for stages that run without an agent."""
        return cls(mmap.mmap(-1, SIZE))

    def close(self) -> None:
        """Let go of the page. Safe to call again."""
        self._words.release()
        with contextlib.suppress(ValueError):
            self._page.close()

    # The agent's end

    def shut(self) -> None:
        """Let no inference begin from now on."""
        self._words[_SHUT] = 1

    def reopen(self) -> None:
        """Let inferences begin again."""
        self._words[_SHUT] = 0

    @property
    def is_shut(self) -> bool:
        """Whether no inference may begin."""
        return bool(self._words[_SHUT])

    @property
    def entered(self) -> int:
        """How many inferences began."""
        return self._words[_ENTERED]

    @property
    def entered_ns(self) -> int:
        """When the last inference began."""
        return self._words[_ENTERED_NS]

    @property
    def is_inside(self) -> bool:
        """Whether an inference runs."""
        return self._words[_ENTERED] != self._words[_LEFT]

    @property
    def moved_ns(self) -> int:
        """When an inference last began or ended."""
        return max(self._words[_ENTERED_NS], self._words[_LEFT_NS])

    @property
    def beat_ns(self) -> int:
        """When the child last said that it lives; 0: it is loading."""
        return self._words[_BEAT_NS]

    @property
    def tokens(self) -> int:
        """How many positions were computed."""
        return self._words[_TOKENS]

    @property
    def busy_s(self) -> float:
        """How long inferences have run, all together."""
        return self._words[_BUSY_NS] / 1e9

    # The child's end

    def enter(self) -> None:
        """Begin an inference. Raises Yielded while the gate is shut."""
        words = self._words
        if words[_SHUT]:
            raise Yielded("This PC's owner is back; the step is not computed here.")
        words[_ENTERED_NS] = time.monotonic_ns()
        words[_ENTERED] += 1

    def leave(self, tokens: int) -> None:
        """An inference of so many positions has ended, well or not."""
        words, now_ns = self._words, time.monotonic_ns()
        words[_LEFT_NS] = now_ns
        words[_BUSY_NS] += now_ns - words[_ENTERED_NS]
        words[_TOKENS] += tokens
        words[_LEFT] += 1

    def beat(self) -> None:
        """Say that this process lives."""
        self._words[_BEAT_NS] = time.monotonic_ns()


class Gates:
    """The gates of all stages of this PC, shut together by whoever hears of the owner first. Any thread.

    Their files are in `folder`, where no other process works; what a killed agent left there is deleted.
    """

    def __init__(self, folder: Path) -> None:
        """Raises OSError."""
        self._folder = folder
        self._lock = threading.Lock()
        self._gates: set[Gate] = set()
        self._shut = False
        self._numbers = itertools.count(1)
        folder.mkdir(mode=0o700, exist_ok=True)
        for left in folder.glob("*.gate"):
            left.unlink()

    def make(self) -> Gate:
        """Make the gate of one more stage, shut if the others are. Raises OSError."""
        gate = Gate.create(self._folder / f"{next(self._numbers)}.gate")
        with self._lock:
            self._gates.add(gate)
            if self._shut:
                gate.shut()
        return gate

    def remove(self, gate: Gate) -> None:
        """Close a gate whose child process has ended."""
        with self._lock:
            self._gates.discard(gate)
            gate.close()
        if gate.path is not None:
            gate.path.unlink(missing_ok=True)

    def all(self) -> list[Gate]:
        """List the gates of all stages."""
        with self._lock:
            return list(self._gates)

    def shut(self) -> None:
        """Let no inference begin on this PC."""
        with self._lock:
            self._shut = True
            for gate in self._gates:
                gate.shut()

    def reopen(self) -> None:
        """Let inferences begin again."""
        with self._lock:
            self._shut = False
            for gate in self._gates:
                gate.reopen()

    @property
    def are_shut(self) -> bool:
        """Whether no inference may begin on this PC."""
        return self._shut
