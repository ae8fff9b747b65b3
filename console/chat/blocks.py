"""A message's Markdown cut into blocks, again and again while it grows. No I/O.

Only the last block of a growing text can still change, so what lies before it is cut once and never looked at again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

_CLOSING = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*\n")
"""A line that ends a fence, when it has ended itself."""
RUN_CHARACTERS = 3000
"""Text blocks are shown together up to this length: few widgets, and little to lay out anew when one is added."""


@dataclass(frozen=True, slots=True)
class Block:
    """A top-level block. `code` says that it is a fenced or indented code block; `language` is what its fence names.

    `source` is its Markdown, for code without the fences. `closed`: nothing that follows can change it.
    """

    source: str
    code: bool = False
    language: str = ""
    closed: bool = True


@cache
def parser() -> MarkdownIt:
    """Return what finds the blocks of CommonMark without raw HTML, with tables; it looks at nothing inside of them."""
    made = MarkdownIt("commonmark", {"html": False}).enable("table")
    made.core.ruler.enableOnly(["normalize", "block"])
    return made


class Cutter:
    """Cuts one growing text. `closed` are the blocks that stay; `open` is the last one, if it may still change."""

    def __init__(self) -> None:
        self.closed: list[Block] = []
        self.open: Block | None = None
        self._tail = ""
        self._half = ""
        """A carriage return at the end: half of a line's end, or a whole one."""

    def add(self, text: str) -> None:
        """Take more of the text."""
        text = self._half + text
        self._half = "\r" if text.endswith("\r") else ""
        text = _normal(text.removesuffix("\r"))
        self._tail += text
        if "\n" not in text and self.open is not None and self.open.code:
            # Inside a fence, nothing but a whole line can change what the block is.
            self.open = Block(self.open.source + text, code=True, language=self.open.language, closed=False)
            return
        self._cut()

    def end(self, text: str = "") -> None:
        """Nothing follows, or nothing but this: the last block is closed, too."""
        self._tail += _normal(self._half + text)
        self._half = ""
        self._cut()
        if self.open is not None:
            self.closed.append(Block(self.open.source, self.open.code, self.open.language))
        self.open, self._tail = None, ""

    def _cut(self) -> None:
        lines = _lines(self._tail)
        found = _blocks(self._tail, lines)
        self.open = None
        cut = 0
        for place, (block, end) in enumerate(found):
            if place == len(found) - 1 and not block.closed:
                self.open = block
                break
            self.closed.append(Block(block.source, block.code, block.language))
            cut = end
        self._tail = "".join(lines[cut:])


def cut(text: str) -> list[Block]:
    """Cut a whole text."""
    cutter = Cutter()
    cutter.end(text)
    return cutter.closed


def runs(blocks: Iterable[Block]) -> list[Block]:
    """Join neighbouring text blocks into longer ones; code stays alone."""
    joined: list[Block] = []
    for block in blocks:
        if joined and joins(joined[-1], block):
            joined[-1] = join(joined[-1], block)
        else:
            joined.append(block)
    return joined


@lru_cache(maxsize=512)
def runs_of(text: str) -> tuple[Block, ...]:
    """Return a whole text as it is shown. Kept: messages come into sight again and again."""
    return tuple(runs(cut(text)))


def joins(before: Block, block: Block) -> bool:
    """Say whether a block is shown together with the one before."""
    return not before.code and not block.code and len(before.source) + len(block.source) <= RUN_CHARACTERS


def join(before: Block, block: Block) -> Block:
    """Make one block of two text blocks."""
    return Block(f"{before.source.rstrip()}\n\n{block.source}")


def _blocks(text: str, lines: list[str]) -> list[tuple[Block, int]]:
    """Return the top-level blocks and the line behind each.

    What lies between two blocks (blank lines, definitions of links) belongs to the first, behind a fence to the second.
    """
    found: list[tuple[Block, int]] = []
    tokens = [(token, token.map) for token in _top_level(text) if token.map and token.nesting >= 0]
    begins = [first for _, (first, _) in tokens[1:]] + [len(lines)]
    begin = 0
    for (token, (first, last)), end in zip(tokens, begins, strict=False):
        if token.type == "fence":
            found.append((_fenced(token, lines[first:last]), last))
            if "".join(lines[last:end]).strip() and end == len(lines):
                found.append((Block("".join(lines[last:]), closed=False), end))
        else:
            is_code = token.type == "code_block"
            source = token.content if is_code else "".join(lines[begin:end])
            found.append((Block(source, code=is_code, closed=False), end))
        begin = found[-1][1]
    if not tokens and text.strip():
        found.append((Block(text, closed=False), len(lines)))
    return found


def _fenced(token: Token, lines: list[str]) -> Block:
    fence = _CLOSING.match(lines[-1]) if len(lines) > 1 else None
    ends = fence is not None and fence[1].startswith(token.markup)
    language = token.info.split()[0] if token.info.split() else ""
    return Block(token.content, code=True, language=language, closed=ends)


def _normal(text: str) -> str:
    """Return a text with the ends of lines that the parser turns all others into."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _lines(text: str) -> list[str]:
    """Return the lines as the parser counts them: `splitlines` knows more ends of a line."""
    *whole, last = text.split("\n")
    return [*(f"{line}\n" for line in whole), *([last] if last else [])]


def _top_level(text: str) -> list[Token]:
    return [token for token in parser().parse(text) if token.level == 0]
