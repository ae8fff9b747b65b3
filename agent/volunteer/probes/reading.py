"""Simple sources, where there is no connection to keep."""

from __future__ import annotations

from collections.abc import Callable

from agent.volunteer.probes.base import Seen


class Simple:
    """The end of a source that holds nothing between two reads."""

    def close(self) -> None:
        """Nothing is held."""

    def finish(self) -> None:
        """Nothing is held."""


class Asking(Simple):
    """A source that is only a function."""

    def __init__(self, ask: Callable[[], Seen]) -> None:
        self._ask = ask

    def read(self) -> Seen:
        return self._ask()
