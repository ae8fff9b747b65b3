"""Server-sent events: bytes in, events and comments out. No I/O."""

from __future__ import annotations

from typing import NamedTuple

MOST_LINE_BYTES = 4 << 20


class Data(NamedTuple):
    """The data of an event, its lines joined."""

    text: str


class Comment(NamedTuple):
    """A comment: what a server says beside the events."""

    text: str


class LineTooLong(ValueError):
    """A line is longer than any that makes sense."""


class SseParser:
    """Takes the bytes of a stream as they come. Lines end with LF, CR or CRLF, also across two pieces."""

    def __init__(self) -> None:
        self._left = b""
        self._data: list[str] = []
        self._after_cr = False

    def feed(self, data: bytes) -> list[Data | Comment]:
        """Return what is complete now. Raises LineTooLong."""
        if self._after_cr and data:
            data, self._after_cr = data.removeprefix(b"\n"), False
        self._after_cr = data.endswith(b"\r")
        *lines, self._left = (self._left + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if len(self._left) > MOST_LINE_BYTES:
            raise LineTooLong("The server sent a line without an end.")
        found: list[Data | Comment] = []
        for line in lines:
            self._take(line.decode("utf-8", "replace"), found)
        return found

    def _take(self, line: str, found: list[Data | Comment]) -> None:
        if not line:
            if self._data:
                found.append(Data("\n".join(self._data)))
                self._data = []
        elif line.startswith(":"):
            found.append(Comment(line[1:].strip()))
        else:
            name, _, value = line.partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
