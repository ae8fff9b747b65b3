"""Reading, verifying and publishing libraries."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from shard_export.library import errors, store
from shard_export.library.manifest import MANIFEST_NAME, encode_manifest
from tests.support.libraries import make_library


@pytest.fixture
def library(tmp_path: Path) -> Path:
    manifest, _ = make_library(tmp_path / "library")
    (tmp_path / "library" / MANIFEST_NAME).write_bytes(encode_manifest(manifest))
    return tmp_path / "library"


def edit_manifest(library: Path, **changes: Any) -> None:
    path = library / MANIFEST_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_whole_library_verifies(library: Path) -> None:
    assert store.verify_library(library).layer_count == 4


def test_a_folder_without_manifest_is_incomplete(library: Path) -> None:
    (library / MANIFEST_NAME).unlink()
    with pytest.raises(errors.LibraryIncomplete, match=r"manifest\.json"):
        store.verify_library(library)


def test_a_missing_file_is_named(library: Path) -> None:
    (library / "units" / "embed.bin").unlink()
    with pytest.raises(errors.LibraryIncomplete, match=r"embed\.bin"):
        store.verify_library(library)


def test_one_changed_bit_is_found(library: Path) -> None:
    path = library / "units" / "head.bin"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(errors.LibraryDamaged, match=r"head\.bin"):
        store.verify_library(library)


def test_a_file_nobody_knows_is_not_trusted(library: Path) -> None:
    (library / "units" / "031.bin").write_bytes(b"left over")
    with pytest.raises(errors.LibraryDamaged, match=r"031\.bin"):
        store.verify_library(library)


def test_a_newer_format_is_refused_even_if_it_looks_different(library: Path) -> None:
    (library / MANIFEST_NAME).write_text(json.dumps({"format_version": 99, "layers": {}}))
    with pytest.raises(errors.LibraryTooNew, match="99"):
        store.load_manifest(library)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"format_version": 1}', b"\xff\xfe"])
def test_garbage_is_no_manifest(library: Path, raw: bytes) -> None:
    (library / MANIFEST_NAME).write_bytes(raw)
    with pytest.raises(errors.LibraryDamaged):
        store.load_manifest(library)


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "units/../../x", "C:/x", "a\\b", ""])
def test_a_path_out_of_the_library_is_refused(library: Path, path: str) -> None:
    units = json.loads((library / MANIFEST_NAME).read_text())["units"]
    units[0]["bin"]["path"] = path
    edit_manifest(library, units=units)
    with pytest.raises(errors.LibraryDamaged):
        store.load_manifest(library)


def test_a_manifest_with_a_hole_in_its_layers_is_refused(library: Path) -> None:
    edit_manifest(library, layer_count=5)
    with pytest.raises(errors.LibraryDamaged, match="layers"):
        store.load_manifest(library)


def test_publishing_moves_everything_at_once(library: Path, tmp_path: Path) -> None:
    manifest = store.load_manifest(library)
    (library / MANIFEST_NAME).unlink()
    store.publish(library, tmp_path / "published", manifest)
    assert store.verify_library(tmp_path / "published") == manifest
    assert not library.exists()


def publish_copy(library: Path, out: Path) -> Path:
    """Publish a library with the same files once more."""
    manifest = store.load_manifest(library)
    work = Path(shutil.copytree(library, out.parent / "work"))
    for path in work.rglob("*"):
        if path.is_file():
            path.chmod(0o644)
    (work / MANIFEST_NAME).unlink()
    store.publish(work, out, manifest)
    return out


def test_a_published_library_cannot_be_written(library: Path, tmp_path: Path) -> None:
    published = publish_copy(library, tmp_path / "published")
    files = [path for path in published.rglob("*") if path.is_file()]
    assert all(path.stat().st_mode & 0o222 == 0 for path in files)
    store.remove_tree(published)
    assert not published.exists()


def test_libraries_side_by_side_store_equal_files_once(library: Path, tmp_path: Path) -> None:
    published = publish_copy(library, tmp_path / "published")
    for record in store.verify_library(published).files():
        assert (published / record.path).samefile(library / record.path)
    store.remove_tree(library)
    store.verify_library(published)


def test_a_damaged_neighbour_spoils_no_new_library(library: Path, tmp_path: Path) -> None:
    first = publish_copy(library, tmp_path / "first")
    store.remove_tree(library)
    spoiled = first / "units" / "head.bin"
    whole = spoiled.read_bytes()
    manifest = store.load_manifest(first)
    work = Path(shutil.copytree(first, tmp_path / "work"))
    for path in work.rglob("*"):
        if path.is_file():
            path.chmod(0o644)
    spoiled.chmod(0o644)
    spoiled.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    store.publish(work, tmp_path / "second", manifest)
    assert store.verify_library(tmp_path / "second") == manifest
    assert not (tmp_path / "second" / "units" / "head.bin").samefile(spoiled)


def test_publishing_does_not_overwrite(library: Path, tmp_path: Path) -> None:
    manifest = store.load_manifest(library)
    other, _ = make_library(tmp_path / "other")
    with pytest.raises(errors.LibraryExists):
        store.publish(tmp_path / "other", library, other)
    assert store.load_manifest(library) == manifest


NO_LIBRARIES = (
    b"{}",
    b'{"name": "A web app", "icons": []}',
    b'{"format_version": 1, "name": "an extension"}',
    b"not JSON",
    None,
)


@pytest.mark.parametrize("manifest", NO_LIBRARIES)
def test_a_folder_of_another_program_is_never_taken_for_a_library(
    tmp_path: Path, library: Path, manifest: bytes | None
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "letters.txt").write_text("dear")
    if manifest is None:
        (theirs / MANIFEST_NAME).mkdir()
    else:
        (theirs / MANIFEST_NAME).write_bytes(manifest)
    for replace in (False, True):
        with pytest.raises(errors.LibraryExists, match="is no layer library, so it is not touched"):
            store.check_target(theirs, replace=replace)
    with pytest.raises(errors.LibraryExists):
        store.publish(tmp_path / "work", theirs, store.load_manifest(library), replace=True)
    assert (theirs / "letters.txt").read_text() == "dear"


def test_only_a_library_that_is_understood_may_be_replaced(library: Path) -> None:
    store.check_target(library, replace=True)
    with pytest.raises(errors.LibraryExists, match="already holds a library"):
        store.check_target(library, replace=False)
    path = library / MANIFEST_NAME
    path.chmod(0o644)
    path.write_bytes(b'{"format_version": 999}')
    with pytest.raises(errors.LibraryExists, match="is a newer layer library, so it is not touched"):
        store.check_target(library, replace=True)


def test_a_full_disk_is_told_apart_from_other_faults(tmp_path: Path) -> None:
    with pytest.raises(errors.DiskFull, match="free some space"), store.disk_errors(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(errors.ExportError, match="Permission denied") as caught, store.disk_errors(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied")
    assert not isinstance(caught.value, errors.DiskFull)
