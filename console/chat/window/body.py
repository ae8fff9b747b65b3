"""The text of a message as a stack of parts, also while it grows. GUI thread."""

from __future__ import annotations

from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QTextEdit, QWidget

from console.chat.blocks import Block, Cutter, join, joins, runs_of
from console.chat.render import Shades, code_html, kept_html
from console.chat.window.parts import CodePart, Part, RichText, TextPart


class Body(QWidget):
    """Shows Markdown. Whatever it is given, only the parts that differ are shown anew."""

    def __init__(self, shades: Shades) -> None:
        super().__init__()
        self._shades = shades
        self._parts: list[Part] = []
        self._cutter: Cutter | None = None
        self._runs: list[Block] = []
        self._taken = 0

    def set_text(self, text: str) -> None:
        """Show a whole text."""
        self._cutter = None
        self._show(list(runs_of(text)))

    def grow(self, text: str) -> None:
        """Show more of a text that comes; the first call begins it."""
        if self._cutter is None:
            self._cutter, self._runs, self._taken = Cutter(), [], 0
        self._cutter.add(text)
        for block in self._cutter.closed[self._taken :]:
            if self._runs and joins(self._runs[-1], block):
                self._runs[-1] = join(self._runs[-1], block)
            else:
                self._runs.append(block)
        self._taken = len(self._cutter.closed)
        self._show([*self._runs, *([self._cutter.open] if self._cutter.open else [])])

    def recolour(self, shades: Shades) -> None:
        """Show the same in other colours or another size."""
        self._shades = shades
        for part in self._parts:
            part.show_block(part.block, shades)

    def fit(self, width: int) -> int:
        """Place the parts at a width; returns the height of all."""
        gap = round(self.fontMetrics().height() * 0.4)
        top = 0
        for part in self._parts:
            height = part.fit(width)
            part.setGeometry(0, top, width, height)
            top += height + gap
        return max(0, top - gap)

    def texts(self) -> list[RichText]:
        """List where words can be found."""
        return [part.code if isinstance(part, CodePart) else part for part in self._parts]

    def mark(self, words: str) -> None:
        """Mark words wherever they stand. Empty: mark nothing."""
        for text in self.texts():
            text.setExtraSelections([self._marked(cursor) for cursor in (text.find_all(words) if words else [])])

    def _marked(self, cursor: QTextCursor) -> QTextEdit.ExtraSelection:
        selection = QTextEdit.ExtraSelection()
        selection.cursor = cursor
        selection.format.setBackground(self.palette().highlight())
        selection.format.setForeground(self.palette().highlightedText())
        return selection

    def _show(self, wanted: list[Block]) -> None:
        for place, block in enumerate(wanted):
            part = self._parts[place] if place < len(self._parts) else None
            if part is None or isinstance(part, CodePart) != block.code:
                made: Part = CodePart() if block.code else TextPart()
                made.setParent(self)
                made.show_block(block, self._shades)
                made.show()
                if part is not None:
                    _drop(part)
                    self._parts[place] = made
                else:
                    self._parts.append(made)
            elif _differs(part.block, block):
                part.show_block(block, self._shades)
        for part in self._parts[len(wanted) :]:
            _drop(part)
        del self._parts[len(wanted) :]


def warm(text: str, shades: Shades) -> None:
    """Prepare a text that may be shown soon: what takes long of it is kept."""
    for block in runs_of(text):
        if block.code:
            code_html(block.source, block.language, shades)
        else:
            kept_html(block.source, shades)


def _differs(shown: Block, block: Block) -> bool:
    """Say whether a block looks different now: that text is closed changes nothing, code gets its colours then."""
    if block.code:
        return shown != block
    return shown.source.rstrip() != block.source.rstrip()


def _drop(part: QWidget) -> None:
    part.hide()
    part.setParent(None)
    part.deleteLater()
