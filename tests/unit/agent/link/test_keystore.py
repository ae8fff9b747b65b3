from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail, null

from agent.link import keystore
from agent.link.errors import IdentityMissing, IdentityUnreadable, KeyLocked
from agent.link.keystore import (
    KeyringUnusable,
    Keystore,
    NoKeyring,
    awaited_within_deadline,
    ensure_private_folder,
    system_keyring,
    within_deadline,
    write_private,
)
from agent.link.service_secret import CREDENTIAL, service_secret


class FakeKeyring(KeyringBackend):
    """A keyring in memory whose calls tests can change."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # the library's own class
        self.entries: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.entries[service, username]


def make_keystore(backend: KeyringBackend | None, deadline_s: float = 5.0) -> Keystore:
    return Keystore("test", find_backend=lambda: backend, deadline_s=deadline_s)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_passphrase_goes_to_the_keyring_and_not_to_the_file(tmp_path: Path) -> None:
    backend = FakeKeyring()
    made = make_keystore(backend).create(tmp_path / "p.json")
    assert made.protection == "keyring"
    assert len(made.value) == 44
    assert made.value not in (tmp_path / "p.json").read_text()
    assert make_keystore(backend).read(tmp_path / "p.json").value == made.value


def test_each_passphrase_has_its_own_service_name(tmp_path: Path) -> None:
    backend = FakeKeyring()
    for name in ("a", "b"):
        make_keystore(backend).create(tmp_path / name)
    assert len({service for service, _ in backend.entries}) == 2


def test_without_a_keyring_the_passphrase_goes_to_a_private_file(tmp_path: Path) -> None:
    made = make_keystore(None).create(tmp_path / "p.json")
    assert made.protection == "file"
    assert mode(tmp_path / "p.json") == 0o600
    read = make_keystore(None).read(tmp_path / "p.json")
    assert (read.value, read.protection) == (made.value, "file")


@pytest.mark.parametrize("backend", [fail.Keyring, null.Keyring])
def test_a_keyring_that_keeps_nothing_is_noticed(tmp_path: Path, backend: type[KeyringBackend]) -> None:
    assert make_keystore(backend()).create(tmp_path / "p.json").protection == "file"


def test_a_full_keyring_is_noticed_and_its_error_is_not_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class FullKeyring(FakeKeyring):
        def set_password(self, service: str, username: str, password: str) -> None:
            raise OSError(8, f"no room for {password}")

    caplog.set_level("INFO")
    made = make_keystore(FullKeyring()).create(tmp_path / "p.json")
    assert made.protection == "file"
    assert "OSError" in caplog.text
    assert made.value not in caplog.text


def test_a_keyring_that_returns_another_value_is_not_trusted(tmp_path: Path) -> None:
    class ForgetfulKeyring(FakeKeyring):
        def get_password(self, service: str, username: str) -> str | None:
            return "something else"

    assert make_keystore(ForgetfulKeyring()).create(tmp_path / "p.json").protection == "file"


class HangingKeyring(FakeKeyring):
    """Waits for an unlock prompt nobody answers, until the test ends it."""

    def __init__(self) -> None:
        super().__init__()
        self.unlocked = threading.Event()

    def get_password(self, service: str, username: str) -> str | None:
        self.unlocked.wait()
        return super().get_password(service, username)


def test_a_keyring_that_waits_for_a_prompt_does_not_hold_up_for_ever(tmp_path: Path) -> None:
    backend = HangingKeyring()
    try:
        assert make_keystore(backend, deadline_s=0.05).create(tmp_path / "p.json").protection == "file"
    finally:
        backend.unlocked.set()


async def test_an_event_loop_waits_no_longer_than_anybody_else() -> None:
    backend = HangingKeyring()
    try:
        with pytest.raises(KeyringUnusable, match="did not answer within"):
            await awaited_within_deadline(lambda ring: ring.get_password("s", "u"), lambda: backend, 0.05)
    finally:
        backend.unlocked.set()
    assert await awaited_within_deadline(lambda ring: ring.get_password("s", "u"), lambda: backend) is None


def test_a_pc_without_a_keyring_is_told_from_one_whose_keyring_fails() -> None:
    def fails(ring: KeyringBackend) -> str:
        raise ValueError("the secret")

    with pytest.raises(NoKeyring):
        within_deadline(lambda ring: ring.get_password("s", "u"), lambda: None)
    with pytest.raises(KeyringUnusable, match="ValueError") as failed:
        within_deadline(fails, FakeKeyring)
    assert not isinstance(failed.value, NoKeyring)
    assert "secret" not in str(failed.value)


def test_a_locked_keyring_is_told_from_a_lost_entry(tmp_path: Path) -> None:
    backend = HangingKeyring()
    backend.unlocked.set()
    make_keystore(backend).create(tmp_path / "p.json")
    backend.unlocked.clear()
    try:
        with pytest.raises(KeyLocked, match="unlock it"):
            make_keystore(backend, deadline_s=0.05).read(tmp_path / "p.json")
    finally:
        backend.unlocked.set()
    with pytest.raises(KeyLocked, match="has none"):
        make_keystore(None).read(tmp_path / "p.json")
    with pytest.raises(IdentityUnreadable, match="no longer holds"):
        make_keystore(FakeKeyring()).read(tmp_path / "p.json")


def test_forgetting_removes_the_entry_and_the_file(tmp_path: Path) -> None:
    backend = FakeKeyring()
    make_keystore(backend).create(tmp_path / "p.json")
    make_keystore(backend).forget(tmp_path / "p.json")
    make_keystore(backend).forget(tmp_path / "p.json")
    assert backend.entries == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"protection":"none"}', b" " * 5000])
def test_a_damaged_passphrase_file_asks_for_a_new_enrolment(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.json").write_bytes(content)
    with pytest.raises(IdentityUnreadable, match="enrol this PC again"):
        make_keystore(None).read(tmp_path / "p.json")


def test_a_missing_passphrase_file_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(IdentityMissing):
        make_keystore(None).read(tmp_path / "p.json")


def test_a_keyring_named_by_the_environment_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")

    class Absent(FakeKeyring):
        priority = property(lambda _: 1 / 0)
        viable = False

    monkeypatch.setattr(keystore, "_system_backends", lambda: [Absent])
    assert system_keyring() is None
    monkeypatch.setattr(keystore, "_system_backends", lambda: [Absent, FakeKeyring])
    assert isinstance(system_keyring(), FakeKeyring)


def test_only_backends_of_operating_systems_are_known() -> None:
    modules = {backend.__module__ for backend in keystore._system_backends()}
    assert modules <= {f"keyring.backends.{name}" for name in ("Windows", "macOS", "SecretService", "kwallet")}


def test_a_representation_does_not_show_the_passphrase(tmp_path: Path) -> None:
    made = make_keystore(None).create(tmp_path / "p.json")
    assert made.value not in f"{made!r} {made}"


def test_a_failed_write_leaves_the_former_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept"
    write_private(path, b"former")

    def no_room(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(OSError, match="No space"):
        write_private(path, b"new")
    assert path.read_bytes() == b"former"
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept"]


def test_widened_rights_are_narrowed(tmp_path: Path) -> None:
    folder = tmp_path / "identity"
    folder.mkdir(mode=0o755)
    ensure_private_folder(folder)
    write_private(folder / "a", b"1")
    assert (mode(folder), mode(folder / "a")) == (0o700, 0o600)


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder a service manager fills for a service."""
    folder = tmp_path / "credentials"
    folder.mkdir()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    return folder


