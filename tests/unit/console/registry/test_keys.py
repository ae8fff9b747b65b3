"""API keys: what is stored of them, when they end, what their user's role takes away."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from console.registry.audit import Actor
from console.registry.errors import NotFound
from console.registry.records import Principal, Quota, Role, Scope
from console.registry.registry import Registry
from tests.support.enrolment import Clock


def test_a_key_is_known_by_its_text_and_stored_as_a_hash(sqlite_registry: Registry, tmp_path: Path) -> None:
    made, key = sqlite_registry.keys.create("Front desk", ["chat"], actor=Actor("key:1234", "10.0.0.7"))
    assert key.startswith(f"flw-{made.key_id}-")
    assert sqlite_registry.authenticate(key) == Principal(made.key_id, "", frozenset({"chat"}))
    assert sqlite_registry.keys.list() == [made]
    sqlite_registry.close()
    assert key[-43:].encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize(("scope", "allowed"), [("chat", {"chat"}), ("admin", {"chat", "view", "audit", "admin"})])
def test_a_scope_allows_itself_and_admin_allows_everything(
    registry: Registry, scope: Scope, allowed: set[Scope]
) -> None:
    who = registry.authenticate(registry.keys.create("x", [scope])[1])
    assert who is not None
    scopes: list[Scope] = ["chat", "view", "audit", "admin"]
    assert {asked for asked in scopes if who.allows(asked)} == allowed


UNKNOWN = ["", "flw-", "Bearer x", "flw-000000000000-" + "a" * 43, "fls-000000000000-" + "a" * 43, "é" * 60]


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_unknown_key_is_nobody(registry: Registry, text: str) -> None:
    registry.keys.create("x", ["chat"])
    assert registry.authenticate(text) is None


def test_a_key_with_another_secret_is_nobody(registry: Registry) -> None:
    _, key = registry.keys.create("x", ["chat"])
    assert registry.authenticate(key[:-1] + ("A" if key[-1] != "A" else "B")) is None
    assert registry.authenticate(key.replace("flw-", "fls-")) is None


def test_a_key_ends_when_it_expires_or_is_revoked(registry: Registry, clock: Clock) -> None:
    _, short = registry.keys.create("guest", ["chat"], expires_s=clock.now_s + 10)
    made, other = registry.keys.create("x", ["chat"])
    clock.now_s += 10
    assert registry.authenticate(short) is None
    assert registry.authenticate(other) is not None
    registry.keys.revoke(made.key_id)
    registry.keys.revoke(made.key_id)
    assert registry.authenticate(other) is None


@pytest.mark.parametrize(
    ("role", "scope", "left"),
    [
        ("user", "admin", {"chat"}),
        ("operator", "chat", {"chat"}),
        ("operator", "admin", {"chat", "view", "operate"}),
        ("auditor", "chat", set()),
        ("owner", "admin", {"chat", "view", "operate", "audit", "admin"}),
    ],
)
def test_a_key_of_a_user_allows_only_what_the_role_allows_now(
    registry: Registry, role: Role, scope: Scope, left: set[str]
) -> None:
    registry.users.create("ada", "owner")
    _, key = registry.keys.create("laptop", [scope], user="ada")
    registry.users.set_role("ada", role)
    who = registry.authenticate(key)
    assert who is not None
    assert who.scopes == left
    assert who.actor_name == f"user:ada key:{who.key_id}"


def test_the_keys_of_a_disabled_user_do_not_work_until_the_user_may_come_in_again(registry: Registry) -> None:
    registry.users.create("ada", "user")
    _, key = registry.keys.create("laptop", ["chat"], user="ada")
    registry.users.set_disabled("ada", True)
    assert registry.authenticate(key) is None
    registry.users.set_disabled("ada", False)
    assert registry.authenticate(key) is not None


def test_a_key_belongs_to_somebody_who_exists(registry: Registry) -> None:
    with pytest.raises(NotFound, match="no user bob"):
        registry.keys.create("x", ["chat"], user="bob")
    assert registry.keys.list() == []


def test_limits_are_replaced_for_the_next_request(registry: Registry) -> None:
    made, key = registry.keys.create("x", ["chat"], quota=Quota(streams=2))
    quota = Quota(tokens_per_day=1000, models=["small"])
    assert registry.keys.limit(made.key_id, quota).quota == quota
    who = registry.authenticate(key)
    assert who is not None
    assert who.quota == quota
    with pytest.raises(NotFound):
        registry.keys.limit("00", quota)


def test_tokens_are_counted_by_key_and_day_of_utc(registry: Registry, clock: Clock) -> None:
    made, _ = registry.keys.create("x", ["chat"])
    clock.now_s = 86_400 * 20_000 + 86_390.0
    registry.usage.add(made.key_id, 30)
    registry.usage.add(made.key_id, 12)
    registry.usage.add("user:ada", 7)
    assert (registry.usage.today(made.key_id), registry.usage.seconds_left()) == (42, 10)
    assert registry.keys.list()[0].tokens_today == 42
    clock.now_s += 10
    assert (registry.usage.today(made.key_id), registry.usage.seconds_left()) == (0, 86_400)


def test_no_count_is_lost_between_two_consoles(where: str) -> None:
    with Registry.open(where) as one, Registry.open(where) as two:

        def use(registry: Registry) -> None:
            for _ in range(20):
                registry.usage.add("k", 1)

        threads = [threading.Thread(target=use, args=(registry,)) for registry in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert one.usage.today("k") == 40
