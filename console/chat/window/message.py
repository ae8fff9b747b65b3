"""One message: who said it, its text, what is known of it, and what can be done with it. GUI thread."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QEvent, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QFocusEvent, QPainter, QPaintEvent, QPalette, QPen
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QProgressBar,
    QToolButton,
    QWidget,
)

from agent.look import palettes
from agent.look.widgets import label, rescale
from console.chat.records import Message
from console.chat.tokens import estimate, short_count
from console.chat.tree import Fork
from console.chat.window.body import Body
from console.chat.window.card import ErrorCard
from console.chat.window.editor import Editor
from console.chat.window.parts import quiet_line, shades_of, small_icon
from shard_export.library.counts import counted

MOST_READ = 4000
"""So much of a message is its name for a screen reader."""
BUTTONS = (
    ("copy", "copy", "Copy message"),
    ("edit", "edit", "Edit message"),
    ("regenerate", "again", "Answer again"),
    ("fork", "fork", "New chat from here"),
    ("delete", "delete", "Delete message and what follows"),
)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a message shows beside itself: `note` is what goes on, `done` of it from 0 to 1 or -1."""

    message: Message
    fork: Fork
    text: str = ""
    note: str = ""
    done: float = -1.0
    runs: bool = False
    retry_at_s: float = 0.0


