"""A manifest that came over the network: read, or refused before anything of it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.link.manifests import parse_manifest
from agent.link.store_errors import ManifestBad
from shard_export.library.manifest import Manifest, encode_manifest
from tests.support.libraries import make_library


def with_bin(manifest: Manifest, place: int, **fields: Any) -> Manifest:
    """Change the record of one unit's weights."""
    units = list(manifest.units)
    units[place] = msgspec.structs.replace(units[place], bin=msgspec.structs.replace(units[place].bin, **fields))
    return msgspec.structs.replace(manifest, units=units)


def refusal(manifest: Manifest) -> str:
    with pytest.raises(ManifestBad) as refused:
        parse_manifest(encode_manifest(manifest))
    return str(refused.value)


@pytest.mark.parametrize(
    "path",
    [
        "../x", "/etc/x", "units/../../x", "C:/x", "units\\x", "", ".", "manifest.json", "Manifest.JSON", "units/.x",
        "units/x.", "units/x ", "aux.bin", "units/COM1", "a\0b", "a\nb", "a*b", "u/" * 100 + "x",
    ],
    ids=lambda path: repr(path[:20]),
)  # fmt: skip
def test_a_manifest_may_not_name_files_outside_its_folder_or_that_some_system_cannot_make(
    tmp_path: Path, path: str
) -> None:
    manifest, _ = make_library(tmp_path)
    assert "outside its folder" in refusal(with_bin(manifest, 0, path=path))


def test_no_file_may_have_the_place_of_another(tmp_path: Path) -> None:
    manifest, _ = make_library(tmp_path)
    other = manifest.units[1].bin.path
    assert "one name" in refusal(with_bin(manifest, 0, path=other))
    assert "one name" in refusal(with_bin(manifest, 0, path=other.upper()))
    assert "as a folder" in refusal(with_bin(manifest, 0, path=f"{other}/x"))
    assert "two sizes" in refusal(with_bin(manifest, 0, sha256=manifest.units[1].xml.sha256))


@pytest.mark.parametrize(
    "change", [{"size_bytes": -1}, {"size_bytes": 1 << 45}, {"sha256": "zz"}, {"sha256": "A" * 64}]
)
def test_a_manifest_needs_sizes_and_hashes(tmp_path: Path, change: dict[str, Any]) -> None:
    manifest, _ = make_library(tmp_path)
    assert "valid size and SHA-256" in refusal(with_bin(manifest, 0, **change))


@pytest.mark.parametrize("count", [0, -1, 3, 5, 1 << 40])
def test_a_manifest_has_every_layer_it_speaks_of(tmp_path: Path, count: int) -> None:
    manifest, _ = make_library(tmp_path)
    assert "export the library again" in refusal(msgspec.structs.replace(manifest, layer_count=count))


@pytest.mark.parametrize("unit", ["rope-full", "embed", "head", "002"])
def test_a_manifest_lacks_no_unit_and_has_none_twice(tmp_path: Path, unit: str) -> None:
    manifest, _ = make_library(tmp_path)
    others = [one for one in manifest.units if one.name != unit]
    for units in (others, [*manifest.units, manifest.unit(unit)]):
        assert "lacks a unit or names one twice" in refusal(msgspec.structs.replace(manifest, units=units))


@pytest.mark.parametrize("change", [{"hidden_size": 0}, {"vocab_size": -5}, {"context_tokens": 1 << 40}])
def test_sizes_that_memory_is_reckoned_with_are_possible(tmp_path: Path, change: dict[str, Any]) -> None:
    manifest, _ = make_library(tmp_path, **change)
    assert "cannot be" in refusal(manifest)


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff\xfe", b"[1]"])
def test_noise_is_no_manifest(data: bytes) -> None:
    with pytest.raises(ManifestBad):
        parse_manifest(data)


def test_a_manifest_of_another_format_asks_for_an_update(tmp_path: Path) -> None:
    manifest, _ = make_library(tmp_path, format_version=99)
    with pytest.raises(ManifestBad, match="update the agent"):
        parse_manifest(encode_manifest(manifest))
