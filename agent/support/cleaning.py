"""What leaves a PC in a support bundle: no secret, and of people's folders only that they are there. Pure.

Values are cleaned before they become JSON: a text's every part, and whole values by the names they have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from agent.logs.secrets import HIDDEN, Hider

HOME = "~"
MOST_DEPTH = 60
_SECRET_NAME = re.compile(
    r"(?i)(password|passphrase|passwd|secret|private|api_?key|admin_?key|access_?token|authorization|cookie|invite)"
)
# Of other people, too: whoever wrote a path into a log.
_HOMES = re.compile(r"(?i)((?:/home/|/Users/|[A-Z]:(?:\\{1,2}|/)Users(?:\\{1,2}|/)))[^/\\\s\"':;,]+")


class Cleaner:
    """Cleans what goes into one bundle. `known` are secrets by their value, `home` whose folder becomes `~`."""

    def __init__(self, known: Iterable[str] = (), home: Path | None = None) -> None:
        self._hider = Hider(known)
        homes = {str(home or Path.home())}
        homes |= {each.replace("\\", "\\\\") for each in homes} | {each.replace("\\", "/") for each in homes}
        # A home of / is no home: nothing would be left of any path. And one is whole: /srv/root is not root's.
        longest_first = sorted((each for each in homes if len(each.strip("/\\")) > 2), key=len, reverse=True)
        self._homes = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, longest_first)) or '(?!)'})(?![\w-])")

    def text(self, text: str) -> str:
        """Return a text without secrets, and without the names of people in paths."""
        text = self._homes.sub(HOME, text)
        return self._hider.hide(_HOMES.sub(rf"\1{HIDDEN}", text))

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return the same of a value of JSON; what has a secret's name is hidden whole."""
        if isinstance(value, str):
            return self.text(value)
        if depth > MOST_DEPTH:
            return HIDDEN
        if isinstance(value, dict):
            return {
                self.text(str(name)): HIDDEN
                if _SECRET_NAME.search(str(name)) and isinstance(each, str | list | dict) and each
                else self.value(each, depth + 1)
                for name, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(each, depth + 1) for each in value]
        return value

    def lines(self, text: str) -> str:
        """Return the lines of a log: objects as values, all others as texts."""
        return "\n".join(self._line(line) for line in text.split("\n"))

    def _line(self, line: str) -> str:
        if line.startswith("{"):
            try:
                return msgspec.json.encode(self.value(msgspec.json.decode(line))).decode()
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                pass
        return self.text(line)
