"""No file in a bundle without a licence entry, and every text there to read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from installer.packaging import licences
from installer.packaging.errors import LicenceMissing
from installer.packaging.parts import Kind, Part


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "fallow-agent"
    for name in ("fallow-agent", "_internal/base_library.zip", "_internal/lib/a.so.1", "man/fallow-agent.1"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / "_internal/a.so.1").symlink_to("lib/a.so.1")
    return folder


def part(name: str, licence: str = "MIT", *texts: Path, kind: Kind = "distribution") -> Part:
    return Part(name, "1.0", kind, licence, texts)


def test_every_file_is_somebodys(bundle: Path) -> None:
    files = licences.attribute(bundle, {"lib/a.so.1": "a"}, ["fallow-agent"])
    assert files == {
        "_internal/a.so.1": "a",
        "_internal/base_library.zip": "python",
        "_internal/lib/a.so.1": "a",
        "fallow-agent": "pyinstaller",
        "man/fallow-agent.1": "fallow",
    }


@pytest.mark.parametrize("stray", ["_internal/stray.so", "stray", "licenses.txt"])
def test_a_file_without_an_entry_fails_the_build(bundle: Path, stray: str) -> None:
    (bundle / stray).write_text("x")
    with pytest.raises(LicenceMissing, match=stray):
        licences.attribute(bundle, {"lib/a.so.1": "a"}, ["fallow-agent"])


def test_texts_are_copied_also_those_they_refer_to(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = tmp_path / "common-licenses"
    common.mkdir()
    (common / "GPL-2").write_text("the GPL")
    monkeypatch.setattr(licences, "_COMMON", common)
    own, debian = tmp_path / "LICENSE", tmp_path / "copyright"
    own.write_text("Do as you like.")
    debian.write_text("see `/usr/share/common-licenses/GPL-2'.")
    known = {"a": part("a", "MIT", own, own), "libz (system)": part("libz", "", debian, kind="system")}
    licences.write_texts(bundle, known, {"_internal/lib/a.so.1": "a"})
    folder = bundle / "licences"
    assert (folder / "a-1.0" / "LICENSE").read_text() == (folder / "a-1.0" / "LICENSE-2").read_text()
    assert (folder / "common" / "GPL-2.txt").read_text() == "the GPL"
    assert json.loads((folder / "files.json").read_text()) == {"_internal/lib/a.so.1": "a"}
    assert "a 1.0: MIT (1 file) -> a-1.0/" in (folder / "INDEX.txt").read_text().splitlines()


def test_a_text_that_is_only_referred_to_fails_the_build(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(licences, "_COMMON", tmp_path / "nowhere")
    debian = tmp_path / "copyright"
    debian.write_text("see /usr/share/common-licenses/GPL-2.")
    with pytest.raises(LicenceMissing, match="GPL-2"):
        licences.write_texts(bundle, {"z": part("z", "", debian, kind="system")}, {})


def test_the_notice_says_what_the_lgpl_obliges_to() -> None:
    said = licences.notice({"qt": part("qt", "LGPL-3.0-only"), "a": part("a")})
    assert "qt 1.0" in said
    assert "replace" in said
    assert "installer/build.py" in said
    assert "Lesser" not in licences.notice({"a": part("a")})
