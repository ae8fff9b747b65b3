"""Opening the database: connection settings, schema upgrades, transactions.

SQLite runs in WAL mode with foreign keys on. Writers take the write lock when they begin: a transaction that read
first and wrote later could otherwise fail in the middle although a busy timeout is set.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.orm import Session, sessionmaker

from console.registry.errors import RegistryTooNew, RegistryUnreadable

BUSY_TIMEOUT_S = 5.0
_MIGRATIONS = Path(__file__).parent / "migrations"


class Database:
    """An engine with two kinds of sessions. Safe for use from several threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._readers = sessionmaker(engine, expire_on_commit=False)
        self._writers = sessionmaker(engine.execution_options(fallow_writes=True), expire_on_commit=False)

    @classmethod
    def open(cls, where: str | Path, now_s: float) -> Database:
        """Open and upgrade a database. Raises RegistryTooNew or RegistryUnreadable."""
        url = _url(where)
        shown = url.render_as_string(hide_password=True)
        try:
            engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S} if _is_sqlite(url) else {})
        except (ModuleNotFoundError, NoSuchModuleError):
            raise RegistryUnreadable(
                f"No driver for {url.drivername} databases is installed; install it or use an SQLite path."
            ) from None
        if _is_sqlite(url):
            _configure_sqlite(engine)
        try:
            _prepare_file(url)
            _upgrade(engine, url, now_s)
        except (DBAPIError, sqlite3.Error, OSError) as error:
            engine.dispose()
            cause = error.orig if isinstance(error, DBAPIError) else error
            raise RegistryUnreadable(
                f"The registry {shown} cannot be opened ({cause}); check the path, its rights and the free disk space."
            ) from None
        except BaseException:
            engine.dispose()
            raise
        return cls(engine)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Session]:
        """A session for reads."""
        with self._readers() as session:
            yield session

    @contextlib.contextmanager
    def writing(self) -> Iterator[Session]:
        """A session that commits at its end, or rolls back on an exception."""
        with self._writers.begin() as session:
            yield session

    def close(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()


def _url(where: str | Path) -> URL:
    if isinstance(where, Path) or "://" not in where:
        return URL.create("sqlite", database=str(where))
    try:
        return make_url(where)
    except ArgumentError:
        raise RegistryUnreadable(
            "The registry's address is not a database URL; give a path or postgresql://…"
        ) from None


def _is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _prepare_file(url: URL) -> None:
    """Make a new SQLite file for this user alone; SQLite gives its companions the same rights."""
    if _is_sqlite(url) and url.database and url.database != ":memory:":
        path = Path(url.database)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)


def _configure_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def settings(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None  # the begin event below decides how transactions start
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("fallow_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _upgrade(engine: Engine, url: URL, now_s: float) -> None:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    with engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    if current == scripts.get_current_head():
        return
    if current is not None:
        try:
            scripts.get_revision(current)
        except CommandError:
            raise RegistryTooNew(
                f"The registry {url.render_as_string(hide_password=True)} was written by a newer console (schema "
                f"{current}); update this console or restore the copy made before the upgrade."
            ) from None
        if _is_sqlite(url) and url.database:
            _copy_sqlite(Path(url.database), current, now_s)
    writing = engine.execution_options(fallow_writes=True)
    with writing.connect() as connection, _loose_ends(connection), connection.begin():
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        if _is_sqlite(url) and connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
            raise sqlite3.IntegrityError("rows refer to others that are missing")


@contextlib.contextmanager
def _loose_ends(connection: Connection) -> Iterator[None]:
    """Let SQLite replace tables that others refer to, which is how it alters them; checked when all is done."""
    if connection.dialect.name != "sqlite":
        yield
        return
    raw = connection.connection.driver_connection  # the pragma counts only outside of a transaction
    assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - what the dialect's driver makes
    raw.execute("PRAGMA foreign_keys=OFF").close()
    try:
        yield
    finally:
        raw.execute("PRAGMA foreign_keys=ON").close()


def _copy_sqlite(path: Path, revision: str, now_s: float) -> None:
    """Copy the file beside itself, consistently even while another process has it open."""
    copy = path.with_name(f"{path.name}.{revision}.{int(now_s)}.bak")
    with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    copy.chmod(0o600)
