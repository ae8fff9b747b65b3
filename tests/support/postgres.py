"""A private PostgreSQL server in a temporary folder, reachable through a socket in it only."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from console.registry.registry import Registry
from installer import postgresql

MIGRATED = "fallow_migrated"


@dataclass
class Server:
    """A running server; `registry` gives an empty registry's address, `empty` a database without any table."""

    socket_folder: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def url(self, name: str) -> str:
        return f"postgresql://postgres@/{name}?host={self.socket_folder}"

    def execute(self, *statements: str, database: str = "postgres") -> list[str]:
        """Run statements; returns the first column of the last one's rows."""
        engine = create_engine(self.url(database).replace("postgresql", "postgresql+psycopg", 1))
        found: list[str] = []
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in statements:
                done = connection.execute(text(statement))
                found = [str(row[0]) for row in done] if done.returns_rows else []
        engine.dispose()
        return found

    def empty(self) -> str:
        name = f"fallow_{next(self.numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def registry(self) -> str:
        """Empty the one migrated database, as a database of its own per test would take 8 MB and a second."""
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
        names = self.execute(tables, database=MIGRATED)
        refill = [f"INSERT INTO {name} SELECT * FROM pristine.{name}" for name in names]
        self.execute(f"TRUNCATE {', '.join(names)} CASCADE", *refill, database=MIGRATED)
        return self.url(MIGRATED)

    def prepare(self) -> None:
        """Make the migrated database and remember which rows belong in it."""
        self.execute(f"CREATE DATABASE {MIGRATED}")
        Registry.open(self.url(MIGRATED)).close()
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        names = self.execute(tables, database=MIGRATED)
        copies = [f"CREATE TABLE pristine.{name} AS TABLE {name}" for name in names]
        self.execute("CREATE SCHEMA pristine", *copies, database=MIGRATED)


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """Start a server for this test run, or skip what needs one."""
    programs = postgresql.programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="fallow-pg-"))
    run = _runner(folder)
    data = folder / "data"
    try:
        run([programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"])
        # Speed over safety: nothing of it outlives the tests.
        quick = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=60"
        options = f"-k {folder} -c listen_addresses= {quick}"
        run([programs / "pg_ctl", "-D", data, "-l", folder / "log", "-w", "-o", options, "start"])
        try:
            server = Server(folder)
            server.prepare()
            yield server
        finally:
            run([programs / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _runner(folder: Path) -> Callable[[list[str | Path]], None]:
    """The server refuses to run as root: root runs it as somebody else."""
    as_user: dict[str, Any] = {}
    if sys.platform != "win32" and os.geteuid() == 0:
        import pwd

        entry = next(user for user in pwd.getpwall() if user.pw_name in ("postgres", "nobody"))
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        as_user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

    def run(command: list[str | Path]) -> None:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            check=False, timeout=120, text=True, **as_user,
        )  # fmt: skip
        assert done.returncode == 0, f"{command[0]} failed: {done.stderr[-500:]}"

    return run
