"""The list of messages: which it shows, what changes in them, and how keys go through it. GUI thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QKeyEvent

from console.chat.settings import Width
from console.chat.window.column import Column, Item, drop
from console.chat.window.message import MessageView, Shown


class Thread(Column):
    """Shows a branch."""

    # What is shown

    def show_branch(self, branch: Sequence[Shown], *, anew: bool) -> None:
        """Show other messages; those that were shown before keep their widgets. `anew`: another chat, at its end."""
        old = {item.shown.message.id: item for item in self.items}
        anchor = None if anew else self._anchor()
        items: list[Item] = []
        for shown in branch:
            item = old.pop(shown.message.id, None)
            if item is None:
                item = Item(shown)
            elif item.shown != shown:
                self._replace(item, shown)
            items.append(item)
        for item in old.values():
            drop(item)
        self.items = items
        if anew:
            self.current, self.follows = "", True
        self._lay_out(anchor)

    def update_message(self, shown: Shown) -> None:
        """Show a message that changed."""
        item = self._item(shown.message.id)
        if item is not None:
            anchor = self._anchor()
            self._replace(item, shown)
            self._lay_out(anchor)

    def note(self, shown: Shown) -> None:
        """Show only what goes on with an answer."""
        item = self._item(shown.message.id)
        if item is not None:
            item.shown = shown
            if item.view is not None:
                item.view.show_note(shown)
                self._measure_again(item)

    def grow(self, message_id: str, text: str) -> None:
        """Show more of an answer that comes."""
        item = self._item(message_id)
        if item is not None:
            if item.view is not None:
                item.view.grow(text)
            else:
                item.shown = replace(item.shown, text=item.shown.text + text)
            self._measure_again(item)

    def set_width(self, width: Width) -> None:
        """Make lines longer or shorter."""
        self.width_wanted = width
        self._fit_again()

    def recolour(self) -> None:
        """Show everything in other colours or another size."""
        for item in self.items:
            if item.view is not None:
                item.view.recolour()
        self._fit_again()

    def mark(self, words: str) -> None:
        """Mark words in the messages that are in sight, and in those that come into it."""
        self._marked = words
        for item in self.items:
            if item.view is not None:
                item.view.body.mark(words)

    # Where it is

    def to_message(self, message_id: str) -> None:
        """Bring a message into sight."""
        item = self._item(message_id)
        if item is not None:
            self.follows = False
            self._move(item.top - self.fontMetrics().height())
            self._make_views()
            self._move(item.top - self.fontMetrics().height())

    def step(self, by: int) -> None:
        """Give the focus to the message before or after the one that has it."""
        if not self.items:
            return
        ids = [item.shown.message.id for item in self.items]
        at = ids.index(self.current) + by if self.current in ids else len(ids) - 1
        self.focus_message(ids[max(0, min(len(ids) - 1, at))])

    def focus_message(self, message_id: str) -> None:
        """Give a message the focus, in sight."""
        item = self._item(message_id)
        if item is None:
            return
        bar = self.verticalScrollBar()
        if item.top < bar.value() or item.top + item.height > bar.value() + self.viewport().height():
            self.to_message(message_id)
        if item.view is None:
            self._make(item)
            self._lay_out(self._anchor())
        if item.view is not None:
            self.current = message_id
            item.view.setFocus(Qt.FocusReason.TabFocusReason)

    def view_of(self, message_id: str) -> MessageView | None:
        """Return a message's widget, if it has one."""
        item = self._item(message_id)
        return item.view if item else None

    # Qt

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: N802 - Qt's name
        """Scroll as a document does."""
        self.scroll_by_key(event.key()) or super().keyPressEvent(event)

    def scroll_by_key(self, key: int) -> bool:
        """Scroll for Home, End and the page keys; returns whether the key was one of them."""
        bar = self.verticalScrollBar()
        if key == Qt.Key.Key_End:
            self.to_end()
            return True
        places = {
            Qt.Key.Key_Home: 0,
            Qt.Key.Key_PageUp: bar.value() - bar.pageStep(),
            Qt.Key.Key_PageDown: bar.value() + bar.pageStep(),
        }
        if key not in places:
            return False
        bar.setValue(places[Qt.Key(key)])
        return True

    def eventFilter(self, watched: object, event: QEvent) -> bool:  # noqa: N802 - Qt's name
        """Let arrows and page keys work while a message has the focus."""
        if isinstance(event, QKeyEvent) and isinstance(watched, MessageView) and _pressed(event, watched):
            steps = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}
            if event.key() in steps and not event.modifiers():
                self.step(steps[Qt.Key(event.key())])
                return True
            return self.scroll_by_key(event.key())
        return super().eventFilter(watched, event)  # type: ignore[arg-type]

    # Inside

    def _replace(self, item: Item, shown: Shown) -> None:
        item.shown = shown
        item.measured, item.width = False, 0
        if item.view is not None:
            item.view.show_message(shown)


def _pressed(event: QKeyEvent, view: MessageView) -> bool:
    return event.type() == QEvent.Type.KeyPress and view.hasFocus()
