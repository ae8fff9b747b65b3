"""The audit log: its pages, its chain, its search, and what an upgrade makes of an older log."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.registry import chain
from console.registry.audit import Actor
from console.registry.errors import AuditBroken
from console.registry.records import AuditEntry
from console.registry.registry import Registry
from console.registry.upgrade import _MIGRATIONS

ADMIN = Actor("user:ada", "10.0.0.7")


def fill(registry: Registry, count: int) -> list[AuditEntry]:
    for number in range(1, count + 1):
        registry.audit.append(ADMIN, "test", f"target-{number}", note="x", number=number)
    return list(reversed(registry.audit.list()))


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


def test_the_log_is_read_backwards_in_pages_and_forwards_whole(registry: Registry) -> None:
    entries = fill(registry, 5)
    newest = registry.audit.list(limit=2)
    assert [entry.target for entry in newest] == ["target-5", "target-4"]
    assert [entry.sequence for entry in registry.audit.list(before=newest[-1].sequence)] == [3, 2, 1]
    assert newest[0].detail == {"note": "x", "number": 5}
    assert [entry for page in registry.audit.pages() for entry in page] == entries


def test_a_log_as_it_was_written_holds(registry: Registry) -> None:
    assert registry.audit.verify().entries == 0
    entries = fill(registry, 7)
    checked = registry.audit.verify([(3, entries[2].hash)])
    assert checked == chain.Checked(7, 7, entries[-1].hash)


@pytest.mark.parametrize(
    ("statement", "broken_at"),
    [
        ("UPDATE audit SET actor = 'user:eve' WHERE sequence = 3", 3),
        ("UPDATE audit SET detail = '{}' WHERE sequence = 3", 3),
        ("UPDATE audit SET at_s = at_s + 1 WHERE sequence = 5", 5),
        ("DELETE FROM audit WHERE sequence = 3", 3),
        ("DELETE FROM audit WHERE sequence > 4", 7),
        ("UPDATE audit SET sequence = 99 WHERE sequence = 7", 7),
        ("INSERT INTO audit SELECT 8, at_s, actor, action, target, source, detail, hash FROM audit WHERE sequence = 7",
         8),
    ],
)  # fmt: skip
def test_what_was_changed_behind_the_log_is_found(
    sqlite_registry: Registry, tmp_path: Path, statement: str, broken_at: int
) -> None:
    fill(sqlite_registry, 7)
    change(tmp_path / "registry.sqlite3", statement)
    with pytest.raises(AuditBroken) as found:
        sqlite_registry.audit.verify()
    assert found.value.sequence == broken_at


def test_a_log_that_was_written_anew_is_found_with_a_hash_noted_before(registry: Registry, tmp_path: Path) -> None:
    noted = fill(registry, 4)[2]
    with Registry.open(tmp_path / "forged.sqlite3") as forged:
        fill(forged, 4)
        assert forged.audit.verify().entries == 4
        with pytest.raises(AuditBroken, match="rewritten") as found:
            forged.audit.verify([(noted.sequence, noted.hash)])
        assert found.value.sequence == noted.sequence
    with pytest.raises(AuditBroken, match="cut off"):
        registry.audit.verify([(9, noted.hash)])


def test_entries_of_several_consoles_are_one_chain(where: str) -> None:
    with Registry.open(where) as one, Registry.open(where) as two:
        threads = [threading.Thread(target=fill, args=(registry, 8)) for registry in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert one.audit.verify().entries == 16


def test_one_change_with_several_entries_keeps_their_order(registry: Registry) -> None:
    token = registry.invites.create(approve="auto").token_id.hex()
    registry.invites.consume(token, "ab" * 32)
    assert [entry.action for entry in registry.audit.list()] == ["invite.use", "invite.create"]
    assert registry.audit.verify().entries == 2


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("target-2", [2]),
        ("TARGET", [3, 2, 1]),
        ("targ 3", [3]),
        ("10.0.0.7 ada", [3, 2, 1]),
        ("user:ada", [3, 2, 1]),
        ("arget", []),
        ("target-2 target-3", []),
        ("Büro", [3, 2]),
        ("büroküche", [3]),
        ("%", []),
        ("", [3, 2, 1]),
    ],
)
def test_a_search_finds_entries_with_all_the_words_or_their_beginnings(
    registry: Registry, words: str, found: list[int]
) -> None:
    for number, room in enumerate(["", "BÜRO 12", "Büroküche"], 1):
        registry.audit.append(ADMIN, "test.room", f"target-{number}", rooms=[room], nested={"free": None})
    assert [entry.sequence for entry in registry.audit.list(search=words)] == found


def test_a_search_goes_on_page_by_page(registry: Registry) -> None:
    fill(registry, 5)
    assert [entry.sequence for entry in registry.audit.list(search="target", limit=2, before=4)] == [3, 2]


def test_an_older_registry_keeps_its_rows_and_its_log_is_chained_by_the_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, older = tmp_path / "r.sqlite3", tmp_path / "migrations"
    shutil.copytree(_MIGRATIONS, older)
    for later in sorted((older / "versions").glob("r*.py"))[1:]:
        later.unlink()
    with monkeypatch.context() as before:
        before.setattr("console.registry.upgrade._MIGRATIONS", older)
        Registry.open(path).close()
    for sequence in (2, 5):
        change(path, f"INSERT INTO audit VALUES ({sequence}, 1.5, 'admin:1', 'old', 'pc', '', '{{\"n\": 2.0}}')")
    change(path, "INSERT INTO invites VALUES ('t', x'00', 'auto', 1, '', 1, '', 2, NULL)")
    change(path, "INSERT INTO devices VALUES ('d', 'aa', 'active', '', 'n', '{}', 'c', 'file', x'00', 't', 1, 1, 1, 1)")
    change(path, "INSERT INTO certificates VALUES ('s', 'd', x'00', 1, 2)")
    change(path, "INSERT INTO api_keys VALUES ('ab', x'00', 'old key', '[\"chat\"]', 1.0, NULL, NULL)")
    with Registry.open(path) as registry:
        registry.audit.append(ADMIN, "test", "later")
        assert registry.audit.verify().entries == 3
        assert [entry.sequence for entry in registry.audit.list(search="old")] == [2, 1]
        assert [device.device_id for device in registry.devices.list()] == ["d"]
        (key,) = registry.keys.list()
        assert (key.name, key.user, key.quota.models) == ("old key", "", [])


def broken_exports() -> list[tuple[str, Callable[[list[AuditEntry]], list[AuditEntry]]]]:
    return [
        ("swapped", lambda log: [log[1], log[0], *log[2:]]),
        ("doubled", lambda log: [log[0], *log]),
        ("without the first", lambda log: log[1:]),
        ("without one in the middle", lambda log: [*log[:2], *log[3:]]),
        ("edited", lambda log: [*log[:2], msgspec.structs.replace(log[2], source="elsewhere"), *log[3:]]),
    ]


def make_log(count: int) -> list[AuditEntry]:
    log: list[AuditEntry] = []
    for number in range(1, count + 1):
        entry = AuditEntry(number, number / 7, "user:ada", "test", f"t{number}", "", {"share": number / 3})
        before = log[-1].hash if log else chain.FIRST_HASH
        log.append(msgspec.structs.replace(entry, hash=chain.entry_hash(before, entry)))
    return log


def test_an_export_holds_after_its_way_through_json() -> None:
    log = make_log(5)
    again = msgspec.json.decode(msgspec.json.encode(log), type=list[AuditEntry])
    assert chain.check(again) == chain.Checked(5, 5, log[-1].hash)


@pytest.mark.parametrize(("how", "break_it"), broken_exports())
def test_an_export_that_was_changed_does_not_hold(
    how: str, break_it: Callable[[list[AuditEntry]], list[AuditEntry]]
) -> None:
    with pytest.raises(AuditBroken):
        chain.check(break_it(make_log(5)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=6,
)  # fmt: skip


@given(st.dictionaries(st.text(), JSON, max_size=3), st.text())
def test_whatever_is_noted_keeps_its_hash_through_json_and_can_be_found(detail: dict[str, object], target: str) -> None:
    entry = AuditEntry(1, 0.1, "a", "b", chain.storable(target), "", chain.storable(detail))
    again = msgspec.json.decode(msgspec.json.encode(entry), type=AuditEntry)
    assert chain.entry_hash("0", again) == chain.entry_hash("0", entry)
    assert b"\0" not in msgspec.json.encode(again)
    assert all(0 < len(word) <= chain.MAX_WORD_BYTES for word in chain.words_of(entry))
