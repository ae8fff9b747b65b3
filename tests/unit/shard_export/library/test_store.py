"""Reading, verifying and publishing libraries."""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING, Any

import pytest

from shard_export.library import errors, store
from shard_export.library.manifest import MANIFEST_NAME, encode_manifest
from tests.support.libraries import make_library

if TYPE_CHECKING:
    from pathlib import Path


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


def test_publishing_does_not_overwrite(library: Path, tmp_path: Path) -> None:
    manifest = store.load_manifest(library)
    other, _ = make_library(tmp_path / "other")
    with pytest.raises(errors.LibraryExists):
        store.publish(tmp_path / "other", library, other)
    assert store.load_manifest(library) == manifest


def test_a_full_disk_is_told_apart_from_other_faults(tmp_path: Path) -> None:
    with pytest.raises(errors.DiskFull, match="free some space"), store.disk_errors(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(errors.ExportError, match="Permission denied") as caught, store.disk_errors(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied")
    assert not isinstance(caught.value, errors.DiskFull)
