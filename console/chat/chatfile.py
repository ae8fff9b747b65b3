"""The chats of this PC in one SQLite file: what is kept, found, brought back and gone for good. Blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agent.link.parsing import UNREADABLE
from console.chat.records import Attachment, Chat, Facts, Folder, Hit, Message, Preset, Sampling, Setup
from console.chat.schema import MIGRATIONS, Migration, connect

MOST_HITS = 200

T = TypeVar("T")


class ChatFile:
    """The file itself. Every call waits for the disk: for the store's thread, which made it."""

    def __init__(self, path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        """Raises StoreUnusable or StoreTooNew."""
        self._connection = connect(path, migrations)
        self._unreadable = 0

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def take_unreadable(self) -> int:
        """Return how many rows could not be read since this was last asked: they are left out, and stay as they are."""
        count, self._unreadable = self._unreadable, 0
        return count

    # Chats

    def chats(self) -> list[Chat]:
        """List the chats, pinned ones first, then the one that changed last."""
        return self._made(_chat, self._rows(_CHATS))

    def save_chat(self, chat: Chat) -> None:
        """Make a chat or replace what is known of it."""
        values = (
            chat.id, chat.title, chat.named, chat.folder_id, chat.pinned, _json(chat.setup), chat.leaf_id, chat.draft,
            chat.created_s, chat.changed_s,
        )  # fmt: skip
        self._write(_SAVE_CHAT, values)

    def delete_chat(self, chat_id: str, now_s: float) -> None:
        """Delete a chat so that it can be brought back."""
        self._write("UPDATE chats SET deleted_s=? WHERE id=?", (now_s, chat_id))

    def restore_chat(self, chat_id: str) -> None:
        """Bring a deleted chat back."""
        self._write("UPDATE chats SET deleted_s=NULL WHERE id=?", (chat_id,))

    def purge(self, before_s: float) -> None:
        """Remove for good what was deleted before a time."""
        before = self._connection.total_changes
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("DELETE FROM chats WHERE deleted_s < ?", (before_s,))
            # Not by a cascade along the parents: SQLite follows one a thousand deep and no deeper.
            self._connection.execute(
                "WITH RECURSIVE gone(id) AS (SELECT id FROM messages WHERE deleted_s < ? UNION"
                " SELECT m.id FROM messages m JOIN gone ON m.parent_id = gone.id)"
                " DELETE FROM messages WHERE id IN gone",
                (before_s,),
            )
            if self._connection.total_changes != before:
                self._forget_words()
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def erase(self) -> None:
        """Remove every chat and folder for good; presets stay."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("DELETE FROM chats")
            self._connection.execute("DELETE FROM folders")
            self._forget_words()
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _forget_words(self) -> None:
        """Take the words of deleted messages out of the file: removing them from an FTS index only marks them."""
        self._connection.execute("INSERT INTO words(words) VALUES ('rebuild')")

    # Messages

    def messages(self, chat_id: str) -> list[Message]:
        """List all messages of a chat, of all branches, in the order they were made."""
        return self._made(_message, self._rows(_MESSAGES, (chat_id,)))

    def save_messages(self, messages: Iterable[Message]) -> None:
        """Make messages or replace them, all or none; a parent comes before its children."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for message in messages:
                self._save_message(message)

    def _save_message(self, message: Message) -> None:
        values = (
            message.id, message.chat_id, message.parent_id, message.role, message.text, message.state,
            message.created_s, _json(message.attachments), _json(message.facts),
        )  # fmt: skip
        self._connection.execute(_SAVE_MESSAGE, values)

    def delete_messages(self, ids: Sequence[str], now_s: float) -> None:
        """Delete messages so that they can be brought back."""
        self._many("UPDATE messages SET deleted_s=? WHERE id=?", [(now_s, each) for each in ids])

    def restore_messages(self, ids: Sequence[str]) -> None:
        """Bring deleted messages back."""
        self._many("UPDATE messages SET deleted_s=NULL WHERE id=?", [(each,) for each in ids])

    def close_open(self) -> None:
        """Say of answers that were still coming when the program ended that they were stopped."""
        self._write("UPDATE messages SET state='stopped' WHERE state='open'")

    def search(self, words: str) -> list[Hit]:
        """Find the messages with all these words, or beginnings of words; the best first."""
        if not (asked := query_of(words)):
            return []
        rows = self._rows(_SEARCH, (asked, MOST_HITS))
        return [Hit(*row) for row in rows]

    # Folders and presets

    def folders(self) -> list[Folder]:
        """List the folders by name."""
        return [Folder(*row) for row in self._rows("SELECT id, name FROM folders ORDER BY name COLLATE NOCASE")]

    def save_folder(self, folder: Folder) -> None:
        """Make or rename a folder."""
        self._write(
            "INSERT INTO folders (id, name) VALUES (?,?) ON CONFLICT(id) DO UPDATE SET name=excluded.name",
            (folder.id, folder.name),
        )

    def delete_folder(self, folder_id: str) -> None:
        """Remove a folder; its chats stay, in none."""
        self._write("DELETE FROM folders WHERE id=?", (folder_id,))

    def presets(self) -> list[Preset]:
        """List the presets by name."""
        rows = self._rows(
            "SELECT id, name, system, sampling, model, is_default FROM presets ORDER BY name COLLATE NOCASE"
        )
        return self._made(_preset, rows)

    def save_preset(self, preset: Preset) -> None:
        """Make or replace a preset; of those for one model, and of those for all, at most one is the default."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            if preset.is_default:
                self._connection.execute("UPDATE presets SET is_default=0 WHERE model=?", (preset.model,))
            self._connection.execute(
                "INSERT OR REPLACE INTO presets (id, name, system, sampling, model, is_default) VALUES (?,?,?,?,?,?)",
                (preset.id, preset.name, preset.system, _json(preset.sampling), preset.model, preset.is_default),
            )

    def delete_preset(self, preset_id: str) -> None:
        """Remove a preset; chats that began with it keep their copy."""
        self._write("DELETE FROM presets WHERE id=?", (preset_id,))

    def _made(self, make: Callable[[Sequence[Any]], T], rows: Iterable[Sequence[Any]]) -> list[T]:
        made = []
        for row in rows:
            try:
                made.append(make(row))
            except UNREADABLE:
                self._unreadable += 1
        return made

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def _write(self, statement: str, values: Sequence[Any] = ()) -> None:
        self._connection.execute(statement, values)

    def _many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(statement, values)


def query_of(words: str) -> str:
    """Return the FTS5 query for all these words, each as the beginning of one; empty for none."""
    return " ".join('"{}"*'.format(word.replace('"', '""')) for word in words.split() if any(map(str.isalnum, word)))


_CHATS = """
SELECT id, title, named, folder_id, pinned, setup, leaf_id, draft, created_s, changed_s
FROM chats WHERE deleted_s IS NULL ORDER BY pinned DESC, changed_s DESC
"""
_SAVE_CHAT = """
INSERT INTO chats (id, title, named, folder_id, pinned, setup, leaf_id, draft, created_s, changed_s)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET
title=excluded.title, named=excluded.named, folder_id=excluded.folder_id, pinned=excluded.pinned,
setup=excluded.setup, leaf_id=excluded.leaf_id, draft=excluded.draft, changed_s=excluded.changed_s
"""
_MESSAGES = """
SELECT id, chat_id, parent_id, role, text, state, created_s, attachments, facts
FROM messages WHERE chat_id=? AND deleted_s IS NULL ORDER BY place
"""
_SAVE_MESSAGE = """
INSERT INTO messages (id, chat_id, parent_id, role, text, state, created_s, attachments, facts)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET
text=excluded.text, state=excluded.state, attachments=excluded.attachments, facts=excluded.facts
"""
_SEARCH = """
SELECT m.chat_id, m.id, snippet(words, 0, '', '', '…', 16)
FROM words JOIN messages m ON m.place = words.rowid JOIN chats c ON c.id = m.chat_id
WHERE words MATCH ? AND m.deleted_s IS NULL AND c.deleted_s IS NULL ORDER BY rank LIMIT ?
"""


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _chat(row: Sequence[Any]) -> Chat:
    return Chat(
        id=row[0], title=row[1], named=bool(row[2]), folder_id=row[3], pinned=bool(row[4]),
        setup=msgspec.json.decode(row[5], type=Setup), leaf_id=row[6], draft=row[7], created_s=row[8],
        changed_s=row[9],
    )  # fmt: skip


def _message(row: Sequence[Any]) -> Message:
    return Message(
        id=row[0], chat_id=row[1], parent_id=row[2], role=row[3], text=row[4], state=row[5], created_s=row[6],
        attachments=msgspec.json.decode(row[7], type=list[Attachment]), facts=msgspec.json.decode(row[8], type=Facts),
    )  # fmt: skip


def _preset(row: Sequence[Any]) -> Preset:
    return Preset(
        id=row[0], name=row[1], system=row[2], sampling=msgspec.json.decode(row[3], type=Sampling), model=row[4],
        is_default=bool(row[5]),
    )  # fmt: skip
