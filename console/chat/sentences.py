"""The sentences of an answer that are finished, for who listens instead of reading. No I/O."""

from __future__ import annotations

import re

_END = re.compile(r"(?<=[.!?…])[\"')\]*_]*\s+|\n{2,}")
_MARKS = re.compile(r"[*_`#>|]+")


class Sentences:
    """Takes the text as it comes and returns what can be said. Code is not read out, only that there is some."""

    def __init__(self) -> None:
        self._prose = ""
        self._line = ""
        self._amid = False
        """Whether the line's beginning is in the prose already, because it is no fence."""
        self._in_code = False

    def add(self, text: str) -> list[str]:
        """Return the sentences that are finished now."""
        said: list[str] = []
        for piece in text.splitlines(keepends=True):
            self._line += piece
            is_fence = not self._amid and self._line.lstrip().startswith("```")
            if self._line.endswith("\n"):
                if is_fence:
                    said += self._finished() + self.end() + ([] if self._in_code else ["Code."])
                    self._in_code = not self._in_code
                elif not self._in_code:
                    self._prose += self._line
                self._line, self._amid = "", False
            elif not self._in_code and not is_fence and self._line.strip(" `"):
                self._prose, self._line, self._amid = self._prose + self._line, "", True
        return said + self._finished()

    def end(self) -> list[str]:
        """Return what is left."""
        left, self._prose = self._prose, ""
        clean = _clean(left)
        return [clean] if clean else []

    def _finished(self) -> list[str]:
        *finished, self._prose = _END.split(self._prose)
        return [clean for part in finished if (clean := _clean(part))]


def _clean(text: str) -> str:
    return " ".join(_MARKS.sub(" ", text).split())
