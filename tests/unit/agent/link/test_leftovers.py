from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.link.keys import create_key
from agent.link.keystore import Keystore
from agent.link.leftovers import (
    ASIDE_FILE,
    ENROLMENT_FILE,
    RENEWAL_FILE,
    PendingEnrolment,
    PendingRenewal,
    clear_leftovers,
)
from tests.support.power import KeyringWithPower

KEYS = Keystore.files_only("test")
RECORD = {
    "fleet_id": "a-fleet", "fleet_name": "A fleet", "device_id": "0123456789abcdef", "urls": [],
    "stem": "key-00000001", "key_protection": "file",
    "authorities": "key-00000001.authorities.pem", "mark": "key-00000000.mark.txt",
}  # fmt: skip
IN_FORCE = [
    "identity.json", "key-00000001.pem", "key-00000001.passphrase.json", "key-00000001.crt.pem",
    "key-00000001.authorities.pem", "key-00000000.mark.txt",
]  # fmt: skip
ATTEMPTS = ["key-00000002.pem", "key-00000002.passphrase.json", "key-00000003.pem", "key-00000003.crt.pem"]
LEFTOVERS = [
    "authorities.pem", "mark.txt", "key-0000000a.pem", "key-0000000a.passphrase.json", "key-0000000b.crt.pem",
    "key-0000000b.authorities.pem", "key-0000000b.mark.txt", "key-0000000c.passphrase.json", ".identity.json.abcdefgh",
    ".key-0000000a.pem.0_a1b2c3", ".enrolment.json.zzzzzzzz", ".mark.txt.12345678",
]  # fmt: skip
OTHERS = [ASIDE_FILE, "notes of the owner.txt", ".hidden"]


def write(folder: Path, names: list[str]) -> None:
    for name in names:
        (folder / name).write_bytes(b"{}")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@given(left=st.lists(st.sampled_from(LEFTOVERS), unique=True), has_attempts=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_was_left_over_is_cleared_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, left: list[str], has_attempts: bool
) -> None:
    folder = tmp_path_factory.mktemp("identity")
    kept = IN_FORCE + OTHERS + (ATTEMPTS if has_attempts else [])
    write(folder, kept + left)
    (folder / "identity.json").write_bytes(msgspec.json.encode(RECORD))
    if has_attempts:
        (folder / ENROLMENT_FILE).write_bytes(msgspec.json.encode(PendingEnrolment("ab", "key-00000002")))
        (folder / RENEWAL_FILE).write_bytes(msgspec.json.encode(PendingRenewal("key-00000003", "key-00000001")))
        kept = [*kept, ENROLMENT_FILE, RENEWAL_FILE]
    for _ in range(2):
        clear_leftovers(folder, KEYS)
        assert names(folder) == set(kept)


@pytest.mark.parametrize(
    ("name", "attempt"),
    [
        (ENROLMENT_FILE, PendingEnrolment("ab", "key-00000001")),
        (RENEWAL_FILE, PendingRenewal("key-00000001", "key-00000009")),
        (RENEWAL_FILE, PendingRenewal("key-00000002", "key-00000009")),
        (ENROLMENT_FILE, None),
        (RENEWAL_FILE, None),
    ],
)
def test_an_attempt_that_is_over_is_forgotten_and_the_key_in_force_is_not(
    tmp_path: Path, name: str, attempt: object
) -> None:
    write(tmp_path, [*IN_FORCE, "key-00000002.pem"])
    (tmp_path / "identity.json").write_bytes(msgspec.json.encode(RECORD))
    (tmp_path / name).write_bytes(b"{torn" if attempt is None else msgspec.json.encode(attempt))
    clear_leftovers(tmp_path, KEYS)
    assert names(tmp_path) == set(IN_FORCE)


@pytest.mark.parametrize("damage", ["torn", "aside"])
def test_while_the_record_is_damaged_nothing_is_deleted(tmp_path: Path, damage: str) -> None:
    write(tmp_path, [*IN_FORCE, *ATTEMPTS])
    (tmp_path / "identity.json").write_bytes(b"{torn")
    if damage == "aside":
        (tmp_path / "identity.json").replace(tmp_path / ASIDE_FILE)
    before = names(tmp_path)
    clear_leftovers(tmp_path, KEYS)
    assert names(tmp_path) == before


def test_without_a_folder_there_is_nothing_to_do(tmp_path: Path) -> None:
    clear_leftovers(tmp_path / "identity", KEYS)
    assert names(tmp_path) == set()


def test_an_entry_of_a_keyring_that_is_locked_is_deleted_by_a_later_start(tmp_path: Path) -> None:
    class Lockable(KeyringWithPower):
        is_locked = False

        def get_password(self, service: str, username: str) -> str | None:
            if self.is_locked:
                raise RuntimeError("The keyring is locked.")
            return super().get_password(service, username)

    keyring = Lockable()
    keystore = Keystore("test", find_backend=lambda: keyring, find_secret=lambda: None)
    former = create_key(tmp_path, keystore)
    assert former.passphrase.protection == "keyring"
    keyring.is_locked = True
    clear_leftovers(tmp_path, keystore)
    assert names(tmp_path) == {f"{former.stem}.passphrase.json"}
    keyring.is_locked = False
    clear_leftovers(tmp_path, keystore)
    assert (names(tmp_path), keyring.entries) == (set(), {})


def test_what_cannot_be_deleted_now_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    write(tmp_path, [*IN_FORCE, *LEFTOVERS])
    (tmp_path / "identity.json").write_bytes(msgspec.json.encode(RECORD))

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        clear_leftovers(tmp_path, KEYS)
    assert "Permission denied" in caplog.text
    clear_leftovers(tmp_path, KEYS)
    assert names(tmp_path) == set(IN_FORCE)
