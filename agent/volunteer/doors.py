"""Shuts all gates in the thread of whoever hears of the owner, and lets no look that is under way open them again."""

from __future__ import annotations

import threading

from agent.stage.gate import Gates


class Doors:
    """The gates of all stages as one. Any thread."""

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self._moving = threading.Lock()
        """Held for microseconds, to open the gates or to shut them: never both at once."""
        self._are_watched = False
        """Whether the next input shuts them."""
        self._inputs, self._inputs_looked_at, self._source = 0, 0, ""

    def seen(self, source: str) -> bool:
        """The owner is here: shut them now if they are watched; returns whether they were."""
        with self._moving:
            self._inputs, self._source = self._inputs + 1, source
            were_watched, self._are_watched = self._are_watched, False
            if were_watched:
                self._gates.shut()
        return were_watched

    def begin_look(self) -> int:
        """Return how many inputs the look before had heard of; the one that begins hears of all until now."""
        before, self._inputs_looked_at = self._inputs_looked_at, self._inputs
        return before

    def reopen(self, inputs: int, *, unattended: bool) -> str | None:
        """Let inferences begin again unless there were other `inputs` since: the probes may not know of them yet.

        Returns the source of such an input, when they are shut instead. `unattended` gates are opened whoever is there.
        """
        with self._moving:
            if unattended or self._inputs == inputs:
                self._gates.reopen()
                self._are_watched = not unattended
                return None
            self._are_watched = False
            self._gates.shut()
            return self._source

    def shut(self) -> None:
        """Let no inference begin."""
        with self._moving:
            self._are_watched = False
            self._gates.shut()
