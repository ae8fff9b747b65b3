"""Brings the list of chats and the desk together: choosing, searching, folders, pins, names. GUI thread."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QObject, QPoint
from PySide6.QtWidgets import QInputDialog, QLineEdit, QMenu

from console.chat.records import Folder, Hit, new_id
from console.chat.window.answers import Answers
from console.chat.window.desk import Desk
from console.chat.window.rows import found_rows, rows_of
from console.chat.window.sidebar import Sidebar


class ChatList(QObject):
    """Lives as long as its sidebar."""

    def __init__(self, desk: Desk, answers: Answers, sidebar: Sidebar) -> None:
        super().__init__(sidebar)
        self._desk, self._answers, self._sidebar = desk, answers, sidebar
        self._words = ""
        self._hits: list[Hit] = []
        for signal in (desk.chats_changed, desk.opened, desk.settings_changed, answers.began, answers.ended):
            signal.connect(lambda *_: self.show())
        sidebar.chosen.connect(lambda chat_id, message_id: desk.open(chat_id, message_id or None))
        sidebar.searched.connect(self._search)
        sidebar.folder_toggled.connect(self._toggle)
        sidebar.menu_wanted.connect(self._menu)
        sidebar.stopped.connect(answers.stop)

    def show(self) -> None:
        """Show the rows as they are now."""
        desk = self._desk
        if self._words:
            rows = found_rows(desk.chats, self._words, self._hits)
            self._sidebar.show_rows(rows, desk.open_id or "", "Nothing found")
            return
        rows = rows_of(
            list(desk.chats.values()), desk.folders, desk.settings.closed_folders, list(self._answers.running)
        )  # fmt: skip
        empty = "They cannot be read" if desk.broken else "No chats yet" if desk.is_loaded else "Opening…"
        self._sidebar.show_rows(rows, desk.open_id or "", empty)

    def rename(self, chat_id: str | None = None) -> None:
        """Ask for another name of a chat."""
        chat = self._desk.chats.get(chat_id or self._desk.open_id or "")
        if chat is not None:
            name = self._ask("Rename chat", chat.title)
            if name:
                self._desk.change_chat(chat.id, title=name, named=True)

    def pin(self, chat_id: str | None = None) -> None:
        """Pin a chat, or let it go."""
        chat = self._desk.chats.get(chat_id or self._desk.open_id or "")
        if chat is not None:
            self._desk.change_chat(chat.id, pinned=not chat.pinned)

    def delete(self, chat_id: str | None = None) -> None:
        """Delete a chat; its answer is stopped before."""
        wanted = chat_id or self._desk.open_id or ""
        if wanted in self._desk.chats:
            self._answers.stop(wanted)
            self._desk.delete_chat(wanted)

    def step(self, by: int) -> None:
        """Open the chat above or below."""
        ids = [row.key for row in self._sidebar.model.rows if row.kind == "chat"]
        if ids:
            at = ids.index(self._desk.open_id) + by if self._desk.open_id in ids else 0
            self._desk.open(ids[max(0, min(len(ids) - 1, at))])

    def _search(self, words: str) -> None:
        self._words, self._hits = words, []
        if not words:
            self.show()
            return

        def take(hits: list[Hit]) -> None:
            if words == self._words:
                self._hits = hits
                self.show()

        self._desk.search(words, take)

    def _toggle(self, folder_id: str) -> None:
        closed = list(self._desk.settings.closed_folders)
        if folder_id in closed:
            closed.remove(folder_id)
        else:
            closed.append(folder_id)
        self._desk.change_settings(closed_folders=closed)

    def _menu(self, kind: str, key: str, at: QPoint) -> None:
        menu = self.menu_of(kind, key)
        menu.exec(at)
        menu.deleteLater()

    def menu_of(self, kind: str, key: str) -> QMenu:
        """Make the menu of a row."""
        menu = QMenu(self._sidebar)
        if kind == "folder":
            menu.addAction("Rename folder", lambda: self._rename_folder(key))
            menu.addAction("Remove folder, keep its chats", lambda: self._desk.delete_folder(key))
            return menu
        chat = self._desk.chats[key]
        menu.addAction("Rename", lambda: self.rename(key))
        menu.addAction("Unpin" if chat.pinned else "Pin", lambda: self.pin(key))
        move = menu.addMenu("Move to folder")
        for folder in self._desk.folders:
            move.addAction(folder.name, partial(self._desk.change_chat, key, folder_id=folder.id))
        if chat.folder_id:
            move.addAction("No folder", lambda: self._desk.change_chat(key, folder_id=None))
        move.addAction("New folder…", lambda: self._new_folder(key))
        if key in self._answers.running:
            menu.addAction("Stop the answer", lambda: self._answers.stop(key))
        menu.addSeparator()
        menu.addAction("Delete", lambda: self.delete(key))
        return menu

    def _new_folder(self, chat_id: str) -> None:
        name = self._ask("New folder", "")
        if name:
            folder = Folder(new_id(), name)
            self._desk.save_folder(folder)
            self._desk.change_chat(chat_id, folder_id=folder.id)

    def _rename_folder(self, folder_id: str) -> None:
        folder = next(each for each in self._desk.folders if each.id == folder_id)
        name = self._ask("Rename folder", folder.name)
        if name:
            self._desk.save_folder(Folder(folder_id, name))

    def _ask(self, what: str, text: str) -> str:
        said, agreed = QInputDialog.getText(self._sidebar, what, "Name", QLineEdit.EchoMode.Normal, text)
        return said.strip() if agreed else ""
