"""The tables of the file with the chats, and how an older file becomes a newer one."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from console.chat.errors import StoreTooNew, StoreUnusable

BUSY_MS = 5000

Migration = Callable[[sqlite3.Connection], None]

_FIRST = """
CREATE TABLE folders (
    id TEXT PRIMARY KEY, name TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE chats (
    id TEXT PRIMARY KEY, title TEXT NOT NULL, named INTEGER NOT NULL,
    folder_id TEXT REFERENCES folders(id) ON DELETE SET NULL,
    pinned INTEGER NOT NULL, setup TEXT NOT NULL, leaf_id TEXT, draft TEXT NOT NULL,
    created_s REAL NOT NULL, changed_s REAL NOT NULL, deleted_s REAL
) STRICT, WITHOUT ROWID;
CREATE TABLE messages (
    place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    chat_id TEXT NOT NULL REFERENCES chats(id) ON DELETE CASCADE,
    parent_id TEXT REFERENCES messages(id) DEFERRABLE INITIALLY DEFERRED,
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant')), text TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('whole', 'open', 'stopped', 'failed')),
    created_s REAL NOT NULL, attachments TEXT NOT NULL, facts TEXT NOT NULL, deleted_s REAL
) STRICT;
CREATE INDEX messages_of_chat ON messages(chat_id, place);
CREATE INDEX messages_of_parent ON messages(parent_id);
CREATE TABLE presets (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, system TEXT NOT NULL, sampling TEXT NOT NULL,
    model TEXT NOT NULL, is_default INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5(
    text, content='messages', content_rowid='place', tokenize='unicode61 remove_diacritics 2'
);
CREATE TRIGGER words_added AFTER INSERT ON messages BEGIN
    INSERT INTO words(rowid, text) VALUES (new.place, new.text);
END;
CREATE TRIGGER words_removed AFTER DELETE ON messages BEGIN
    INSERT INTO words(words, rowid, text) VALUES ('delete', old.place, old.text);
END;
CREATE TRIGGER words_changed AFTER UPDATE OF text ON messages BEGIN
    INSERT INTO words(words, rowid, text) VALUES ('delete', old.place, old.text);
    INSERT INTO words(rowid, text) VALUES (new.place, new.text);
END;
"""


def _make(connection: sqlite3.Connection) -> None:
    for statement in _statements(_FIRST):
        connection.execute(statement)


MIGRATIONS: Sequence[Migration] = (_make,)
"""Number n makes a file of version n + 1 out of one of version n."""


def connect(path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> sqlite3.Connection:
    """Open the file, making or migrating it first. For one thread. Raises StoreUnusable or StoreTooNew."""
    connection = None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=True)
        connection = sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None)
        _prepare(connection, path, migrations)
    except (sqlite3.Error, OSError) as error:
        _close(connection)
        message = f"The chats in {path} cannot be opened ({error}); free space, fix its rights or move it away."
        raise StoreUnusable(message) from None
    except StoreTooNew:
        _close(connection)
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration]) -> None:
    # Deleted chats must not be left in free pages of the file.
    for pragma in (f"busy_timeout={BUSY_MS}", "journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON",
                   "secure_delete=ON"):  # fmt: skip
        connection.execute(f"PRAGMA {pragma}")
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(migrations):
        raise StoreTooNew(
            f"{path} was written by a newer version of Fallow (its version is {version}, this one knows "
            f"{len(migrations)}); update this program."
        )
    if version == len(migrations):
        return
    if version:
        _copy(connection, path.with_name(f"{path.stem}.version-{version}{path.suffix}"))
    connection.execute("BEGIN IMMEDIATE")
    with _rolled_back(connection):
        # Another program may have done it meanwhile.
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        for migrate in migrations[version:]:
            migrate(connection)
        connection.execute(f"PRAGMA user_version={len(migrations)}")
        connection.execute("COMMIT")


def _copy(connection: sqlite3.Connection, to: Path) -> None:
    """Keep the file as it is before it is changed."""
    with contextlib.closing(sqlite3.connect(to)) as copy:
        connection.backup(copy)
    to.chmod(0o600)


@contextlib.contextmanager
def _rolled_back(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _close(connection: sqlite3.Connection | None) -> None:
    if connection is not None:
        connection.close()


def _statements(script: str) -> list[str]:
    """Split a script: `executescript` would commit the transaction it runs in."""
    statements, begun = [], ""
    for line in script.splitlines(keepends=True):
        begun += line
        if sqlite3.complete_statement(begun):
            statements.append(begun)
            begun = ""
    return statements
