"""Whose each file of a bundle is: by RECORD, by Python, by the system, or ours; nothing may be nobody's."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from installer.packaging.errors import LicenceMissing
from installer.packaging.parts import Distributions, assign, canonical, is_of_python, system_owners, system_part


def install(site: Path, name: str, *, licence: str = "MIT", text: bool = True, files: tuple[str, ...] = ()) -> None:
    """Lay a distribution out as pip would."""
    information = site / f"{name.replace('-', '_')}-1.0.dist-info"
    (information / "licenses").mkdir(parents=True)
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\nLicense-Expression: {licence}\n"
    )
    recorded = [f"{information.name}/METADATA,,", *(f"{file},," for file in files)]
    if text:
        (information / "licenses" / "LICENSE").write_text("Do as you like.")
        recorded.append(f"{information.name}/licenses/LICENSE,,")
    for file in files:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text("x")
    (information / "RECORD").write_text("\n".join(recorded) + "\n")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site-packages"
    install(folder, "Some_Thing", files=("some/thing.so",))
    install(folder, "bare", text=False, files=("bare.py",))
    install(folder, "shiboken6", licence="LGPL-3.0-only", text=False, files=("shiboken6/lib.so",))
    install(folder, "fallow", licence="Apache-2.0")
    return folder


@pytest.fixture
def found(site: Path, tmp_path: Path) -> Distributions:
    supplements = tmp_path / "supplements"
    supplements.mkdir()
    for name in ("LGPL-3.0.txt", "GPL-3.0.txt"):
        (supplements / name).write_text(name)
    return Distributions([str(site)], supplements)


def test_a_file_belongs_to_the_distribution_that_recorded_it(site: Path, found: Distributions) -> None:
    owners, known = assign({"some/thing.so": str(site / "some/thing.so")}, found, [])
    assert owners == {"some/thing.so": "some-thing"}
    part = known["some-thing"]
    assert (part.version, part.licence, part.kind) == ("1.0", "MIT", "distribution")
    assert [text.name for text in part.texts] == ["LICENSE"]


def test_a_distribution_without_its_text_gets_the_one_we_keep(site: Path, found: Distributions) -> None:
    _, known = assign({"lib.so": str(site / "shiboken6/lib.so")}, found, [])
    assert [text.name for text in known["shiboken6"].texts] == ["GPL-3.0.txt", "LGPL-3.0.txt"]


def test_a_distribution_without_any_text_fails_the_build(site: Path, found: Distributions) -> None:
    with pytest.raises(LicenceMissing, match="bare"):
        assign({"bare.py": str(site / "bare.py")}, found, [])


def test_a_file_that_came_from_nowhere_fails_the_build(site: Path, found: Distributions, tmp_path: Path) -> None:
    stray = tmp_path / "stray.so"
    stray.write_text("x")
    with pytest.raises(LicenceMissing, match=r"stray\.so"):
        assign({"stray.so": str(stray), "some/thing.so": str(site / "some/thing.so")}, found, [])


def test_the_standard_library_is_pythons(found: Distributions) -> None:
    assert is_of_python(Path(sysconfig.get_path("stdlib")) / "json" / "decoder.py")
    assert not is_of_python(Path(pytest.__file__))
    owners, known = assign({"json/decoder": str(Path(sysconfig.get_path("stdlib")) / "json" / "decoder.py")}, found, [])
    assert owners == {"json/decoder": "python"}
    assert known["python"].texts


def test_what_lies_in_our_folders_is_ours(found: Distributions, tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "programs.json").write_text("{}")
    owners, known = assign({"programs.json": str(ours / "programs.json")}, found, [ours.resolve()])
    assert owners == {"programs.json": "fallow"}
    assert known["fallow"].licence == "Apache-2.0"


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("dpkg-query"), reason="a Debian system")
def test_a_library_of_the_system_is_its_packages_under_any_of_its_names() -> None:
    merged, plain = Path("/usr/lib/x86_64-linux-gnu/libc.so.6"), Path("/lib/x86_64-linux-gnu/libc.so.6")
    there = [path for path in (merged, plain) if path.exists()]
    owners = system_owners(there)
    assert {name.partition(":")[0] for name in owners.values()} == {"libc6"}
    assert set(owners) == set(there)
    part = system_part("libc6")
    assert part.version
    assert part.texts[0].name == "copyright"


def test_of_no_files_no_owners_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("nothing to ask"))
    assert system_owners([]) == {}


def test_names_are_compared_as_package_indexes_do() -> None:
    assert canonical("PySide6_Essentials") == canonical("pyside6.essentials") == "pyside6-essentials"
