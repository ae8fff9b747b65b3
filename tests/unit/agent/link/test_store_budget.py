"""What makes room in the store when it is full, and what never does."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.link.store import Store
from agent.link.store_errors import StoreFull
from tests.support.libraries import make_library

MIB = 1 << 20


def put(store: Store, name: str, size: int, used_s: int) -> str:
    data = name.encode() * size
    data = data[:size]
    sha256 = hashlib.sha256(data).hexdigest()
    with store.open_part(sha256) as part:
        part.write(data)
        part.finish()
    os.utime(store.path(sha256), (used_s, used_s))
    return sha256


def test_what_was_not_used_for_longest_goes_first_and_only_as_much_as_needed(tmp_path: Path) -> None:
    store = Store(tmp_path, budget_bytes=1000)
    newest, oldest, middle = put(store, "n", 300, 30), put(store, "o", 300, 10), put(store, "m", 300, 20)
    assert store.make_room(100) == []
    assert store.make_room(101) == [oldest]
    assert sorted(store.held()) == sorted([middle, newest])
    assert store.make_room(1000) == [middle, newest]


def test_pinned_files_stay_whatever_is_asked_and_nothing_goes_in_vain(tmp_path: Path) -> None:
    store = Store(tmp_path, budget_bytes=1000)
    kept, other = put(store, "k", 600, 10), put(store, "o", 300, 20)
    store.pin("live plans", [kept])
    with pytest.raises(StoreFull, match="raise store_gb"):
        store.make_room(500)
    assert sorted(store.held()) == sorted([kept, other])
    assert store.make_room(400) == [other]
    store.unpin("live plans")
    assert store.make_room(500) == [kept]


def test_a_cut_download_makes_room_unless_it_is_wanted_now(tmp_path: Path) -> None:
    store = Store(tmp_path, budget_bytes=1000)
    with store.open_part("a" * 64) as part:
        part.write(bytes(800))
    store.pin("wanted now", ["a" * 64])
    with pytest.raises(StoreFull):
        store.make_room(500)
    store.unpin("wanted now")
    assert store.make_room(500) == []
    assert list(tmp_path.glob("store/aa/*")) == []


def test_the_files_of_a_loaded_stage_stay_and_count_as_used(tmp_path: Path) -> None:
    manifest, digest = make_library(tmp_path / "library")
    store = Store(tmp_path / "agent", budget_bytes=30_000)
    for record in manifest.files():
        with store.open_part(record.sha256) as part:
            part.write((tmp_path / "library" / record.path).read_bytes())
            part.finish()
    with store.open_part(digest) as part:
        part.write((tmp_path / "library" / "manifest.json").read_bytes())
        part.finish()
    for name in store.held():
        os.utime(store.path(name), (0, 0))
    units = manifest.units_of_range(1, 2)
    store.materialise(digest, units, "s")
    kept = {digest, *(record.sha256 for unit in units for record in (unit.xml, unit.bin))}
    with pytest.raises(StoreFull):
        store.make_room(29_999)
    gone = store.make_room(10_000)
    assert gone
    assert not kept & set(gone)
    store.discard_stage("s")
    assert store.path(digest).stat().st_mtime > 0
    assert store.make_room(29_999)


@given(
    files=st.lists(st.tuples(st.integers(1, 400), st.integers(0, 5), st.booleans()), max_size=8),
    needed=st.integers(0, 1200),
)
def test_room_is_made_within_the_budget_or_nothing_is_touched(
    files: list[tuple[int, int, bool]], needed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = Store(tmp_path_factory.mktemp("store"), budget_bytes=1000)
    made = {put(store, f"{place}-", size, used_s): (size, pin) for place, (size, used_s, pin) in enumerate(files)}
    store.pin("live plans", [name for name, (_, pin) in made.items() if pin])
    before = store.held()
    try:
        gone = store.make_room(needed)
    except StoreFull:
        assert store.held() == before
        assert sum(size for size, pin in made.values() if pin) + needed > 1000
        return
    assert not any(made[name][1] for name in gone)
    left = sum(made[name][0] for name in store.held())
    assert left + needed <= 1000 or not gone
    assert set(store.held()) == set(before) - set(gone)
