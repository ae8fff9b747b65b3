"""What the window does with files: exporting, importing, attaching. The disk is waited for elsewhere. GUI thread."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog, QWidget

from console.chat.errors import ChatError
from console.chat.export import Format, as_markdown, file_name
from console.chat.files import read_chat, read_texts, write_chat
from console.chat.records import Attachment, Chat, Message
from console.chat.window.answers import Answers
from console.chat.window.desk import Desk

FORMATS: dict[str, Format] = {
    "Markdown (*.md)": "md",
    "JSON with all branches (*.json)": "json",
    "HTML (*.html)": "html",
}


class FileWork(QObject):
    """Lives as long as its window."""

    said = Signal(str)
    trouble = Signal(str)

    def __init__(self, desk: Desk, answers: Answers, window: QWidget) -> None:
        super().__init__(window)
        self._desk, self._answers, self._window = desk, answers, window

    def copy_all(self) -> None:
        """Copy the open chat."""
        if self._desk.chat is not None:
            text = as_markdown(self._desk.chat, self._answers.so_far(self._desk.branch))
            QGuiApplication.clipboard().setText(text)
            self.said.emit("The chat was copied as Markdown.")

    def ask_export(self) -> None:
        """Ask where the open chat is to be written, and write it."""
        chat = self._desk.chat
        if chat is None:
            return
        path, chosen = QFileDialog.getSaveFileName(
            self._window, "Export chat", file_name(chat, "md"), ";;".join(FORMATS)
        )
        if path:
            self.export_to(Path(path), FORMATS.get(chosen, "md"))

    def export_to(self, path: Path, format_: Format) -> None:
        """Write the open chat into a file; what a name ends with wins over what was chosen beside it."""
        desk = self._desk
        if (chat := desk.chat) is None:
            return
        branch, whole = self._answers.so_far(desk.branch), self._answers.so_far(desk.tree().all())
        by_name: dict[str, Format] = {".md": "md", ".json": "json", ".html": "html"}
        format_ = by_name.get(path.suffix.lower(), format_)
        if not path.suffix:
            path = path.with_suffix(f".{format_}")
        desk.bridge.in_thread(
            lambda: write_chat(path, chat, branch, whole, format_),
            lambda _: self.said.emit(f"The chat is in {path.name}."),
            self._failed,
        )

    def ask_import(self) -> None:
        """Ask for a chat in a file, and read it."""
        path, _ = QFileDialog.getOpenFileName(self._window, "Import chat", "", "Exported chat (*.json)")
        if path:
            self.import_from(Path(path))

    def import_from(self, path: Path) -> None:
        """Read a chat that was exported as JSON, and open it."""
        self._desk.bridge.in_thread(lambda: read_chat(path), self._take_in, self._failed)

    def ask_attach(self) -> None:
        """Ask for text files that are to go along."""
        paths, _ = QFileDialog.getOpenFileNames(self._window, "Attach text files")
        self.attach([Path(path) for path in paths])

    def attach(self, paths: list[Path]) -> None:
        """Put text files beside the draft of the chat that is open now."""
        take = partial(self._attach, self._desk.open_id)
        self._desk.bridge.in_thread(lambda: read_texts(paths), take, self._failed)

    def _attach(self, chat_id: str | None, read: tuple[list[Attachment], list[str]]) -> None:
        texts, problems = read
        self._desk.add_files(chat_id, texts)
        for problem in problems:
            self.trouble.emit(problem)

    def _take_in(self, read: tuple[Chat, list[Message]]) -> None:
        self._desk.take_in(*read)

    def _failed(self, error: ChatError) -> None:
        self.trouble.emit(str(error))
