"""The parts list: every part with its files, valid by its schema, the same for the same bundle."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from installer.packaging import sbom
from installer.packaging.parts import Part

PARTS = {
    "a": Part("a", "1.0", "distribution", "MIT", (), "https://example.org/a"),
    "libz (system)": Part("libz", "1:1.2+dfsg-1", "system", "", ()),
    "python": Part("python", "3.11.7", "python", "PSF-2.0", ()),
    "odd": Part("odd", "2", "distribution", "The licence of odd things", ()),
    "fallow": Part("fallow", "0.1.0", "own", "Apache-2.0", ()),
    "qt": Part("qt", "6", "distribution", "LGPL-3.0-only OR GPL-2.0-only", ()),
}
FILES = {"_internal/a.so": "a", "fallow-agent": "fallow"}


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    for place in FILES:
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(place)
    made: dict[str, Any] = json.loads(sbom.parts_list("fallow-agent", "0.1.0", PARTS, FILES, tmp_path))
    return made


def test_every_part_is_named_as_its_registry_names_it(document: dict[str, Any]) -> None:
    purls = {part["name"]: part["purl"] for part in document["components"]}
    assert purls["a"] == "pkg:pypi/a@1.0"
    assert purls["libz"].startswith("pkg:deb/debian/libz@1:1.2")
    assert purls["python"] == "pkg:generic/python@3.11.7"
    assert document["metadata"]["component"]["name"] == "fallow-agent"
    assert len(document["dependencies"]) == len(PARTS) + 1


def test_licences_are_expressions_or_names(document: dict[str, Any]) -> None:
    licences = {part["name"]: part.get("licenses", []) for part in document["components"]}
    assert licences["a"] == [{"license": {"id": "MIT"}}]
    assert licences["qt"] == [{"expression": "LGPL-3.0-only OR GPL-2.0-only"}]
    assert licences["odd"] == [{"license": {"name": "The licence of odd things"}}]
    assert licences["libz"] == []


def test_every_file_is_there_with_its_hash(document: dict[str, Any]) -> None:
    files = {file["name"]: file["hashes"][0] for part in document["components"] for file in part.get("components", [])}
    assert {name: found["content"] for name, found in files.items()} == {
        place: hashlib.sha256(place.encode()).hexdigest() for place in FILES
    }


def test_the_same_bundle_gives_the_same_list(document: dict[str, Any], tmp_path: Path) -> None:
    again = json.loads(sbom.parts_list("fallow-agent", "0.1.0", PARTS, FILES, tmp_path))
    for one in (document, again):
        one["metadata"].pop("timestamp")
    assert document == again
