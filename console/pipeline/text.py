"""Text out of token ids, bit by bit: whole code points only, and nothing of a stop string. Pure; no tokenizer here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
HELD_TOKENS = 16
"""A code point has at most 4 bytes, so more unfinished tokens than this are an answer that is not UTF-8."""


class TextStream:
    """Decodes one answer incrementally; the pieces joined are what decoding it in one go gives, less a cut-off end.

    `decode` must drop special tokens. Every piece is decoded with the piece before it in front: some decoders strip a
    leading space, and merge or split bytes, depending on what stands before.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._before: list[int] = []
        self._before_text = ""
        self._held: list[int] = []

    def push(self, token: int) -> str:
        """Return the text that became certain, or nothing while a code point is unfinished."""
        self._held.append(token)
        text = self._decode(self._before + self._held)
        # Byte-fallback decoders turn the whole run of bytes into one mark per byte, so the length may also shrink.
        if text.endswith(REPLACEMENT) and len(self._held) < HELD_TOKENS:
            return ""
        return self._take(text)

    def flush(self) -> str:
        """Return what is left. A code point cut off by the end of the answer is left out, not shown as a mark."""
        return self._take(self._decode(self._before + self._held)).rstrip(REPLACEMENT) if self._held else ""

    def _take(self, text: str) -> str:
        # Unfinished bytes can change how the piece before them decodes; that piece is out already.
        follows = text.startswith(self._before_text)
        new = text[len(self._before_text) :] if follows else self._decode(self._held)
        if new:
            self._before, self._before_text = self._held, self._decode(self._held)
        elif len(self._before) + len(self._held) < HELD_TOKENS:
            # Special tokens have no text: keep the last piece that had some in front of what comes. Of many such tokens
            # in a row the later ones are left out.
            self._before, self._before_text = self._before + self._held, text
        self._held = []
        return new


class StopHolder:
    """Cuts an answer before the first stop string, wherever the pieces begin and end.

    First means: whose last character comes first; of several that end there the longest. So the cut does not depend
    on how the text was cut into pieces.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = sorted({stop for stop in stops if stop}, key=len, reverse=True)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """Return what will not be taken back. After `stopped` became true nothing follows."""
        if self.stopped or not self._stops:
            return "" if self.stopped else text
        text = self._held + text
        ends = [(text.find(stop) + len(stop), -len(stop)) for stop in self._stops if stop in text]
        if ends:
            end, length = min(ends)
            self.stopped, self._held = True, ""
            return text[: end + length]
        keep = self._possible(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """Return what was held back: the answer ended without a stop string."""
        held, self._held = self._held, ""
        return held

    def _possible(self, text: str) -> int:
        """Return the length of the longest end of `text` that a stop string begins with."""
        longest = min(len(self._stops[0]) - 1, len(text))
        for size in range(longest, 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stops):
                return size
        return 0
