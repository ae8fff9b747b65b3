from __future__ import annotations

import shutil
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event

from agent.link.identity import DeviceId
from console.registry.audit import Actor
from console.registry.devices import PENDING_LIFE_S, WITHDRAWN, DeviceRequest
from console.registry.errors import InviteNotUsable, NotFound, RegistryTooNew, RegistryUnreadable, WrongState
from console.registry.models import Base
from console.registry.records import CertificateRecord, Deployment, DeviceRecord
from console.registry.registry import Registry
from console.registry.upgrade import _MIGRATIONS
from tests.support.enrolment import Clock

ADMIN = Actor("admin:1234", "10.0.0.7")


def make_request(registry: Registry, **fields: Any) -> DeviceRequest:
    values: dict[str, Any] = {
        "spki_sha256": "ab" * 32,
        "csr": b"request",
        "device_code": "ABCD-EFGH-K",
        "name": "pc-17",
        "facts": {"os": "Linux"},
        "key_protection": "file",
    }
    values |= fields
    if "token_id" not in values:
        values["token_id"] = registry.invites.create().token_id.hex()
    return DeviceRequest(**values)


def make_device(registry: Registry, **fields: Any) -> DeviceRecord:
    return registry.devices.approve(registry.devices.add_pending(make_request(registry, **fields)).device_id)


def actions(registry: Registry) -> list[str]:
    return [entry.action for entry in reversed(registry.audit.list())]


# --- opening


def test_what_was_written_is_there_after_opening_again(tmp_path: Path) -> None:
    with Registry.open(tmp_path / "new" / "r.sqlite3") as registry:
        device = make_device(registry)
    with Registry.open(f"sqlite:///{tmp_path}/new/r.sqlite3") as registry:
        assert registry.devices.find(device.device_id) == device


