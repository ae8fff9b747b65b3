"""Parts of what a model says: thoughts, text and calls of tools, out of text that comes in pieces. Pure.

Nothing that was returned is taken back, and the parts do not depend on where the pieces end. Text that might be the
beginning of a mark waits until it is known. What only looks like a call stays text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from console.pipeline.dialects import CALL_CLOSES, CALL_OPENS, THOUGHT_MARKS, CallFormat, Marks

MAX_HEAD_CHARACTERS = 256
"""An answer that begins like a bare call is held so long at most until it names a tool."""
_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')


class Content(NamedTuple):
    """Text for whoever asked."""

    text: str


class Thought(NamedTuple):
    """Text that the model wrote for itself."""

    text: str


class CallBegins(NamedTuple):
    """The answer's call number `call` is of this tool."""

    call: int
    name: str


class CallArguments(NamedTuple):
    """More of the JSON text of a call's arguments."""

    call: int
    text: str


Part = Content | Thought | CallBegins | CallArguments


class JsonEnd:
    """Finds where a JSON object ends in text that comes in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._escaped = False

    def take(self, text: str) -> int:
        """Return how many characters belong to the object; -1: all of them, and it is not at its end."""
        for place, character in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped = character == "\\"
                self._in_string = character != '"'
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return place + 1
        return -1


class SpeechReader:
    """Reads one answer. `calls` None: calls are not looked for. `opened` says that it begins inside of thoughts."""

    def __init__(self, calls: CallFormat | None = None, *, thinks: Marks | None = None, opened: bool = False) -> None:
        self._calls = calls
        self._thoughts = (thinks,) if thinks is not None else THOUGHT_MARKS
        self._closes = thinks.closes if thinks is not None and opened else ""
        self._state = self._thinking if self._closes else self._opening
        self._held = ""
        self._thought = False
        self._arguments = JsonEnd()
        self.called = 0
        """How many calls there are so far."""

    def push(self, text: str) -> list[Part]:
        """Return the parts that became certain."""
        self._held += text
        return self._read(ended=False)

    def flush(self) -> list[Part]:
        """Return what is left at the end of the answer."""
        return self._read(ended=True)

    def _read(self, *, ended: bool) -> list[Part]:
        parts: list[Part] = []
        while self._state(parts, ended):
            pass
        return parts

    # Each state takes what it can of the held text; True: another state may go on with the rest.

    def _opening(self, parts: list[Part], ended: bool) -> bool:
        """At the very beginning: an answer may begin with thoughts, or be a bare call."""
        text = self._held.lstrip()
        marks = next((marks for marks in self._thoughts if text.startswith(marks.opens)), None)
        if marks is not None:
            self._held, self._closes, self._state = text[len(marks.opens) :], marks.closes, self._thinking
            return True
        if not ended and any(marks.opens.startswith(text) for marks in self._thoughts):
            return False
        self._state = self._bare_head if self._calls == "bare" else self._talking
        return True

    def _thinking(self, parts: list[Part], ended: bool) -> bool:
        if not self._thought:
            self._held = self._held.lstrip()
        before, mark, behind = self._held.partition(self._closes)
        if mark or ended:
            _add(parts, Thought(before.rstrip()))
            self._held, self._state = behind, self._after_thoughts
            return bool(mark)
        # Blank lines around thoughts belong to nobody.
        certain = self._held[: len(self._held) - _possible(self._held, self._closes)].rstrip()
        self._thought = self._thought or bool(certain)
        _add(parts, Thought(self._take(len(certain))))
        return False

    def _after_thoughts(self, parts: list[Part], ended: bool) -> bool:
        """Leave out the blank lines between thoughts and answer."""
        self._held = self._held.lstrip()
        if not self._held:
            return False
        self._state = self._bare_head if self._calls == "bare" else self._talking
        return True

    def _talking(self, parts: list[Part], ended: bool) -> bool:
        if self._calls != "tagged":
            _add(parts, Content(self._take(len(self._held))))
            return False
        before, mark, behind = self._held.partition(CALL_OPENS)
        if mark:
            # Blank lines before a call belong to nobody.
            _add(parts, Content(before.rstrip()))
            self._held, self._state = behind, self._tagged_head
            return True
        if ended:
            text = self._take(len(self._held))
            _add(parts, Content("" if self.called and not text.strip() else text))
            return False
        certain = self._held[: len(self._held) - _possible(self._held, CALL_OPENS)].rstrip()
        _add(parts, Content(self._take(len(certain))))
        return False

    def _tagged_head(self, parts: list[Part], ended: bool) -> bool:
        if self._begin(parts):
            return True
        body, mark, behind = self._held.partition(CALL_CLOSES)
        if not mark and not ended:
            return False
        if not mark:
            _add(parts, Content(CALL_OPENS + self._take(len(self._held))))
            return False
        self._held, self._state = behind, self._talking
        parts += self._whole(body) or [Content(CALL_OPENS + body + CALL_CLOSES)]
        return True

    def _bare_head(self, parts: list[Part], ended: bool) -> bool:
        if self._begin(parts):
            return True
        text = self._held.lstrip()
        if not ended and (not text or (text[0] == "{" and len(text) < MAX_HEAD_CHARACTERS)):
            return False
        if ended and (found := self._whole(self._held)):
            parts += found
            self._held = ""
        self._calls = None
        self._state = self._talking
        return True

    def _inside(self, parts: list[Part], ended: bool) -> bool:
        """Inside the arguments of a call."""
        size = self._arguments.take(self._held)
        text = self._take(len(self._held) if size < 0 else size)
        if text:
            parts.append(CallArguments(self.called - 1, text))
        if size < 0:
            return False
        self._state = self._behind
        return True

    def _behind(self, parts: list[Part], ended: bool) -> bool:
        """Behind the arguments: what closes the call is left out."""
        if self._calls == "bare":
            self._held = ""
            return False
        _, mark, behind = self._held.partition(CALL_CLOSES)
        if mark:
            self._held, self._state = behind, self._talking
        elif ended:
            self._held = ""
        return bool(mark)

    def _begin(self, parts: list[Part]) -> bool:
        head = _HEAD.match(self._held)
        if head is None or not (name := _string(head[1])):
            return False
        parts.append(CallBegins(self.called, name))
        self.called += 1
        self._held, self._state, self._arguments = self._held[head.end() :], self._inside, JsonEnd()
        return True

    def _whole(self, body: str) -> Sequence[Part]:
        """Read a call whose parts stand in another order than usual; empty: it is none."""
        try:
            call = msgspec.json.decode(body.strip(), type=_Call)
        except (msgspec.DecodeError, UnicodeEncodeError):
            return ()
        arguments = call.arguments if call.arguments is not None else call.parameters
        self.called += 1
        text = msgspec.json.encode(arguments or {}).decode()
        return [CallBegins(self.called - 1, call.name), CallArguments(self.called - 1, text)]

    def _take(self, count: int) -> str:
        text, self._held = self._held[:count], self._held[count:]
        return text


class _Call(msgspec.Struct):
    name: str
    arguments: dict[str, object] | None = None
    parameters: dict[str, object] | None = None


def _string(text: str) -> str:
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.DecodeError:
        return ""


def _add(parts: list[Part], part: Content | Thought) -> None:
    if part.text:
        parts.append(part)


def _possible(text: str, mark: str) -> int:
    """Return the length of the longest end of `text` that the mark begins with."""
    longest = min(len(mark) - 1, len(text))
    return next((size for size in range(longest, 0, -1) if mark.startswith(text[-size:])), 0)
