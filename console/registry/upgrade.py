"""Schema upgrades: refuse what a newer console wrote, keep a copy of what is there, migrate in one transaction.

An SQLite file is copied beside itself. On PostgreSQL the tables are copied into a schema of their own,
`fallow_backup_<revision>_<time>`, in the transaction that migrates: `ALTER TABLE ... SET SCHEMA public` brings them
back. Several consoles may start at once; they take turns.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, inspect, text

from console.registry.errors import RegistryTooNew

_MIGRATIONS = Path(__file__).parent / "migrations"
_UPGRADE_LOCK = 0x46_41_4C_4C_4F_57
"""PostgreSQL's advisory lock for migrations; any number that is ours."""


def upgrade(engine: Engine, shown: str, now_s: float) -> None:
    """Bring a database to the newest schema; `shown` is its address without secrets.

    Raises RegistryTooNew and leaves the database alone if a newer console wrote it.
    """
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    with engine.connect() as connection:
        if _is_current(connection, scripts, shown):
            return
    is_sqlite = engine.dialect.name == "sqlite"
    if is_sqlite and engine.url.database:
        with engine.connect() as connection:
            current = _revision(connection)
        if current is not None:
            _copy_file(Path(engine.url.database), current, now_s)
    writing = engine.execution_options(fallow_writes=True)
    with writing.connect() as connection, _loose_ends(connection), connection.begin():
        if not is_sqlite:
            _take_turn(connection)
            if _is_current(connection, scripts, shown):
                return
            _copy_tables(connection, now_s)
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        if is_sqlite and connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
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


def _is_current(connection: Connection, scripts: ScriptDirectory, shown: str) -> bool:
    """Whether there is nothing to do. Raises RegistryTooNew."""
    current = _revision(connection)
    if current is None or current == scripts.get_current_head():
        return current is not None
    try:
        scripts.get_revision(current)
    except CommandError:
        raise RegistryTooNew(
            f"The registry {shown} was written by a newer console (schema {current}); update this console or restore "
            "the copy made before the upgrade."
        ) from None
    return False


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _copy_file(path: Path, revision: str, now_s: float) -> None:
    """Copy the file beside itself, consistently even while another process has it open."""
    copy = path.with_name(f"{path.name}.{revision}.{int(now_s)}.bak")
    with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    copy.chmod(0o600)


def _take_turn(connection: Connection) -> None:
    # The other console's migration may take longer than any other statement is given.
    connection.execute(text("SET LOCAL lock_timeout = 0"))
    connection.execute(text("SET LOCAL statement_timeout = 0"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})


def _copy_tables(connection: Connection, now_s: float) -> None:
    revision = _revision(connection)
    if revision is None:
        return
    quote = connection.dialect.identifier_preparer.quote
    schema = quote(f"fallow_backup_{revision}_{int(now_s)}")
    tables = inspect(connection).get_table_names()
    connection.execute(text(f"CREATE SCHEMA {schema}"))
    for table in tables:
        connection.execute(text(f"CREATE TABLE {schema}.{quote(table)} AS TABLE {quote(table)}"))
