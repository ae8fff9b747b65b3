"""Emoji in a growing text: what may still become part of the last one is held back. Pure.

An emoji is one picture made of several code points: a base with a skin tone or a presentation mark, several joined by
U+200D, two letters of a flag, a flag of tags, a digit in a keycap (Unicode TR51). A reader who is shown its beginning
sees another picture that then changes. Letters are not held for combining marks that may follow: the mark joins its
letter wherever the pieces are put together, and holding would delay every letter of every answer by a token.
"""

from __future__ import annotations

import re

MAX_HELD_CHARS = 32
"""Longer than any emoji that Unicode recommends (the longest has 14 code points); what is longer is none."""

# Extended_Pictographic in whole ranges: a symbol too many is only shown one token later.
_BASE = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a-\u23ff\u24c2\u25aa-\u25fe\u2600-\u27bf"
    "\u2934\u2935\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa"
    "\U0001f400-\U0001fbff\U0001fc00-\U0001fffd]"
)
_EXTENDS = "[\ufe0e\ufe0f\u20d0-\u20ff\u0300-\u036f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"
_FLAG_LETTERS = "".join(map(chr, range(0x1F1E6, 0x1F200)))
_OPEN_END = re.compile(rf"(?:{_BASE}{_EXTENDS}(?:\u200d{_BASE}{_EXTENDS})*\u200d?|[0-9#*]\ufe0f?)\Z")


def open_emoji(text: str) -> int:
    """Count the characters at the end of `text` that the next one may still belong to."""
    if letters := len(text) - len(text.rstrip(_FLAG_LETTERS)):
        # Two letters are one flag. A held text begins between two emoji, so counting is enough.
        return letters % 2
    found = _OPEN_END.search(text, max(0, len(text) - MAX_HELD_CHARS))
    return len(text) - found.start() if found else 0


class EmojiHolder:
    """Passes text on in pieces that end between emoji, never inside one."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> str:
        """Return what is complete; an open emoji waits for the next piece."""
        if not text:
            return ""
        text = self._held + text
        cut = len(text) - open_emoji(text)
        self._held = text[cut:]
        return text[:cut]

    def flush(self) -> str:
        """Return what was held back: the answer ended."""
        held, self._held = self._held, ""
        return held