def test_the_file_is_private_and_in_wal_mode_with_foreign_keys(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite3"
    with Registry.open(path) as registry:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        with pytest.raises(NotFound):
            registry.deployments.save(Deployment("chat", "no such library", {}))


def test_the_migrations_make_exactly_the_tables_of_the_models(registry: Registry) -> None:
    with registry._database._engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def set_revision(path: Path, revision: str | None) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        connection.commit()


def test_a_registry_of_a_newer_console_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite3"
    Registry.open(path).close()
    set_revision(path, "r9999")
    with pytest.raises(RegistryTooNew, match="newer console"):
        Registry.open(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.sqlite3"]


def test_a_registry_is_copied_before_it_is_upgraded(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.sqlite3"
    with Registry.open(path, now=clock) as registry:
        device = make_device(registry)
    migrations = copy_migrations_with_one_more(tmp_path / "migrations")
    monkeypatch.setattr("console.registry.upgrade._MIGRATIONS", migrations)
    Registry.open(path, now=clock).close()
    (copy,) = tmp_path.glob(f"r.sqlite3.{newest_revision()}.*.bak")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT device_id FROM devices").fetchone() == (device.device_id,)
        assert connection.execute("SELECT name FROM sqlite_master WHERE name = 'later'").fetchone() is None
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("r9000",)


def newest_revision() -> str:
    return str(ScriptDirectory(str(_MIGRATIONS)).get_current_head())


def copy_migrations_with_one_more(target: Path) -> Path:
    shutil.copytree(_MIGRATIONS, target, ignore=shutil.ignore_patterns("__pycache__"))
    more = "import sqlalchemy as sa\nfrom alembic import op\nrevision = 'r9000'\n"
    more += f"down_revision = {newest_revision()!r}\n"
    more += 'def upgrade():\n    op.create_table("later", sa.Column("id", sa.Integer(), primary_key=True))\n'
    (target / "versions" / "r9000_later.py").write_text(more)
    return target


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite3"
    path.write_bytes(b"These are my notes, not a database. " * 40)
    with pytest.raises(RegistryUnreadable, match="cannot be opened"):
        Registry.open(path)
    assert path.read_bytes().startswith(b"These are my notes")


def test_an_address_that_is_none_is_refused_without_repeating_it() -> None:
    with pytest.raises(RegistryUnreadable) as refused:
        Registry.open("://user:canary@host")
    assert "canary" not in str(refused.value)


def test_a_database_without_driver_is_refused() -> None:
    with pytest.raises(RegistryUnreadable, match="No driver for nosuch databases"):
        Registry.open("nosuch://host/name")


# --- invites


def test_an_invite_keeps_only_the_hash_of_its_secret(sqlite_registry: Registry, tmp_path: Path) -> None:
    secret = sqlite_registry.invites.create()
    sqlite_registry.close()
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert secret.secret not in content
    assert secret.token_id.hex().encode() in content
    assert repr(secret.secret) not in repr(secret)


def test_the_same_key_uses_an_invite_once_however_often_it_asks(registry: Registry, clock: Clock) -> None:
    token = registry.invites.create(max_uses=1).token_id.hex()
    assert registry.invites.consume(token, "aa").uses == 1
    registry.invites.revoke(token)
    clock.now_s += 1e6
    assert registry.invites.consume(token, "aa").uses == 1
    assert actions(registry) == ["invite.create", "invite.use", "invite.revoke"]


@pytest.mark.parametrize("problem", ["unknown", "expired", "used_up", "revoked"])
def test_an_invite_that_cannot_be_used_says_why(registry: Registry, clock: Clock, problem: str) -> None:
    token = registry.invites.create(max_uses=1, life_s=100).token_id.hex()
    match problem:
        case "unknown":
            token = "00" * 8
        case "expired":
            clock.now_s += 100
        case "used_up":
            registry.invites.consume(token, "aa")
        case "revoked":
            registry.invites.revoke(token)
    with pytest.raises(InviteNotUsable) as refused:
        registry.invites.consume(token, "bb")
    assert refused.value.code == problem


def test_the_last_uses_go_to_as_many_keys_as_there_are(where: str) -> None:
    results: list[bool] = []
    with Registry.open(where) as one, Registry.open(where) as two:
        token = one.invites.create(max_uses=3).token_id.hex()

        def use(registry: Registry, key: str) -> None:
            try:
                registry.invites.consume(token, key)
                results.append(True)
            except InviteNotUsable:
                results.append(False)

        threads = [threading.Thread(target=use, args=((one, two)[n % 2], f"{n:02x}")) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert one.invites.list()[0].uses == 3
    assert sorted(results) == [False] * 5 + [True] * 3


@pytest.mark.parametrize("options", [{"max_uses": 0}, {"life_s": 0}, {"life_s": 31 * 86_400}])
def test_an_invite_without_sense_is_not_made(registry: Registry, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at least one use"):
        registry.invites.create(**options)


# --- devices


def test_a_request_becomes_one_pending_device_however_often_it_comes(registry: Registry) -> None:
    request = make_request(registry)
    first, second = registry.devices.add_pending(request), registry.devices.add_pending(request)
    assert first == second
    assert first.state == "pending"
    assert registry.devices.list("pending") == [first]


def test_approval_is_written_down_with_who_and_from_where(registry: Registry) -> None:
    device = registry.devices.add_pending(make_request(registry))
    assert registry.devices.approve(device.device_id, ADMIN).state == "active"
    assert registry.devices.approve(device.device_id, ADMIN).state == "active"
    (entry,) = [entry for entry in registry.audit.list() if entry.action == "device.approve"]
    assert (entry.actor, entry.source, entry.target) == ("admin:1234", "10.0.0.7", device.device_id)


def test_a_denied_device_keeps_the_reason_and_cannot_be_approved(registry: Registry) -> None:
    device = registry.devices.add_pending(make_request(registry))
    denied = registry.devices.deny(device.device_id, "Not ours.")
    assert (denied.state, denied.reason) == ("evicted", "Not ours.")
    with pytest.raises(WrongState, match="is evicted and cannot be approved"):
        registry.devices.approve(device.device_id)


def test_suspending_is_undone_by_resuming(registry: Registry) -> None:
    device = make_device(registry)
    assert registry.devices.suspend(device.device_id, "Maintenance.").state == "suspended"
    assert registry.devices.resume(device.device_id).state == "active"
    with pytest.raises(WrongState):
        registry.devices.resume(device.device_id)


def test_an_evicted_device_returns_with_another_invite_only(registry: Registry) -> None:
    request = make_request(registry)
    device = registry.devices.add_pending(request)
    registry.devices.revoke(device.device_id, "evict", "Lost.")
    assert registry.devices.add_pending(request).state == "evicted"
    again = registry.devices.add_pending(make_request(registry))
    assert (again.device_id, again.state, again.reason) == (device.device_id, "pending", "")


def test_a_banned_device_never_returns(registry: Registry) -> None:
    device = make_device(registry)
    registry.devices.revoke(device.device_id, "ban")
    assert registry.devices.add_pending(make_request(registry)).state == "banned"
    with pytest.raises(WrongState):
        registry.devices.revoke(device.device_id, "evict")


def test_a_request_nobody_approves_ends_after_a_week(registry: Registry, clock: Clock) -> None:
    device = registry.devices.add_pending(make_request(registry))
    registry.devices.expire()
    assert registry.devices.list("pending")
    clock.now_s += PENDING_LIFE_S + 1
    registry.devices.expire()
    found = registry.devices.find(device.device_id)
    assert found is not None
    assert (found.state, found.reason) == ("evicted", "Nobody approved the request within 7 days.")


def test_a_device_is_found_by_code_or_by_the_beginning_of_its_id(registry: Registry) -> None:
    device = make_device(registry)
    for text in (device.device_id, device.device_id[:6].upper(), "abcd-efgh-k", " ABCDEFGHK "):
        assert registry.devices.resolve(text).device_id == device.device_id
    for text in ("", "abc", "zzzz"):
        with pytest.raises(NotFound, match="No device"):
            registry.devices.resolve(text)
    make_device(registry, spki_sha256="cd" * 32)
    with pytest.raises(NotFound, match="2 devices"):
        registry.devices.resolve("ABCD-EFGH-K")


def test_many_devices_are_found_in_one_look_at_the_table(registry: Registry) -> None:
    codes = [f"ABCD-EFG{letter}-K" for letter in "HJKLM"]
    devices = [
        make_device(registry, spki_sha256=f"{number:064x}", device_code=code) for number, code in enumerate(codes)
    ]
    ids = [device.device_id for device in devices]
    asked: list[str] = []
    event.listen(registry._database._engine, "before_cursor_execute", lambda *words: asked.append(words[2]))
    texts = [ids[0], ids[1][:12].upper(), codes[2].lower(), ids[0], f" {codes[4]} "]
    assert list(registry.devices.ids_of(texts)) == [ids[0], ids[1], ids[2], ids[0], ids[4]]
    assert len([statement for statement in asked if statement.startswith("SELECT")]) == 1
    assert list(registry.devices.ids_of([])) == []
    with pytest.raises(NotFound, match="No device has the id or code 'zzzz'"):
        registry.devices.ids_of([ids[0], "zzzz"])


def test_the_newest_certificate_counts(registry: Registry) -> None:
    device = make_device(registry)
    assert registry.device_keys.newest_certificate(device.device_id) is None
    for number in (1, 2):
        record = CertificateRecord(f"{number}", device.device_id, b"pem", 1000.0 + number, 2000.0, "ab" * 32)
        registry.device_keys.add_certificate(record)
    assert registry.device_keys.newest_certificate(device.device_id) == record
    found = registry.devices.find(device.device_id)
    assert found is not None
    assert found.generation == 2


def test_changes_to_unknown_records_say_so(registry: Registry) -> None:
    unknown = DeviceId("0" * 16)
    for change in (
        lambda: registry.devices.approve(unknown),
        lambda: registry.device_keys.request_of(unknown),
        lambda: registry.invites.revoke("00"),
        lambda: registry.keys.revoke("00"),
        lambda: registry.libraries.remove("00"),
        lambda: registry.deployments.remove("chat"),
    ):
        with pytest.raises(NotFound):
            change()


# --- libraries, deployments, audit


def test_libraries_and_deployments_are_kept(registry: Registry, clock: Clock) -> None:
    registry.libraries.add("d1", "smollm2", "/models/a")
    assert registry.libraries.add("d1", "smollm2", "/models/b").folder == "/models/b"
    saved = registry.deployments.save(Deployment("chat", "d1", {"streams": 8}))
    planned = registry.deployments.save(Deployment("chat", "d1", saved.settings, {"stages": []}, epoch=3))
    assert registry.deployments.list() == [planned]
    assert (planned.plan, planned.epoch, planned.updated_s) == ({"stages": []}, 3, clock.now_s)
    with pytest.raises(WrongState, match="used by the deployment chat"):
        registry.libraries.remove("d1")
    registry.deployments.remove("chat")
    registry.libraries.remove("d1")
    assert registry.libraries.list() == []
    assert registry.libraries.find("d1") is None


def test_a_delivery_is_unfinished_until_it_ends(registry: Registry, clock: Clock) -> None:
    first = registry.deliveries.begin("m", "d" * 64, (0, 4), ["a", "b"], ADMIN)
    clock.now_s += 1
    second = registry.deliveries.begin("n", "e" * 64, (1, 2), ["c"])
    registry.deliveries.note(first.delivery_id, "a", "")
    registry.deliveries.note(first.delivery_id, "b", "b: the disk is full.")
    (known, other) = registry.deliveries.unfinished()
    assert (known.done, known.devices, other) == ({"a": "", "b": "b: the disk is full."}, ["a", "b"], second)
    registry.deliveries.console_id = "another"
    assert registry.deliveries.unfinished() == []
    registry.deliveries.console_id = ""
    ended = registry.deliveries.end(first.delivery_id, "1 of 2 PCs failed.")
    assert ended.stopped == "1 of 2 PCs failed."
    assert registry.deliveries.unfinished() == [second]
    assert registry.audit.list()[0].detail["failed"] == 1
    for change in (lambda: registry.deliveries.end("x"), lambda: registry.deliveries.note("x", "a", "")):
        with pytest.raises(NotFound):
            change()


def test_a_change_that_fails_leaves_no_audit_entry(registry: Registry) -> None:
    device = make_device(registry)
    before = registry.audit.list()
    with pytest.raises(WrongState):
        registry.devices.deny(device.device_id, "no")
    assert registry.audit.list() == before


@pytest.mark.parametrize("state", ["pending", "active"])
def test_what_a_pc_asked_for_it_can_take_back_until_it_is_a_member(registry: Registry, state: str) -> None:
    device = registry.devices.add_pending(make_request(registry))
    if state == "active":
        registry.devices.approve(device.device_id)
    withdrawn = registry.devices.withdraw(device.device_id, Actor("agent", "10.0.0.9"))
    assert (withdrawn.state, withdrawn.reason) == ("retired", WITHDRAWN)
    assert registry.audit.list()[0].action == "device.withdraw"
    with pytest.raises(WrongState):
        registry.devices.withdraw(device.device_id)
    again = registry.devices.add_pending(make_request(registry))
    assert (again.device_id, again.state) == (device.device_id, "pending")
