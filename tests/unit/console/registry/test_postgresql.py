"""What is special about a registry on PostgreSQL: upgrades, their copies, and servers that do not answer."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from console.registry.errors import RegistryTooNew, RegistryUnreadable
from console.registry.registry import Registry
from console.registry.upgrade import _MIGRATIONS
from tests.support.postgres import Server
from tests.unit.console.registry.test_registry import copy_migrations_with_one_more, make_device, newest_revision


def ask(registry: Registry, statement: str) -> list[object]:
    with registry._database.reading() as session:
        return [row[0] for row in session.execute(text(statement))]


def test_a_plain_address_finds_the_driver_and_other_consoles_may_share_it(postgres: Server) -> None:
    with Registry.open(postgres.registry()) as registry:
        assert registry.is_shared
        assert registry._database._engine.dialect.driver == "psycopg"


def test_two_consoles_that_start_at_once_on_an_empty_database_make_its_tables_once(postgres: Server) -> None:
    where, problems = postgres.empty(), list[Exception]()

    def start() -> None:
        try:
            Registry.open(where).close()
        except Exception as error:  # noqa: BLE001 - thread edge: reported below
            problems.append(error)

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_tables_are_copied_into_a_schema_of_their_own_before_an_upgrade(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = postgres.empty()
    with Registry.open(where) as registry:
        device = make_device(registry)
    migrations = copy_migrations_with_one_more(tmp_path / "migrations")
    monkeypatch.setattr("console.registry.upgrade._MIGRATIONS", migrations)
    with Registry.open(where, now=lambda: 1_800_000_000.5) as registry:
        copy = f"fallow_backup_{newest_revision()}_1800000000"
        assert ask(registry, f"SELECT device_id FROM {copy}.devices") == [device.device_id]
        assert ask(registry, f"SELECT version_num FROM {copy}.alembic_version") == [newest_revision()]
        assert ask(registry, "SELECT version_num FROM alembic_version") == ["r9000"]


def test_an_upgrade_that_fails_leaves_everything_as_it_was(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = postgres.empty()
    Registry.open(where).close()
    migrations = Path(shutil.copytree(_MIGRATIONS, tmp_path / "migrations"))
    broken = f"revision = 'r9000'\ndown_revision = {newest_revision()!r}\nfrom alembic import op\n"
    broken += "def upgrade():\n    op.drop_table('audit_words')\n    op.execute('SELECT nonsense')\n"
    (migrations / "versions" / "r9000_broken.py").write_text(broken)
    with monkeypatch.context() as patched:
        patched.setattr("console.registry.upgrade._MIGRATIONS", migrations)
        with pytest.raises(RegistryUnreadable, match="nonsense"):
            Registry.open(where)
    with Registry.open(where) as registry:
        assert registry.audit.list(search="anything") == []
        assert ask(registry, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'fallow%'") == []


def test_a_database_of_a_newer_console_is_left_alone(postgres: Server) -> None:
    where = postgres.empty()
    with Registry.open(where) as registry, registry._database.writing() as session:
        session.execute(text("UPDATE alembic_version SET version_num = 'r9999'"))
    with pytest.raises(RegistryTooNew, match="newer console"):
        Registry.open(where)


def test_a_server_that_is_not_there_is_said_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(RegistryUnreadable, match="cannot be opened") as refused:
        Registry.open(f"postgresql://fallow:canary@/fallow?host={tmp_path}")
    assert "canary" not in str(refused.value)


def test_a_lost_connection_is_replaced_by_the_next_call(postgres: Server) -> None:
    where = postgres.registry()
    with Registry.open(where) as registry:
        token = registry.invites.create().token_id.hex()
        postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'fallow%'")
        assert registry.invites.list()[0].token_id == token
