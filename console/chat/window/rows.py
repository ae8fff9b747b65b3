"""The rows of the list of chats: which there are, in which order, and what is said of them. GUI thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, Qt

from console.chat.records import Chat, Folder, Hit

Index = QModelIndex | QPersistentModelIndex


@dataclass(frozen=True, slots=True)
class Row:
    """A row: a folder, a chat, or a message that was found. `second` is a line below, smaller."""

    key: str
    kind: str
    text: str
    second: str = ""
    message_id: str = ""
    pinned: bool = False
    runs: bool = False
    inside: bool = False
    is_open: bool = True


class Rows(QAbstractListModel):
    """The rows; changes are told row by row, so that selection and scrolling stay."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Show other rows."""
        wanted = [row.key for row in rows]
        kept = set(wanted)
        for place in range(len(self.rows) - 1, -1, -1):
            if self.rows[place].key not in kept:
                self.beginRemoveRows(QModelIndex(), place, place)
                del self.rows[place]
                self.endRemoveRows()
        for place, row in enumerate(rows):
            at = next((i for i in range(place, len(self.rows)) if self.rows[i].key == row.key), None)
            if at is None:
                self.beginInsertRows(QModelIndex(), place, place)
                self.rows.insert(place, row)
                self.endInsertRows()
            elif at != place:
                self.beginMoveRows(QModelIndex(), at, at, QModelIndex(), place)
                self.rows.insert(place, self.rows.pop(at))
                self.endMoveRows()
            if self.rows[place] != row:
                self.rows[place] = row
                index = self.index(place)
                self.dataChanged.emit(index, index)

    def rowCount(self, parent: Index | None = None) -> int:  # noqa: N802 - Qt's name
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row = self.rows[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole):
            return row.text
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.text
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return spoken(row)
        return None


def rows_of(
    chats: Sequence[Chat], folders: Sequence[Folder], closed: Sequence[str], running: Sequence[str]
) -> list[Row]:
    """Return the rows of the list: pinned chats, those in no folder, then each folder with its own."""
    ordered = sorted(chats, key=lambda chat: (not chat.pinned, -chat.changed_s))
    known = {folder.id for folder in folders}

    def row(chat: Chat, *, inside: bool) -> Row:
        return Row(
            chat.id, "chat", chat.title or "New chat", pinned=chat.pinned, runs=chat.id in running, inside=inside
        )

    rows = [row(chat, inside=False) for chat in ordered if chat.pinned or chat.folder_id not in known]
    for folder in folders:
        is_open = folder.id not in closed
        rows.append(Row(folder.id, "folder", folder.name, is_open=is_open))
        if is_open:
            rows += [row(chat, inside=True) for chat in ordered if chat.folder_id == folder.id and not chat.pinned]
    return rows


def found_rows(chats: dict[str, Chat], words: str, hits: Sequence[Hit]) -> list[Row]:
    """Return the rows of a search: chats whose titles have the words, then messages with what was found."""
    asked = words.casefold().split()
    rows = [
        Row(chat.id, "chat", chat.title or "New chat", pinned=chat.pinned)
        for chat in chats.values()
        if all(word in chat.title.casefold() for word in asked)
    ]
    for hit in hits:
        if (chat := chats.get(hit.chat_id)) is not None:
            excerpt = " ".join(hit.excerpt.split())
            key = f"{hit.chat_id}/{hit.message_id}"
            rows.append(Row(key, "hit", chat.title or "New chat", excerpt, hit.message_id))
    return rows


def spoken(row: Row) -> str:
    """Return what a screen reader says of a row."""
    if row.kind == "folder":
        return f"Folder {row.text}, {'open' if row.is_open else 'closed'}"
    notes = [note for note, holds in (("pinned", row.pinned), ("an answer is coming", row.runs)) if holds]
    return ", ".join([row.text, *([row.second] if row.second else []), *notes])
