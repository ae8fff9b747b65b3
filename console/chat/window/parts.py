"""The pieces a message is made of: text and code, each as high as it needs to be at a width. GUI thread."""

from __future__ import annotations

import weakref
from functools import lru_cache

from PySide6.QtCore import QMimeData, QSize, Qt, QTimer, QUrl
from PySide6.QtGui import (
    QDesktopServices,
    QFontDatabase,
    QGuiApplication,
    QIcon,
    QImage,
    QPalette,
    QTextCursor,
    QTextDocument,
    QTextOption,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QTextBrowser, QToolButton, QVBoxLayout
from shiboken6 import isValid

from agent.look import palettes
from agent.look.icons import drawn
from agent.look.widgets import label, rescale
from console.chat.blocks import Block
from console.chat.render import Shades, code_html, kept_html, markdown_html

SAFE_SCHEMES = ("http", "https", "mailto")
COPIED_MS = 1500
COLOUR_MS = 5
_STYLES = {"light": "default", "dark": "github-dark", "contrast": "github-dark"}


def shades_of(palette: QPalette) -> Shades:
    """Return the colours of rendered text in a palette of ours."""
    scheme = palettes.scheme_of(palette)
    colours = palettes.COLOURS[scheme]
    code = "#1b1b1b" if scheme == "contrast" else colours.alternate
    return Shades(colours.text, colours.quiet, code, colours.border, colours.accent, _STYLES[scheme])


@lru_cache(maxsize=128)
def small_icon(name: str, side: int, colour: str, ratio: float) -> QIcon:
    """Return an icon; every message has the same ones."""
    return QIcon(drawn(name, side, colour, ratio))


class RichText(QTextBrowser):
    """Shows HTML of ours and loads nothing, whatever it names; links open in the browser, on a click only."""

    def __init__(self, *, wraps: bool = True) -> None:
        super().__init__()
        self.setOpenLinks(False)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextBrowserInteraction | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.setTabChangesFocus(True)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.viewport().setAutoFillBackground(False)
        self.document().setDocumentMargin(0)
        if not wraps:
            self.setLineWrapMode(QTextBrowser.LineWrapMode.NoWrap)
            self.setWordWrapMode(QTextOption.WrapMode.NoWrap)
        self.anchorClicked.connect(_open)

    def loadResource(self, kind: int, name: QUrl | str) -> object:  # noqa: N802 - Qt's name
        """Refuse every address: give one clear dot, because Qt looks for a file itself where there is nothing."""
        dot = QImage(1, 1, QImage.Format.Format_ARGB32)
        dot.fill(Qt.GlobalColor.transparent)
        return dot

    def fit(self, width: int) -> int:
        """Return how high the text is at a width."""
        if self.lineWrapMode() == QTextBrowser.LineWrapMode.NoWrap:
            bar = self.horizontalScrollBar().sizeHint().height() if self.document().idealWidth() > width else 0
            return round(self.document().size().height()) + bar + 1
        self.document().setTextWidth(width)
        bar = self.horizontalScrollBar().sizeHint().height() if self.document().size().width() > width + 1 else 0
        return round(self.document().size().height()) + bar + 1

    def find_all(self, words: str) -> list[QTextCursor]:
        """Return where words stand, whatever their case."""
        found, at = [], QTextCursor(self.document())
        while not (at := self.document().find(words, at, QTextDocument.FindFlag(0))).isNull():
            found.append(QTextCursor(at))
        return found

    def wheelEvent(self, event: QWheelEvent) -> None:  # noqa: N802 - Qt's name
        """Let the list scroll; only a sideways turn is for long lines."""
        if abs(event.angleDelta().x()) > abs(event.angleDelta().y()):
            super().wheelEvent(event)
        else:
            event.ignore()

    def createMimeDataFromSelection(self) -> QMimeData:  # noqa: N802 - Qt's name
        """Copy plain text: colours of our window have no place in other programs."""
        data = QMimeData()
        data.setText(self.textCursor().selection().toPlainText())
        return data


class TextPart(RichText):
    """Some blocks of Markdown."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block("")

    def show_block(self, block: Block, shades: Shades) -> None:
        """Show other text."""
        self.block = block
        self.document().setDefaultFont(self.font())
        self.document().setDefaultStyleSheet(
            f"a {{ color: {shades.link}; }} p {{ margin-top: 0.35em; margin-bottom: 0.35em; }}"
            "h1, h2, h3, h4 { margin-top: 0.7em; margin-bottom: 0.3em; } h1 { font-size: x-large; }"
            "h2 { font-size: large; } h3, h4 { font-size: medium; } li { margin-bottom: 0.15em; }"
        )
        render = kept_html if block.closed else markdown_html
        self.setHtml(render(block.source, shades))


class Colourist:
    """Gives code its colours, one block in a moment."""

    def __init__(self) -> None:
        self._waiting: list[weakref.ref[CodePart]] = []
        self._runs = False

    def add(self, part: CodePart) -> None:
        """Colour a block soon."""
        self._waiting.append(weakref.ref(part))
        self._go_on()

    def _go_on(self) -> None:
        if self._waiting and not self._runs:
            self._runs = True
            QTimer.singleShot(COLOUR_MS, self._next)

    def _next(self) -> None:
        self._runs = False
        part = self._waiting.pop(0)()
        if part is not None and isValid(part):
            part.colour()
        self._go_on()


COLOURIST = Colourist()


class CodePart(QFrame):
    """A block of code with its language and a button that copies it. Coloured once, when it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block("", code=True)
        self._shown = ""
        self._size = 0.0
        self._shades: Shades | None = None
        self.setAutoFillBackground(True)
        self.language = label(quiet=True, scale=0.9)
        self.copy = QToolButton()
        self.copy.setAutoRaise(True)
        self.copy.setAccessibleName("Copy code")
        self.copy.setToolTip("Copy code")
        self.copy.clicked.connect(self._copy)
        self.code = RichText(wraps=False)
        self.code.setAccessibleName("Code")
        self._margin = round(self.fontMetrics().height() * 0.5)
        head = QHBoxLayout()
        head.addWidget(self.language, 1)
        head.addWidget(self.copy)
        rows = QVBoxLayout(self)
        rows.setContentsMargins(self._margin, self._margin // 2, self._margin, self._margin)
        rows.setSpacing(0)
        rows.addLayout(head)
        rows.addWidget(self.code, 1)
        self._head = head

    def show_block(self, block: Block, shades: Shades) -> None:
        """Show other code. While it grows only what came is added, in one colour."""
        grows = not block.closed and self._shown and block.source.startswith(self._shown)
        self._fit_font()
        self._paint(shades)
        self.language.setText(block.language or "code")
        if grows:
            cursor = QTextCursor(self.code.document())
            cursor.movePosition(QTextCursor.MoveOperation.End)
            cursor.insertText(block.source[len(self._shown) :])
        else:
            self.code.document().setDefaultFont(self.code.font())
            self.code.setPlainText(block.source.rstrip("\n") if block.closed else block.source)
            if block.closed:
                # Colours change no line, so they may come a moment later: many messages come into sight at once.
                self._shades = shades
                COLOURIST.add(self)
        self._shown = "" if block.closed else block.source
        self.block = block

    def colour(self) -> None:
        """Give the code its colours."""
        if self._shades is not None and self.block.closed:
            inside = code_html(self.block.source, self.block.language, self._shades)
            self.code.setHtml(f'<pre style="margin:0">{inside}</pre>')
            self._shades = None

    def fit(self, width: int) -> int:
        """Return how high the code is at a width."""
        inner = width - 2 * self._margin
        # A layout inside another one hears of what changed in it only after this.
        self._head.invalidate()
        return self._head.sizeHint().height() + self.code.fit(inner) + self._margin + self._margin // 2

    def _fit_font(self) -> None:
        size = self.font().pointSizeF()
        if size != self._size:
            self._size = size
            # The style sheet's own monospace family is not there on every system.
            font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
            font.setPointSizeF(size)
            self.code.setFont(font)
            rescale(self)

    def _paint(self, shades: Shades) -> None:
        palette = self.palette()
        palette.setColor(QPalette.ColorRole.Window, shades.code)
        self.setPalette(palette)
        side = round(self.fontMetrics().height() * 1.1)
        self.copy.setIcon(small_icon("copy", side, shades.quiet, self.devicePixelRatioF()))
        self.copy.setIconSize(QSize(side, side))

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.block.source)
        self.copy.setToolTip("Copied")
        self.language.setText("Copied")
        QTimer.singleShot(COPIED_MS, self, self._copied_shown)

    def _copied_shown(self) -> None:
        self.copy.setToolTip("Copy code")
        self.language.setText(self.block.language or "code")


Part = TextPart | CodePart


def quiet_line(text: str = "") -> QLabel:
    """Return a small line of text."""
    return label(text, quiet=True, scale=0.9)


def _open(url: QUrl) -> None:
    if url.scheme() in SAFE_SCHEMES:
        QDesktopServices.openUrl(url)