def test_a_service_with_a_credential_needs_no_keyring_and_keeps_no_secret(tmp_path: Path, credentials: Path) -> None:
    backend = FakeKeyring()
    (credentials / CREDENTIAL).write_bytes(bytes(range(32)))
    made = [make_keystore(backend).create(tmp_path / name) for name in ("a.json", "b.json")]
    assert [one.protection for one in made] == ["credential"] * 2
    assert made[0].value != made[1].value
    assert len(made[0].value) == 44
    assert backend.entries == {}
    assert made[0].value not in (tmp_path / "a.json").read_text()
    read = make_keystore(None).read(tmp_path / "a.json")
    assert (read.value, read.protection) == (made[0].value, "credential")
    make_keystore(None).forget(tmp_path / "a.json")
    assert not (tmp_path / "a.json").exists()


def test_a_key_of_a_service_is_locked_outside_it(
    tmp_path: Path, credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (credentials / CREDENTIAL).write_bytes(bytes(32))
    make_keystore(None).create(tmp_path / "p.json")
    (credentials / CREDENTIAL).unlink()
    with pytest.raises(KeyLocked, match="start the service"):
        make_keystore(None).read(tmp_path / "p.json")
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    with pytest.raises(KeyLocked, match="start the service"):
        make_keystore(None).read(tmp_path / "p.json")


@pytest.mark.parametrize("secret", [b"", b"short", bytes(5000)], ids=["empty", "short", "long"])
def test_a_credential_that_protects_nothing_is_refused_and_not_gone_around(
    tmp_path: Path, credentials: Path, secret: bytes
) -> None:
    (credentials / CREDENTIAL).write_bytes(secret)
    with pytest.raises(KeyLocked, match="random bytes"):
        make_keystore(FakeKeyring()).create(tmp_path / "p.json")
    assert not (tmp_path / "p.json").exists()


def test_a_service_without_our_credential_has_none(credentials: Path) -> None:
    assert service_secret() is None
    (credentials / CREDENTIAL).mkdir()
    with pytest.raises(KeyLocked, match="unit file"):
        service_secret()
