"""Finding words in the open chat: marked wherever they stand, one message after the other. GUI thread."""

from __future__ import annotations

from PySide6.QtCore import QObject

from console.chat.window.answers import Answers
from console.chat.window.desk import Desk
from console.chat.window.findbar import FindBar
from console.chat.window.thread import Thread


class Finder(QObject):
    """Does what the bar asks for; lives as long as it."""

    def __init__(self, desk: Desk, answers: Answers, thread: Thread, bar: FindBar) -> None:
        super().__init__(bar)
        self._desk, self._answers, self._thread, self._bar = desk, answers, thread, bar
        self._found: list[str] = []
        self._at = 0
        bar.searched.connect(self._search)
        bar.stepped.connect(self._step)

    def _search(self, words: str) -> None:
        wanted = words.casefold()
        branch = self._answers.so_far(self._desk.branch)
        self._found = [message.id for message in branch if wanted and wanted in message.text.casefold()]
        self._at = len(self._found) - 1
        self._thread.mark(words)
        self._go()

    def _step(self, by: int) -> None:
        if self._found:
            self._at = (self._at + by) % len(self._found)
            self._go()

    def _go(self) -> None:
        self._bar.show_count(self._at + 1, len(self._found))
        if self._found:
            self._thread.to_message(self._found[self._at])
            self._thread.mark(self._bar.field.text().strip())
