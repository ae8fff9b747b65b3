"""The X display as a source: idle time, fullscreen, displays off, and the push at the first input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from agent.volunteer.probes.base import Absent, Seen, SystemEvent, Unreadable
from agent.volunteer.probes.linux.x11 import IdleCounter, X11Connection, are_displays_off, is_fullscreen

QUIET_MS = 500
"""A push comes at the first input after so long without any: while somebody types, none is needed."""


class Display:
    """A connection to the X display that is opened when needed and again after it broke."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._connection: X11Connection | None = None
        self._counter: IdleCounter | None = None
        self._closed = False

    @contextmanager
    def connection(self) -> Iterator[X11Connection]:
        """Lend the connection; it is given up if that fails. Raises Absent or Unreadable."""
        if self._connection is None:
            self._connection = X11Connection(self._environment)
        if self._closed:
            self.drop()
            raise Unreadable("the probe ends")
        try:
            yield self._connection
        except Unreadable:
            self.drop()
            raise

    @contextmanager
    def counter(self) -> Iterator[IdleCounter]:
        """Lend the idle counter. Raises Absent or Unreadable."""
        with self.connection() as connection:
            if self._counter is None:
                self._counter = IdleCounter(connection)
            yield self._counter

    def close(self) -> None:
        """Let a call that waits in another thread fail, and every later one."""
        self._closed = True
        connection = self._connection
        if connection is not None:
            connection.shut()

    def drop(self) -> None:
        """Let go of the connection, in the thread that uses it."""
        connection, self._connection, self._counter = self._connection, None, None
        if connection is not None:
            connection.close()


class XIdle:
    """How long no input device of the display was used."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._display = Display(environment)

    def read(self) -> Seen:
        with self._display.counter() as counter:
            return {"idle_s": counter.idle_s()}

    def close(self) -> None:
        self._display.close()

    def finish(self) -> None:
        self._display.drop()


class XScreen:
    """What is on the display: a window over everything, or nothing because it sleeps."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._display = Display(environment)

    def read(self) -> Seen:
        seen: Seen = {}
        with self._display.connection() as connection:
            problem = Absent("the display tells nothing")
            try:
                seen["fullscreen"] = is_fullscreen(connection)
            except Absent as error:
                problem = error
            try:
                seen["displays_off"] = are_displays_off(connection)
            except Absent as error:
                problem = error
        if not seen:
            raise problem
        return seen

    def close(self) -> None:
        self._display.close()

    def finish(self) -> None:
        self._display.drop()


class XWatch:
    """Says `input` at the first input after a moment of rest."""

    name = "x11"

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._display = Display(environment)

    def run(self, say: Callable[[SystemEvent], None]) -> None:
        try:
            with self._display.counter() as counter:
                while True:
                    counter.wait_input(QUIET_MS)
                    say("input")
        finally:
            self._display.drop()

    def stop(self) -> None:
        self._display.close()
