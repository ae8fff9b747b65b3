"""A version on trial: it proves itself by reaching the console, and ends with whoever started it.

The one that started it names a file in the environment; the new one writes its version there once it is connected.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from agent.update.files import write_whole

VARIABLE = "FALLOW_UPDATE_PROOF"
EXIT_AGAIN = 75
"""A program that was started on trial asks to be started again, as whatever is current by then."""


class Trial:
    """This process's own trial."""

    def __init__(self, proof: Path) -> None:
        self._proof = proof
        self._is_given = False

    @staticmethod
    def from_environment() -> Trial | None:
        """Return the trial of this process; None: it is not on trial. What it starts is not, either."""
        name = os.environ.pop(VARIABLE, "")
        return Trial(Path(name)) if name else None

    def give(self, version: str) -> None:
        """Say that this version works. Raises OSError."""
        if not self._is_given:
            write_whole(self._proof, version.encode())
            self._is_given = True

    def end_with_parent(self, stop: Callable[[], object]) -> None:
        """Call `stop`, from another thread, once whoever started this program is gone."""

        if sys.stdin is None:  # a Windows program without a console
            return
        number = sys.stdin.fileno()

        def watch() -> None:
            # Not through sys.stdin: Python cannot end while a thread holds the lock of its buffer.
            while os.read(number, 1024):
                pass
            stop()

        threading.Thread(target=watch, name="update-parent", daemon=True).start()
