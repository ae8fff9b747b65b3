"""A column of messages: one widget for each that is near the view, made when it is needed. GUI thread.

What lies further away is only a height, estimated until it was seen once. What somebody looks at does not move when
something above it turns out higher or lower. While the end is in sight it stays in sight; who scrolls up is left alone.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QPushButton, QScrollArea, QWidget

from console.chat.records import Message
from console.chat.settings import Width
from console.chat.window.body import warm
from console.chat.window.message import MessageView, Shown
from console.chat.window.parts import shades_of

WIDTHS: dict[Width, int] = {"narrow": 68, "wide": 100, "full": 100_000}
"""How many letters a line has at most."""
BUDGET_S = 0.012
"""So long messages are made at a stretch; then what was pressed and drawn meanwhile has its turn."""
LATER_MS = 8
MOST_VIEWS = 40
WARM_PAGES = 4


@dataclass(slots=True)
class Item:
    """A message in the list. `height` is an estimate until it was seen at this width (`measured`)."""

    shown: Shown
    view: MessageView | None = None
    height: int = 0
    measured: bool = False
    width: int = 0
    """The width that the height is for."""
    top: int = 0
    warm: bool = False
    """Whether what takes long of its text is prepared."""


class Column(QScrollArea):
    """Places `items` and makes what is near the view. `wants` and `edited` are those of its messages."""

    wants = Signal(str, str)
    edited = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        self.setAccessibleName("Messages")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.page = QWidget()
        self.setWidget(self.page)
        self.width_wanted: Width = "wide"
        self.items: list[Item] = []
        self.follows = True
        """Whether the end is kept in sight."""
        self.current = ""
        self._moves = self._making = False
        self._marked = ""
        self.latest = QPushButton("Jump to latest", self.viewport())
        self.latest.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.latest.hide()
        self.latest.clicked.connect(self.to_end)
        self._later = QTimer(self)
        self._later.setSingleShot(True)
        self._later.timeout.connect(self._make_views)
        self.verticalScrollBar().valueChanged.connect(self._scrolled)

    def to_end(self) -> None:
        """Show the end, and follow it."""
        self.follows = True
        self._lay_out(None)

    # Qt

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: N802 - Qt's name
        super().resizeEvent(event)
        if event.oldSize().width() != event.size().width():
            self._fit_again()
        else:
            self._lay_out(self._anchor())

    def showEvent(self, event: QShowEvent) -> None:  # noqa: N802 - Qt's name
        super().showEvent(event)
        self._lay_out(self._anchor())

    # Placing

    def _item(self, message_id: str) -> Item | None:
        for item in reversed(self.items):
            if item.shown.message.id == message_id:
                return item
        return None

    def _anchor(self) -> tuple[Item, int] | None:
        """Return the first message in sight and how far it is below the edge; None at the end, that stays in sight."""
        if self.follows:
            return None
        value = self.verticalScrollBar().value()
        for item in self.items:
            if item.top + item.height > value:
                return item, item.top - value
        return None

    def _inner(self) -> tuple[int, int]:
        """Return the width of messages and where they begin."""
        room = self.viewport().width()
        gap = self.fontMetrics().averageCharWidth() * 2
        width = min(room - 2 * gap, self.fontMetrics().averageCharWidth() * WIDTHS[self.width_wanted])
        return max(1, width), max(gap, (room - width) // 2)

    def _fit_again(self) -> None:
        anchor = self._anchor()
        for item in self.items:
            item.measured = False
        self._lay_out(anchor)

    def _measure_again(self, item: Item) -> None:
        anchor = self._anchor()
        item.measured = False
        self._lay_out(anchor)

    def _lay_out(self, anchor: tuple[Item, int] | None) -> None:
        """Place everything, with the anchor where it was."""
        width, left = self._inner()
        gap = round(self.fontMetrics().height() * 0.6)
        top = gap
        for item in self.items:
            if not item.measured:
                self._measure(item, width)
            item.top = top
            if item.view is not None:
                item.view.setGeometry(left, top, width, item.height)
            top += item.height + gap
        self._moves = True
        self.page.resize(self.viewport().width(), max(top, self.viewport().height()))
        self._moves = False
        if anchor is not None:
            self._move(anchor[0].top - anchor[1])
        elif self.follows:
            self._move(self.verticalScrollBar().maximum())
        self._place_button()
        if self.isVisible() and not self._making:
            self._want_views()

    def _measure(self, item: Item, width: int) -> None:
        if item.view is not None:
            item.height, item.measured = item.view.fit(width), True
        elif item.width != width:
            item.height = estimate_height(item.shown.message, width, self)
        item.width = width

    def _around(self, pages: int) -> list[Item]:
        """List the messages in sight and so many pages before and behind."""
        value, height = self.verticalScrollBar().value(), self.viewport().height()
        margin = pages * height
        return [item for item in self.items
                if item.top < value + height + margin and item.top + item.height > value - margin]  # fmt: skip

    def _view_resized(self, message_id: str) -> None:
        item = self._item(message_id)
        if item is not None:
            self._measure_again(item)

    def _move(self, value: int) -> None:
        self._moves = True
        self.verticalScrollBar().setValue(value)
        self._moves = False

    def _scrolled(self, value: int) -> None:
        if not self._moves:
            self.follows = value >= self.verticalScrollBar().maximum() - self.fontMetrics().height()
            self._place_button()
            self._want_views()

    def _place_button(self) -> None:
        self.latest.setVisible(not self.follows and bool(self.items))
        size = self.latest.sizeHint()
        room = self.viewport().size()
        at = QPoint(
            (room.width() - size.width()) // 2, room.height() - size.height() - self.fontMetrics().height() // 2
        )
        self.latest.setGeometry(at.x(), at.y(), size.width(), size.height())
        self.latest.raise_()

    # Making

    def _want_views(self) -> None:
        """Make what is in sight now; what is near it, between the turns of the wheel."""
        if any(item.view is None for item in self._around(0)):
            self._make_views()
        elif not self._later.isActive():
            self._later.start(LATER_MS)

    def _make_views(self) -> None:
        """Make the messages that are in sight, or else one of those near it, and the others a little later."""
        begun_s = time.perf_counter()
        anchor = self._anchor()
        missing = [item for item in self._around(0) if item.view is None]
        ahead = missing or [item for item in self._around(1) if item.view is None][:1]
        for number, item in enumerate(ahead):
            if number and time.perf_counter() - begun_s > BUDGET_S:
                break
            self._make(item)
        if ahead:
            self._release()
            # Placing them asks for views, too: those that come into sight by it have to wait for their turn.
            self._making = True
            self._lay_out(anchor)
            self._making = False
        if any(item.view is None for item in self._around(1)):
            self._later.start(LATER_MS)
        elif not ahead:
            self._warm_next()

    def _warm_next(self) -> None:
        """Prepare one of the messages that come near next."""
        cold = [item for item in self._around(WARM_PAGES) if item.view is None and not item.warm]
        if cold:
            cold[0].warm = True
            warm(cold[0].shown.message.text, shades_of(self.palette()))
        if len(cold) > 1:
            self._later.start(LATER_MS)

    def _make(self, item: Item) -> None:
        view = item.view = MessageView(item.shown, self.page)
        view.wants.connect(self._wish)
        view.edited.connect(self.edited)
        view.resized.connect(self._view_resized)
        view.installEventFilter(self)
        if self._marked:
            view.body.mark(self._marked)
        view.show()
        item.measured = False
        self._measure(item, self._inner()[0])

    def _release(self) -> None:
        """Let go of messages that are far away."""
        kept = {id(item) for item in self._around(1)}
        far = [item for item in self.items if item.view is not None and id(item) not in kept]
        for item in far[: max(0, len(far) + len(kept) - MOST_VIEWS)]:
            view = item.view
            if view is not None and not item.shown.runs and view.editor is None and not view.hasFocus():
                drop(item)

    def _wish(self, wish: str, message_id: str) -> None:
        if wish == "focus":
            self.current = message_id
        self.wants.emit(wish, message_id)


def estimate_height(message: Message, width: int, widget: QWidget) -> int:
    """Estimate how high a message will be: lines of code and of text, and what is around them."""
    metrics = widget.fontMetrics()
    letters = max(10, width // max(1, metrics.averageCharWidth()))
    lines = sum(1 + len(line) // letters for line in message.text.split("\n"))
    return round(metrics.lineSpacing() * (lines + 4.5))


def drop(item: Item) -> None:
    """Let go of the widget of a message."""
    view, item.view = item.view, None
    if view is not None:
        view.hide()
        view.setParent(None)
        view.deleteLater()