class MessageView(QFrame):
    """Shows one message. `wants` carries the name of what somebody wants done with it."""

    wants = Signal(str, str)
    """What, and the message's id."""
    edited = Signal(str, str)
    """The message's id, and its new text."""
    resized = Signal(str)
    """It may be higher or lower now."""

    def __init__(self, shown: Shown, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.shown = shown
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setObjectName(f"message_{shown.message.id}")
        line = self.fontMetrics().height()
        self._margin = round(line * 0.7)
        self.who = label(bold=True)
        self.files = quiet_line()
        self.body = Body(shades_of(self.palette()))
        self.note = quiet_line()
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self.progress.setMaximumHeight(round(line * 0.4))
        self.progress.setAccessibleName("How much of the conversation is read")
        self.card: ErrorCard | None = None
        self.editor: Editor | None = None
        self.facts = quiet_line()
        self.buttons: dict[str, QToolButton] = {}
        self.foot = self._make_foot()
        self._grown = False
        for widget in (self.who, self.files, self.body, self.note, self.progress, self.facts, self.foot):
            widget.setParent(self)
        rescale(self)
        self.show_message(shown)

    def show_message(self, shown: Shown) -> None:
        """Show what the message is now."""
        before, self.shown = self.shown, shown
        message = shown.message
        is_user = message.role == "user"
        self.who.setText("You" if is_user else message.facts.model or "Assistant")
        self.files.setText("  ".join(file_line(each.name, each.text) for each in message.attachments))
        self.files.setVisible(bool(message.attachments))
        if shown.runs and shown.text:
            if not self._grown:
                self._grown = True
                self.body.grow(shown.text)
        elif not shown.runs and (self._grown or before is shown or before.message.text != message.text):
            self._grown = False
            self.body.set_text(message.text)
        self.show_note(shown)
        self.facts.setText("" if shown.runs else facts_line(message))
        self.facts.setVisible(bool(self.facts.text()))
        self._show_card(shown)
        self._show_fork(shown.fork)
        for name in ("regenerate", "fork", "edit", "delete"):
            self.buttons[name].setEnabled(not shown.runs)
        self._name()

    def show_note(self, shown: Shown) -> None:
        """Show only what goes on."""
        self.note.setText(shown.note)
        self.note.setVisible(bool(shown.runs and shown.note))
        self.progress.setVisible(shown.runs and shown.done >= 0)
        self.progress.setRange(0, 1000)
        self.progress.setValue(round(max(0.0, shown.done) * 1000))

    def grow(self, text: str) -> None:
        """Show more of the answer that comes."""
        self._grown = True
        self.body.grow(text)

    def begin_edit(self) -> None:
        """Let the text be changed in its place."""
        if self.editor is None and not self.shown.runs:
            self.editor = Editor(self.shown.message.text, asks=self.shown.message.role == "user")
            self.editor.setParent(self)
            self.editor.done.connect(self._end_edit)
            self.editor.show()
            self.body.hide()
            self.foot.hide()
            self.editor.text.setFocus()
            self.resized.emit(self.shown.message.id)

    def fit(self, width: int) -> int:
        """Place everything at a width; returns the height."""
        inner, top = width - 2 * self._margin, self._margin
        gap = round(self.fontMetrics().height() * 0.35)
        for widget in (self.who, self.files, self.note, self.progress, self.editor, self.body, self.card, self.facts,
                       self.foot):  # fmt: skip
            if widget is None or widget.isHidden():
                continue
            if isinstance(widget, Body):
                height = widget.fit(inner)
            elif widget.hasHeightForWidth():
                height = widget.heightForWidth(inner)
            else:
                height = widget.sizeHint().height()
            if isinstance(widget, Editor):
                height = widget.fit()
            widget.setGeometry(self._margin, top, inner, height)
            top += height + (gap if height else 0)
        return top - gap + self._margin

    def recolour(self) -> None:
        """Show the same in other colours or another size."""
        rescale(self)
        self.body.recolour(shades_of(self.palette()))
        self._draw_buttons()

    def focusInEvent(self, event: QFocusEvent) -> None:  # noqa: N802 - Qt's name
        super().focusInEvent(event)
        self.wants.emit("focus", self.shown.message.id)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:  # noqa: N802 - Qt's name
        super().focusOutEvent(event)
        self.update()

    def changeEvent(self, event: QEvent) -> None:  # noqa: N802 - Qt's name
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and hasattr(self, "foot"):
            QTimer.singleShot(0, self, self.recolour)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802 - Qt's name
        """Draw a person's words on a ground of their own, and who has the focus in a frame."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        colours = palettes.COLOURS[palettes.scheme_of(self.palette())]
        edge = self.rect().adjusted(1, 1, -2, -2)
        painter.setPen(Qt.PenStyle.NoPen)
        if self.hasFocus():
            painter.setPen(QPen(self.palette().color(QPalette.ColorRole.Highlight), 2))
        elif colours.alternate == colours.window and self.shown.message.role == "user":
            painter.setPen(QPen(self.palette().color(QPalette.ColorRole.Mid), 1))
        if self.shown.message.role == "user":
            painter.setBrush(self.palette().color(QPalette.ColorRole.AlternateBase))
        painter.drawRoundedRect(edge, 6, 6)
        painter.end()

    def _make_foot(self) -> QWidget:
        foot = QWidget()
        row = QHBoxLayout(foot)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        self.left = self._button("left", "Previous version", "previous")
        self.place = quiet_line()
        self.right = self._button("right", "Next version", "next")
        for widget in (self.left, self.place, self.right):
            row.addWidget(widget)
        for name, icon, text in BUTTONS:
            self.buttons[name] = self._button(icon, text, name)
            row.addWidget(self.buttons[name])
        row.addStretch(1)
        self._draw_buttons()
        return foot

    def _button(self, icon: str, text: str, wish: str) -> QToolButton:
        button = QToolButton()
        button.setAutoRaise(True)
        button.setAccessibleName(text)
        button.setToolTip(text)
        button.setProperty("icon_name", icon)
        button.clicked.connect(lambda: self._wish(wish))
        return button

    def _draw_buttons(self) -> None:
        side = round(self.fontMetrics().height() * 1.1)
        colour = palettes.COLOURS[palettes.scheme_of(self.palette())].quiet
        for button in (self.left, self.right, *self.buttons.values()):
            button.setIcon(small_icon(button.property("icon_name"), side, colour, self.devicePixelRatioF()))
            button.setIconSize(QSize(side, side))

    def _wish(self, wish: str) -> None:
        if wish == "edit":
            self.begin_edit()
        else:
            self.wants.emit(wish, self.shown.message.id)

    def _show_fork(self, fork: Fork) -> None:
        for widget in (self.left, self.place, self.right):
            widget.setVisible(fork.count > 1)
        self.place.setText(f"{fork.place}/{fork.count}")
        self.place.setAccessibleName(f"Version {fork.place} of {fork.count}")
        self.left.setEnabled(fork.place > 1)
        self.right.setEnabled(fork.place < fork.count)

    def _show_card(self, shown: Shown) -> None:
        wanted = shown.message.state == "failed" and not shown.runs
        if self.card is not None:
            self.card.hide()
            self.card.deleteLater()
            self.card = None
        if wanted:
            self.card = ErrorCard(shown.message.facts, shown.retry_at_s)
            self.card.setParent(self)
            self.card.wants.connect(self._wish)
            self.card.show()

    def _end_edit(self, text: str) -> None:
        if self.editor is not None:
            self.editor.hide()
            self.editor.deleteLater()
            self.editor = None
            self.body.show()
            self.foot.show()
            self.setFocus()
            self.resized.emit(self.shown.message.id)
            if text:
                self.edited.emit(self.shown.message.id, text)

    def _name(self) -> None:
        message = self.shown.message
        said = message.text[:MOST_READ] or self.shown.note or message.facts.problem
        self.setAccessibleName(f"{self.who.text()}: {said}")


def facts_line(message: Message) -> str:
    """Say in one line what is known of an answer."""
    facts, said = message.facts, []
    if message.state == "stopped":
        said.append("stopped")
    if facts.ending == "length":
        said.append("cut at the limit")
    if facts.completion_tokens:
        said.append(counted(facts.completion_tokens, "token", shown=f"{facts.completion_tokens:,}"))
    if facts.tokens_per_second:
        said.append(f"{facts.tokens_per_second:.1f} tokens/s")
    if facts.first_token_ms:
        said.append(f"first after {facts.first_token_ms / 1000:.1f} s")
    if facts.acceptance is not None:
        said.append(f"{facts.acceptance:.0%} guessed right")
    if facts.pcs:
        said.append("by " + ", ".join(facts.pcs))
    return " · ".join(said)


def file_line(name: str, text: str) -> str:
    """Say what a file is and how much it takes."""
    size = len(text.encode())
    tokens = estimate(text)
    shown = f"{size} B" if size < 1000 else f"{size / 1000:.1f} kB"
    return f"{name} ({shown}, about {counted(tokens, 'token', shown=short_count(tokens))})"
