"""Opening the database: connection settings and transactions. What makes the schema is in `upgrade`.

SQLite runs in WAL mode with foreign keys on. Writers take the write lock when they begin: a transaction that read
first and wrote later could otherwise fail in the middle although a busy timeout is set.

PostgreSQL is for several consoles: rows that are read to be changed are locked, and a server that does not answer
makes a call fail within seconds, because somebody waits for it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.orm import Session, sessionmaker

from console.registry.errors import RegistryUnreadable
from console.registry.upgrade import upgrade

BUSY_TIMEOUT_S = 5.0


class Database:
    """An engine with two kinds of sessions. Safe for use from several threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # SQLite's writers look again for the lock every few milliseconds, and who is unlucky gives up; ours take turns.
        self._turn = threading.Lock() if engine.dialect.name == "sqlite" else contextlib.nullcontext()
        self._readers = sessionmaker(engine, expire_on_commit=False)
        self._writers = sessionmaker(engine.execution_options(fallow_writes=True), expire_on_commit=False)

    @classmethod
    def open(cls, where: str | Path, now_s: float) -> Database:
        """Open and upgrade a database. Raises RegistryTooNew or RegistryUnreadable."""
        url = _url(where)
        shown = url.render_as_string(hide_password=True)
        try:
            engine = create_engine(url, hide_parameters=True, **_settings(url))
        except (ModuleNotFoundError, NoSuchModuleError):
            raise RegistryUnreadable(
                f"No driver for {url.drivername} databases is installed; install it or use an SQLite path."
            ) from None
        if _is_sqlite(url):
            _configure_sqlite(engine)
        try:
            _prepare_file(url)
            upgrade(engine, shown, now_s)
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
        with self._turn, self._writers.begin() as session:
            yield session

    @property
    def is_shared(self) -> bool:
        """Whether other consoles may use this database at the same time."""
        return self._engine.dialect.name != "sqlite"

    def close(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()


def _url(where: str | Path) -> URL:
    if isinstance(where, Path) or "://" not in where:
        return URL.create("sqlite", database=str(where))
    try:
        url = make_url(where)
        # The address people know says no driver; SQLAlchemy's default one is not ours.
        return url.set(drivername="postgresql+psycopg") if url.drivername in ("postgres", "postgresql") else url
    except ArgumentError:
        raise RegistryUnreadable(
            "The registry's address is not a database URL; give a path or postgresql://…"
        ) from None


def _settings(url: URL) -> dict[str, Any]:
    if _is_sqlite(url):
        return {"connect_args": {"timeout": BUSY_TIMEOUT_S}}
    if url.get_backend_name() != "postgresql":
        return {}
    wait_ms = int(BUSY_TIMEOUT_S * 1000)
    limits = f"-c lock_timeout={wait_ms} -c statement_timeout={2 * wait_ms}"
    return {
        "pool_pre_ping": True,
        "connect_args": {
            "connect_timeout": int(BUSY_TIMEOUT_S),
            "options": limits,
            "application_name": "fallow-console",
        },
    }


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
