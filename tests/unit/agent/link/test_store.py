from __future__ import annotations

import errno
import hashlib
from pathlib import Path

import pytest

from agent.link.store import Store
from agent.link.store_errors import FileDamaged, ManifestBad, StoreBroken, StoreFull
from shard_export.library.manifest import MANIFEST_NAME, FileRecord
from tests.support.libraries import make_library


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put(store: Store, data: bytes) -> str:
    with store.open_part(sha256(data)) as part:
        part.write(data)
        part.finish()
    return sha256(data)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_a_file_is_held_only_once_it_is_whole(store: Store) -> None:
    data = b"weights" * 1000
    with store.open_part(sha256(data)) as part:
        part.write(data[:100])
        assert not store.has(sha256(data))
        assert store.held() == []
        part.write(data[100:])
        part.finish()
    assert store.has(sha256(data), len(data))
    assert not store.has(sha256(data), len(data) + 1)
    assert store.held() == [sha256(data)]
    assert store.read(sha256(data)) == data


def test_a_cut_download_continues_where_it_ended(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    with Store(tmp_path).open_part(sha256(data)) as part:
        part.write(data[:700_001])
    with Store(tmp_path).open_part(sha256(data)) as part:
        assert part.offset == 700_001
        part.write(data[700_001:])
        part.finish()
    assert Store(tmp_path).read(sha256(data)) == data


def test_bytes_that_do_not_match_their_name_are_deleted(store: Store) -> None:
    with store.open_part("0" * 64) as part:
        part.write(b"other")
        with pytest.raises(FileDamaged):
            part.finish()
    with store.open_part("0" * 64) as part:
        assert part.offset == 0


def test_a_file_that_changed_on_disk_is_noticed_and_deleted(store: Store) -> None:
    name = put(store, b"manifest")
    store.path(name).write_bytes(b"manifesT")
    with pytest.raises(FileDamaged):
        store.read(name)
    assert not store.has(name)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_only_hashes_are_names(store: Store, name: str) -> None:
    with pytest.raises(ManifestBad):
        store.path(name)


def test_a_stage_folder_has_the_library_layout_and_no_copies(store: Store, tmp_path: Path) -> None:
    manifest, digest = make_library(tmp_path / "library")
    for record in [*manifest.files(), FileRecord(MANIFEST_NAME, 0, digest)]:
        put(store, (tmp_path / "library" / record.path).read_bytes())
    units = manifest.units_of_range(1, 3)
    for _ in range(2):
        folder = store.materialise(digest, units, "stage")
        found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        expected = [record.path for unit in units for record in (unit.xml, unit.bin)]
        assert found == sorted([MANIFEST_NAME, *expected])
        assert (folder / "units/001.bin").samefile(store.path(manifest.layer(1).bin.sha256))
    assert store.manifest(digest) == manifest
    store.discard_stage("stage")
    assert not folder.exists()
    assert store.materialise(digest, units, "other").exists()
    store.discard_all_stages()
    assert not (tmp_path / "stages" / "other").exists()
    assert store.has(manifest.layer(1).bin.sha256)


def test_files_are_copied_where_links_are_not_possible(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, digest = make_library(tmp_path / "library")
    unit = manifest.layer(0)
    for path in (unit.xml.path, unit.bin.path, MANIFEST_NAME):
        put(store, (tmp_path / "library" / path).read_bytes())

    def no_links(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    folder = store.materialise(digest, [unit], "stage")
    assert (folder / unit.bin.path).read_bytes() == store.read(unit.bin.sha256)


def test_a_missing_file_cannot_be_materialised(store: Store, tmp_path: Path) -> None:
    manifest, digest = make_library(tmp_path / "library")
    with pytest.raises(StoreBroken):
        store.materialise(digest, manifest.units_of_range(0, 1), "stage")


def test_a_full_disk_is_said_before_and_during(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreFull, match="free some space"):
        store.make_room(1 << 60)
    with store.open_part("0" * 64) as part:

        class Full:
            def write(self, data: bytes) -> None:
                raise OSError(errno.ENOSPC, "No space left on device")

            def close(self) -> None:
                real.close()

        real = part._file
        monkeypatch.setattr(part, "_file", Full())
        with pytest.raises(StoreFull):
            part.write(b"x")
        assert part.offset == 0


def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file in the way")
    with pytest.raises(StoreBroken, match="permissions"):
        Store(tmp_path)
