"""Users and logins. Each check of a password takes 0.1 s, so few tests do it."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.registry import passwords
from console.registry.audit import Actor
from console.registry.errors import NotFound, PasswordUnfit, WrongState
from console.registry.records import ROLE_SCOPES
from console.registry.registry import Registry
from console.registry.sessions import LIFE_S
from tests.support.enrolment import Clock

PASSWORD = "correct horse battery"


def test_a_login_lasts_half_a_day_and_its_token_is_stored_as_a_hash(
    sqlite_registry: Registry, clock: Clock, tmp_path: Path
) -> None:
    sqlite_registry.users.create("Ada", "operator", PASSWORD)
    opened = sqlite_registry.sessions.open("ADA", PASSWORD, source="10.0.0.7")
    assert opened is not None
    record, token = opened
    who = sqlite_registry.authenticate(token)
    assert who is not None
    assert (who.user, who.scopes, who.actor_name) == ("ada", ROLE_SCOPES["operator"], "user:ada")
    clock.now_s = record.expires_s
    assert record.expires_s == record.created_s + LIFE_S
    assert sqlite_registry.authenticate(token) is None
    sqlite_registry.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert token[-43:].encode() not in stored
    assert PASSWORD.encode() not in stored


def test_a_wrong_password_or_name_opens_nothing_and_is_written_down_without_them(registry: Registry) -> None:
    registry.users.create("ada", "user", PASSWORD)
    assert registry.sessions.open("ada", "wrong-canary-1") is None
    assert registry.sessions.open("canary-2-typed-into-the-name", "x") is None
    log = registry.audit.list()
    assert [(entry.action, entry.target) for entry in log[:2]] == [
        ("session.refused", "unknown user"),
        ("session.refused", "ada"),
    ]
    assert "canary" not in repr(log)


@pytest.mark.parametrize("change", ["password", "disable", "log out"])
def test_a_login_ends_with_its_password_its_user_or_at_will(
    registry: Registry, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.registry.users.matches", lambda password, stored: stored is not None)
    monkeypatch.setattr("console.registry.users.hash_password", lambda password: f"hash of {len(password)}")
    registry.users.create("ada", "user", PASSWORD)
    opened = registry.sessions.open("ada", PASSWORD)
    assert opened is not None
    record, token = opened
    who = registry.authenticate(token)
    assert who is not None
    if change == "password":
        registry.users.set_password("ada", PASSWORD)
    elif change == "disable":
        registry.users.set_disabled("ada", True)
    else:
        registry.sessions.close(record.session_id, Actor(who.actor_name))
    assert registry.authenticate(token) is None
    if change == "disable":
        assert registry.sessions.open("ada", PASSWORD) is None


def test_a_role_counts_at_once_in_open_logins(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.registry.users.matches", lambda password, stored: True)
    registry.users.create("ada", "owner")
    opened = registry.sessions.open("ada", PASSWORD)
    assert opened is not None
    registry.users.set_role("ada", "user")
    who = registry.authenticate(opened[1])
    assert who is not None
    assert not who.allows("view")


def test_a_user_without_password_cannot_log_in() -> None:
    assert not passwords.matches("", None)


@pytest.mark.parametrize("password", ["short", "x" * 1025, "é" * 600])
def test_an_unfit_password_is_refused_without_repeating_it(password: str) -> None:
    with pytest.raises(PasswordUnfit) as refused:
        passwords.hash_password(password)
    assert password not in str(refused.value)
    assert not passwords.matches(password, None)


@pytest.mark.parametrize("name", ["", "a b", "-ada", "ada/../x", "x" * 65, "ädä"])
def test_a_name_that_would_not_be_clear_is_refused(registry: Registry, name: str) -> None:
    with pytest.raises(WrongState, match="choose another"):
        registry.users.create(name, "user")


def test_a_name_is_there_once_whatever_its_case(registry: Registry) -> None:
    made = registry.users.create("Ada", "user")
    with pytest.raises(WrongState, match="a user ada already"):
        registry.users.create("aDA", "owner")
    assert registry.users.list() == [made]
    assert registry.users.find("ADA") == made
    with pytest.raises(NotFound):
        registry.users.set_role("bob", "user")
    with pytest.raises(NotFound):
        registry.users.set_disabled("bob", True)


def test_changes_that_change_nothing_are_not_written_down(registry: Registry) -> None:
    registry.users.create("ada", "user")
    registry.users.set_role("ada", "user")
    registry.users.set_disabled("ada", False)
    assert [entry.action for entry in registry.audit.list()] == ["user.create"]
